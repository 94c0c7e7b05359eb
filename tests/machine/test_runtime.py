"""Tests for runtime.py: the threads of BLAS."""

import subprocess
import sys

import numpy as np
import pytest
import threadpoolctl

from ladder.machine import runtime
from ladder.sources import SCRIPTS


def blas_threads():
    return {
        pool["filepath"]: pool["num_threads"]
        for pool in threadpoolctl.threadpool_info()
        if pool["user_api"] == "blas"
    }


@pytest.mark.parametrize("before", [1, 2])
def test_blas_has_one_thread_within_the_context_and_as_many_as_before_behind_it(before):
    with threadpoolctl.threadpool_limits(before):
        with runtime.one_blas_thread():
            assert set(blas_threads().values()) == {1}
            np.ones((8, 8)) @ np.ones((8, 8))
        assert set(blas_threads().values()) == {before}


def test_a_library_is_found_once_its_module_is_imported(monkeypatch):
    before = runtime.thread_pools()
    assert runtime.thread_pools() is before
    monkeypatch.setitem(sys.modules, "a_module_with_a_library", None)
    assert runtime.thread_pools() is not before


def test_blas_that_is_loaded_after_the_threads_are_set_has_one_too():
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from ladder.machine import runtime; runtime.set_threads(2)\n"
        "import scipy.linalg, threadpoolctl\n"
        "print({pool['num_threads'] for pool in threadpoolctl.threadpool_info()})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(SCRIPTS)],
        capture_output=True,
        text=True,
        env={"OMP_NUM_THREADS": "2", "PATH": ""},
    )
    assert done.stdout == "{1}\n", done.stderr
