"""Rows that are computed where they are read are the rows, and what was read does not stay in
memory.
"""

import subprocess
import sys

import numpy as np
import pytest

from ladder.arithmetic.lazy_rows import Centered, Joined
from ladder.sources import ROOT

RANDOM = np.random.default_rng(0)
ONE, OTHER = (RANDOM.normal(size=(9, width)).astype(np.float32) for width in (3, 2))


@pytest.mark.parametrize("rows", [slice(2, 5), np.array([1, 8, 3])], ids=["slice", "indices"])
def test_joined_and_centred_rows(rows):
    whole = np.hstack([ONE, np.float32(0.3) * OTHER])
    joined = Joined([(1, ONE), (0.3, OTHER)])
    centred = Centered(joined, whole.mean(axis=0))
    for lazy, wanted in ((joined, whole), (centred, whole - whole.mean(axis=0))):
        assert np.array_equal(lazy[rows], wanted[rows]) and np.array_equal(np.asarray(lazy), wanted)
        assert (len(lazy), lazy.shape, lazy.nbytes) == (9, (9, 5), whole.nbytes)


def test_reading_all_of_a_file_in_blocks_takes_the_memory_of_a_block(tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((2**11, 2**13), np.float32))  # 64 MB
    program = """
import resource, sys
import numpy as np
from ladder.arithmetic.lazy_rows import Centered, Joined
from ladder.sources import ROOT
rows = np.load(sys.argv[1], mmap_mode="r")
lazy = Centered(Joined([(1, rows)]), np.ones(rows.shape[1], np.float32))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert not any(lazy[start : start + 64].any() for start in range(0, len(rows), 64))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "rows.npy")]
    found = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=ROOT / "workflow/scripts"
    ).stdout
    assert int(found) * (1 if sys.platform == "darwin" else 1024) < 2**25
