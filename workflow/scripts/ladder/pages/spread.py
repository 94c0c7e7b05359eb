"""Numbers that several seeds gave: their mean and spread, and how they differ from those of the same seeds elsewhere."""

import dataclasses
import math
import statistics

import scipy.special

CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Spread:
    """deviation: the sample standard deviation, of n - 1 degrees of freedom; None of a single number."""

    mean: float
    deviation: float | None
    n: int

    @property
    def interval(self):
        """(low, high) of Student's interval at CONFIDENCE of the mean; None where the numbers have no spread to judge by."""
        if not self.deviation:
            return None
        reach = scipy.special.stdtrit(self.n - 1, (1 + CONFIDENCE) / 2) * self.deviation / math.sqrt(self.n)
        return self.mean - float(reach), self.mean + float(reach)


def spread(values):
    """The Spread of numbers; None of none."""
    values = list(values)
    if not values:
        return None
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def paired(values, references):
    """The Spread of the differences, value less reference, of the seeds that both have; each is seed -> fraction.

    To 12 decimals: differences of as many images are equal then, whatever the last bits of the fractions are.
    """
    return spread(round(values[seed] - references[seed], 12) for seed in values if seed in references)
