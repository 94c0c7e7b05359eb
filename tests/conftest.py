"""One browser for all tests of a worker, which tests the short run has, and how long each group of
tests took.

Where NO_SKIPS is set, a skipped test fails the run.
"""

import collections
import gc
import os
import pathlib
import shutil
import tempfile

# Threads of BLAS that wait for work would take time from other tests. Before NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest

import browser
import one_compiler
import short

# a file system on Linux; files in it are made ten times as fast as on a disk
MEMORY = pathlib.Path("/dev/shm")
ENOUGH = 4 << 30


@pytest.fixture(scope="session")
def chromium():
    chromium = browser.Browser(browser.find())
    yield chromium
    chromium.close()


def pytest_configure():
    if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ENOUGH:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
    if "PYTEST_XDIST_WORKER" in os.environ:
        one_compiler.install()


def pytest_addoption(parser):
    parser.addoption(
        "--short",
        action="store_true",
        help="leave out what short.py leaves to the night, as `make test` does",
    )


def pytest_collection_modifyitems(config, items):
    if config.getoption("--short"):
        chosen = short.chosen([item.nodeid for item in items])
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
        items[:] = sorted(
            (item for item in items if item.nodeid in chosen),
            key=lambda item: short.place(item.nodeid),
        )


def pytest_collection_finish():
    gc.freeze()  # or every garbage collection would look through all modules and tests
    gc.set_threshold(20_000, 20, 50)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    """The seconds of each folder of tests, setups included, added up over the workers."""
    seconds = collections.Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds["/".join(report.nodeid.split("::")[0].split("/")[:2])] += report.duration
    if len(seconds) > 1:
        terminalreporter.write_line(
            "seconds: " + ", ".join(f"{name} {spent:.0f}" for name, spent in seconds.most_common())
        )


def pytest_sessionfinish(session):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("NO_SKIPS") and reporter and reporter.stats.get("skipped"):
        reporter.write_line("tests were skipped, which NO_SKIPS forbids", red=True)
        session.exitstatus = 1
