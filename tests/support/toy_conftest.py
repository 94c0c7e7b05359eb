"""The conftest.py of projects that tests of mutate_kernels.py make: --short leaves out
*_at_night.
"""


def pytest_addoption(parser):
    parser.addoption("--short", action="store_true")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--short"):
        items[:] = [item for item in items if not item.name.endswith("_at_night")]
