"""Registers, spills and local memory of every kernel on every architecture, as two versions of NVRTC compile them."""

import sys

import pytest

from emulated import KERNELS
from ladder.executors.cuda import nvrtc
from ladder.rungs.patterns import Launch
from ladder.sources import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import compilations  # noqa: E402
from table import with_table  # noqa: E402

RECORD = compilations.read()
AGAIN = "run: python benchmarks/compilations.py, by each NVRTC of the record"


@pytest.fixture
def small(monkeypatch):
    """monkeypatch, after a ladder of one rung was made of it, on one architecture."""
    monkeypatch.setattr(compilations, "documented_rungs", lambda: ["gpu_basic"])
    monkeypatch.setattr(compilations, "ARCHITECTURES", {"sm_90": "H100, H200"})
    monkeypatch.setattr(compilations, "digest", lambda rung: f"of {rung}")
    return monkeypatch


def test_every_kernel_was_compiled():
    assert set(RECORD["sources"]) == {path.relative_to(KERNELS).as_posix() for path in KERNELS.glob("*/*.cu")}, AGAIN


def test_only_kernels_with_a_reason_spill_registers_or_have_local_memory():
    local = {kernel for row in RECORD["rows"].values() for kernel in row["local"]}
    assert [kernel for kernel in local if not compilations.reason(kernel)] == []
    assert all(row["spill_bytes"] == row["stack_bytes"] == 0 for row in RECORD["rows"].values() if not row["local"])
    assert all(any(part in f"{kernel} " for kernel in local) for part in compilations.REASONS), "a reason for nothing"


def test_every_kernel_stores_a_result_and_every_gpu_accepts_its_launches():
    assert [name for row in RECORD["rows"].values() for name in (*row["idle"], *row["refused"])] == []


def test_the_record_is_of_todays_kernels_and_plans_on_every_architecture_by_two_compilers():
    assert compilations.outdated(RECORD) == [] and len(compilations.versions(RECORD)) == 2, AGAIN


def test_the_table_is_the_records():
    page = compilations.PAGE.read_text("utf-8")
    assert with_table(page, compilations.table(RECORD), compilations.BEGIN) == page, AGAIN


def test_a_spill_is_named_in_the_record_and_in_the_table(small):
    kernels = {"one": nvrtc.Resources(255, 24, 16, 0, 256), "two": nvrtc.Resources(40, 0, 0, 0, 256)}
    ptx = ".entry one( st.global ) .entry two( )"
    compiled = {("a.cu", ("WIDE=1",)): nvrtc.Compiled("sm_90", b"", ptx, kernels)}
    launch = Launch("a.cu", "two", (1,), (512,), (), defines=("WIDE=1",))
    small.setattr(compilations, "launches", lambda rung: {launch: None})
    row = compilations.row_of("gpu_basic", compiled, "sm_90")
    assert row == {"digest": "of gpu_basic", "builds": 1, "kernels": 2, "registers": 255, "spill_bytes": 24, "stack_bytes": 16,
                   "local": ["a.cu one WIDE=1"], "idle": ["a.cu two WIDE=1"],
                   "refused": ["a.cu two WIDE=1: a block of (512, 1, 1) where 256 threads are allowed"]}
    rows = {"12.9 sm_90 gpu_basic": row, "13.0 sm_90 gpu_basic": row | {"registers": 254, "spill_bytes": 0, "local": []}}
    text = compilations.table({"rows": rows})
    assert "| gpu_basic | 1 | 2 | 255 (16 bytes local), 254 |" in text
    assert "- a.cu one WIDE=1: 12.9 sm_90; not explained" in text and "No kernel has" not in text


@pytest.mark.skipif(not nvrtc.installed(), reason="NVRTC is not installed (envs/kernels.txt)")
def test_only_what_changed_is_compiled_again(small, tmp_path, capsys):
    small.setattr(compilations, "RECORD", tmp_path / "compilations.json")
    launch = Launch("gpu_basic/relu.cu", "relu_forward", (1,), (256,), ())
    small.setattr(compilations, "launches", lambda rung: {launch: None})
    gone = {"9.0 sm_90 gpu_gone": {}, "9.0 sm_30 gpu_basic": {}}
    for version, builds in (("9.0", 1), ("9.0", 0), ("10.0", 1), ("10.1", 1)):
        record = compilations.read()
        record["rows"] |= gone
        compilations.update(record, version)
        assert f"NVRTC {version}, sm_90: {builds} builds" in capsys.readouterr().out
    record = compilations.read()
    assert list(record["rows"]) == ["9.0 sm_90 gpu_basic", "10.1 sm_90 gpu_basic"]
    assert record["sources"] == ["gpu_basic/relu.cu"]
    assert record["rows"]["9.0 sm_90 gpu_basic"]["kernels"] == 2 and compilations.outdated(record) == []
    small.setattr(compilations, "digest", lambda rung: "another")
    assert compilations.outdated(record) == ["gpu_basic"]


def test_what_is_outdated_ends_the_check(monkeypatch):
    monkeypatch.setattr(compilations, "outdated", lambda record: ["gpu_basic"])
    monkeypatch.setattr(sys, "argv", ["compilations.py", "--check"])
    with pytest.raises(SystemExit, match=r"^gpu_basic changed since it was compiled; run: .*, once by each NVRTC"):
        compilations.main()
