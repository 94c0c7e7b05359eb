"""Where NO_SKIPS is set (.ci/run sets it), a skipped test fails the run."""

import os


def pytest_sessionfinish(session):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("NO_SKIPS") and reporter and reporter.stats.get("skipped"):
        reporter.write_line("tests were skipped, which NO_SKIPS forbids", red=True)
        session.exitstatus = 1
