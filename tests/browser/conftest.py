"""One browser for all tests of a worker."""

import pytest

import browser


@pytest.fixture(scope="session")
def chromium():
    chromium = browser.Browser(browser.find())
    yield chromium
    chromium.close()
