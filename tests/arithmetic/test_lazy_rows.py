"""Rows that are computed where they are read are the rows, and what was read does not stay in
memory.
"""

import numpy as np
import psutil
import pytest

from ladder.arithmetic.lazy_rows import Centered, Joined

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


def test_what_was_read_of_a_file_does_not_stay_in_memory(tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((2**11, 2**13), np.float32))  # 64 MB
    rows, process = np.load(tmp_path / "rows.npy", mmap_mode="r"), psutil.Process()
    for lazy in (Joined([(1, rows)]), Centered(rows, np.ones(rows.shape[1], np.float32))):
        before = process.memory_info().rss
        for start in range(0, len(rows), 64):
            assert lazy[start : start + 64].shape == (64, 2**13)
        assert process.memory_info().rss - before < 2**25
