"""Results over several seeds: mean, standard deviation and confidence interval, also of paired
differences.

The interval is Student's t, cut where the mean itself cannot be: accuracies are between 0 and 1.
Cutting leaves the coverage as it is, because only values are left out that the mean never has (M.
Mandelkern, "Setting Confidence Intervals for Bounded Parameters", Statistical Science 17, 2002).
"""

import dataclasses
import math
import statistics

CONFIDENCE = 0.95
# the smallest and the largest possible mean
ANY, SHARES, DIFFERENCES = (-math.inf, math.inf), (0.0, 1.0), (-1.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Spread:
    """deviation: the sample standard deviation (n - 1 degrees of freedom), None for a single
    number; within: possible means.
    """

    mean: float
    deviation: float | None
    n: int
    within: tuple = ANY

    @property
    def interval(self):
        """(low, high) of the mean's confidence interval (Student's t, CONFIDENCE); None if the
        deviation is None or 0.
        """
        if not self.deviation:
            return None
        from scipy.special import stdtrit  # here, because it takes a quarter of a second

        reach = stdtrit(self.n - 1, (1 + CONFIDENCE) / 2) * self.deviation / math.sqrt(self.n)
        least, most = self.within
        return max(least, self.mean - float(reach)), min(most, self.mean + float(reach))


def spread(values, within=ANY):
    """The Spread of numbers; None if there are none."""
    values = list(values)
    if not values:
        return None
    return Spread(
        statistics.fmean(values),
        statistics.stdev(values) if len(values) > 1 else None,
        len(values),
        within,
    )


def paired(values, references):
    """The Spread of the paired differences, value minus reference, over the seeds that both have;
    both are seed -> fraction.

    Differences are rounded to 12 decimals, so that equal numbers of images give equal differences
    despite rounding errors.
    """
    return spread(
        (round(values[seed] - references[seed], 12) for seed in values if seed in references),
        DIFFERENCES,
    )
