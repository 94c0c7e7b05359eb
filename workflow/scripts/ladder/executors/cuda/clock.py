"""Where a training's time goes, from the steps that are measured."""

WARM_UP, SAMPLE_EVERY = 3, 50   # steps


class Clock:
    """Seconds per category, from sampled steps."""

    def __init__(self, cupy, before=()):
        self._cupy = cupy
        self._before = dict(before)   # {category: seconds} of an interrupted run
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
        """intervals: [(category, begin event, end event)], ordered by end."""
        self._collect()
        self._pending = intervals
        self._sampled_images += images

    def seconds(self):
        self._collect()
        scale = self._images / self._sampled_images if self._sampled_images else 0
        return {work: self._before.get(work, 0.0) + scale * self._sampled.get(work, 0.0)
                for work in self._before | self._sampled}

    def _collect(self):
        if self._pending:
            self._pending[-1][2].synchronize()
        for work, begin, end in self._pending:
            seconds = self._cupy.cuda.get_elapsed_time(begin, end) / 1000
            self._sampled[work] = self._sampled.get(work, 0.0) + seconds
        self._pending = []
