"""Where a training's time goes, from the steps that are measured."""

WARM_UP, SAMPLE_EVERY = 3, 50  # steps


class Clock:
    """Seconds per category and per pass of a plan's Step, from sampled steps.

    before, passes_before: {category: seconds} and {pass: seconds} of an interrupted run.
    """

    def __init__(self, cupy, before=(), passes_before=()):
        self._cupy = cupy
        self._before, self._passes_before = dict(before), dict(passes_before)
        self._steps = self._images = self._sampled_images = 0
        self._sampled, self._pending = {}, []

    def until_sample(self):
        """Steps before the next one that is to be measured: 0 if that is the next step."""
        left = WARM_UP - self._steps
        return left if left > 0 else left % SAMPLE_EVERY

    def count(self, steps, images):
        """Record that so many steps were made, with so many images together."""
        self._steps += steps
        self._images += images

    def keep(self, intervals, images):
        """intervals: [((category, pass), begin event, end event)], ordered by end."""
        self._collect()
        self._pending = intervals
        self._sampled_images += images

    def seconds(self):
        return self._extrapolated(self._before, 0)

    def passes(self):
        return self._extrapolated(self._passes_before, 1)

    def _extrapolated(self, before, kind):
        """{name: seconds} by the category (kind 0) or the pass (kind 1)."""
        self._collect()
        scale, total = (
            self._images / self._sampled_images if self._sampled_images else 0,
            dict(before),
        )
        for names, seconds in self._sampled.items():
            total[names[kind]] = total.get(names[kind], 0.0) + scale * seconds
        return total

    def _collect(self):
        if self._pending:
            self._pending[-1][2].synchronize()
        for names, begin, end in self._pending:
            seconds = self._cupy.cuda.get_elapsed_time(begin, end) / 1000
            self._sampled[names] = self._sampled.get(names, 0.0) + seconds
        self._pending = []
