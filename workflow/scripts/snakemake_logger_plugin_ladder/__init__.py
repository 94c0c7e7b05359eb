"""`snakemake --logger ladder`: a line for each stage that is made, with its seconds and what it has
reached.

Snakemake finds the plugin by the name of this folder. Warnings and errors stay; what a failed stage
has said is repeated at the end by the workflow, so Snakemake's own words about a failed job are in
its log alone.
"""

import json
import logging
import pathlib
import sys

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from ladder.errors import one_line
from ladder.progress import duration
from ladder.workflow import commands
from ladder.workflow.stages import STAGES

RULES = {stage.rule for stage in STAGES.values()}


def _accuracy(metrics):
    return f"{100 * metrics['accuracy']:.2f} % correct"


def _dimensions(metrics):
    return f"{metrics['dimensions']:,} numbers of each image"


def _few_labels(metrics):
    draws = metrics["scores"][-1]
    return f"{100 * sum(draw['accuracy'] for draw in draws) / len(draws):.2f} % correct with {metrics['counts'][-1]:,} labels"


# Stage -> its key number, from its metrics.
REACHED = {
    "data": lambda metrics: (
        f"{metrics['train']:,} training images, {metrics['test']:,} to be scored on"
    ),
    "initial": lambda metrics: f"{metrics['parameters']:,} parameters",
    "train": lambda metrics: f"loss {metrics['loss'][-1]:.5g}",
    "features": _dimensions,
    "joined": _dimensions,
    "shifted": _dimensions,
    "labels": _few_labels,
    **dict.fromkeys(("evaluate", "svm", "linear", "ridge", "knn"), _accuracy),
}


class LogHandler(LogHandlerBase):
    """Writes to stderr. Snakemake calls `emit` in one thread of its own, and `close` at the end."""

    writes_to_stream, writes_to_file, has_filter, has_formatter, needs_rulegraph = (
        True,
        False,
        True,
        False,
        False,
    )

    def __post_init__(self):
        self._done, self._many, self._jobs, self._failed, self._withheld = 0, 0, {}, "", ""

    def emit(self, record):
        event = getattr(record, "event", None)
        if event == LogEvent.RUN_INFO:
            self._many = sum(record.stats.get(rule, 0) for rule in RULES)
        elif event == LogEvent.JOB_INFO:
            self._jobs[record.jobid] = record
            _, is_damaged, file = (record.rule_msg or "").partition(": damaged: ")
            if is_damaged:
                print(f"damaged, and made again: {file}", file=sys.stderr, flush=True)
        elif event == LogEvent.JOB_FINISHED:
            self._finished(self._jobs[record.job_id])
        elif event == LogEvent.JOB_ERROR:
            self._failed = record.rule_name
        elif record.levelno >= logging.WARNING and not self._failed:
            # perhaps of a job that has failed, which is told next
            if getattr(record, "exception", "") == "RuleException":
                self._withheld = self.format(record)
            else:
                print(self.format(record), file=sys.stderr, flush=True)

    def close(self):
        if self._failed:
            commands.name_if_silent(self._failed)
        elif self._withheld:
            print(self._withheld, file=sys.stderr, flush=True)
        self._withheld = ""
        super().close()

    def _finished(self, job):
        if job.rule_name not in RULES:
            return
        self._done += 1
        print(
            line(self._done, self._many, job.rule_msg.split()[0], pathlib.Path(job.output[0])),
            file=sys.stderr,
            flush=True,
        )


def line(done, many, role, path):
    """'[ 5 of 16] train   20 s  loss 0.067806' from the manifest at `path`."""
    manifest = json.loads(path.read_text("utf-8"))
    reached = REACHED.get(manifest["spec"]["stage"], lambda metrics: "")
    said = (
        f"failed: {one_line(manifest['failed'])}"
        if "failed" in manifest
        else reached(manifest["metrics"])
    )
    return f"[{done:>{len(str(many))}} of {many}] {role:<16} {duration(manifest['seconds']):>10}  {said}".rstrip()
