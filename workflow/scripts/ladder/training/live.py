"""The page of a training that runs, logs/train/VERSION.html: its loss by epoch and the time left.

It is written anew after each epoch, and the browser loads it again every SECONDS until the training
has ended. It is no part of the artifact.
"""

import contextlib
import html
import pathlib
import time
from types import TracebackType
from typing import Any, Self

from ladder import progress
from ladder.store import disk

SECONDS = 5  # from one load to the next
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">{again}
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>:root {{ color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif }}
body {{ max-width: 48rem; margin: 2rem auto; padding: 0 1rem }} h1 {{ font-size: 1.4rem }}
p {{ margin: .4rem 0; overflow-wrap: anywhere }}
svg {{ display: block; width: 100%; height: 15rem; border: solid; border-width: 0 0 1px 1px }}
path {{ fill: none; stroke: #3b82c4; stroke-width: 3; stroke-linecap: round;
  vector-effect: non-scaling-stroke }} .validation {{ stroke: #d9822b; stroke-dasharray: 1 7 }}
.ends {{ display: flex; justify-content: space-between }}</style></head>
<body><main><h1>{title}</h1><p role="status">{status}</p>{curves}</main></body></html>
"""
CURVES = """<p>{legend}</p><p>Vertical axis: {low:.4g} to {high:.4g}</p>
<svg viewBox="0 0 1 1" preserveAspectRatio="none" role="img" aria-label="Loss by epoch">{paths}</svg>
<p class="ends"><span>epoch 1</span><span>epoch {epochs}</span></p>
"""


class Page:
    """Call it with the Training before the first epoch and after each; as a context, its end is
    written too. A disk that takes no page ends no training.

    path: '' for no page; title: of the network and its version.
    """

    def __init__(self, path: str, title: str) -> None:
        self._path, self._title = path, title
        self._run: Any = None
        self._seconds = 0.0  # of the training before the epoch

    def __enter__(self) -> Self:
        return self

    def __call__(self, run: Any) -> None:
        took = run.seconds - self._seconds if self._run is run else 0.0
        self._run, self._seconds = run, run.seconds
        left = f"about {progress.duration(took * (run.epochs - run.epoch))} left" if took else ""
        self._write(f"epoch {run.epoch} of {run.epochs}, {left or 'the next one has begun'}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._run:
            how = f" early: {str(error) or kind.__name__}" if kind else ""
            self._write(f"ended{how}, after epoch {self._run.epoch} of {self._run.epochs}", False)

    def _write(self, status: str, runs: bool = True) -> None:
        again = f'<meta http-equiv="refresh" content="{SECONDS}">' if runs else ""
        status = html.escape(f"{time.strftime('%H:%M:%S')}: {status}")
        title = html.escape(self._title)
        text = PAGE.format(again=again, title=title, status=status, curves=_curves(self._run))
        if self._path:
            with contextlib.suppress(OSError):
                pathlib.Path(self._path).parent.mkdir(parents=True, exist_ok=True)
                disk.write_atomically(self._path, text.encode())


def _curves(run: Any) -> str:
    """The losses of the epochs in an SVG of height and width 1; '' before the first epoch."""
    curves = {"training": run.losses, "validation": run.validation.losses if run.validation else []}
    values = [loss for losses in curves.values() for loss in losses]
    if not values:
        return ""
    low, high, last = min(values), max(values), max(run.epochs - 1, 1)
    paths = [
        f'<path class="{name}" d="M{places[0]}L{" ".join(places)}"/>'
        for name, losses in curves.items()
        if (
            places := [
                f"{x / last:.4f} {(high - y) / ((high - low) or 1):.4f}"
                for x, y in enumerate(losses)
            ]
        )
    ]
    legend = "; dotted: ".join(
        f"{name} loss {losses[-1]:.4g}" for name, losses in curves.items() if losses
    )
    return CURVES.format(legend=legend, high=high, low=low, paths="".join(paths), epochs=run.epochs)
