"""Synthetic runs that several sections are tested with."""

import pytest

import synthetic_run


@pytest.fixture(scope="package")
def digits(tmp_path_factory):
    return synthetic_run.make(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="package")
def lenet(tmp_path_factory):
    """A network that classifies, without an SVM."""
    return synthetic_run.make(
        tmp_path_factory.mktemp("lenet"), "mnist", network="lenet_5", epochs=3
    )
