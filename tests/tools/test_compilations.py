"""Registers, spills and local memory of every kernel on every architecture, as three versions of
NVRTC compile them.
"""

import re
import sys

import pytest

import compilations
import needs
from emulated import KERNELS
from ladder.errors import UserError
from ladder.executors.cuda import nvrtc
from ladder.rungs.launches import Launch
from ladder.sources import ROOT
from table import with_table

RECORD = compilations.read()
AGAIN = "run: python benchmarks/compilations.py, by each NVRTC of the record"


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A function that makes a ladder of one rung with these launches, on one architecture, by
    compilers 9.0 and 10.0.
    """

    def make(*launches):
        monkeypatch.setattr(
            compilations,
            "builds",
            lambda: {
                compilations.named(launch): {"gpu_basic": {launch: None}} for launch in launches
            },
        )
        compilations.digest.cache_clear()

    monkeypatch.setattr(compilations, "RECORD", tmp_path / "compilations.json")
    monkeypatch.setattr(compilations, "documented_rungs", lambda: ["gpu_basic"])
    monkeypatch.setattr(compilations, "ARCHITECTURES", {"sm_90": "H100, H200"})
    monkeypatch.setattr(compilations, "COMPILERS", {"9.0": "old", "10.0": "new"})
    yield make
    compilations.digest.cache_clear()


def test_every_kernel_was_compiled():
    assert {build.split()[0] for build in RECORD["rows"]} == {
        path.relative_to(KERNELS).as_posix() for path in KERNELS.glob("*/*.cu")
    }, AGAIN


def test_only_kernels_with_a_reason_spill_registers_or_have_local_memory():
    local = compilations.local(RECORD)
    assert [kernel for kernel in local if not compilations.why(kernel)] == []
    assert all(any(part in f"{kernel} " for kernel in local) for part in compilations.REASONS), (
        "a reason for nothing"
    )


def test_every_kernel_stores_a_result_and_every_gpu_accepts_its_launches():
    assert [
        (build, word)
        for build, row in RECORD["rows"].items()
        for word in ("idle", "refused")
        if word in row
    ] == []


def test_the_record_is_of_todays_kernels_and_plans_and_the_tables_are_the_records():
    """One test, since each needs all plans of all rungs."""
    assert compilations.outdated(RECORD) == [], AGAIN
    page = compilations.PAGE.read_text("utf-8")
    assert with_table(page, compilations.tables(RECORD), compilations.BEGIN) == page, AGAIN


def test_the_record_is_of_the_compilers_that_are_pinned():
    pins = {
        name: re.search(
            r"^nvidia-cuda-nvrtc(?:-cu12)?==(\d+\.\d+)",
            (ROOT / f"envs/{name}.txt").read_text(),
            re.M,
        )[1]
        for name in ("gpu", "kernels", "nvrtc13")
    }
    assert set(pins.values()) <= set(compilations.COMPILERS)


def compiled(**local):
    """What NVRTC makes of a file with kernels `one`, which has this local memory, and `two`, which
    stores nothing.
    """
    kernels = {
        "one": nvrtc.Resources(255, static_shared_bytes=0, most_threads=256, **local),
        "two": nvrtc.Resources(40, 0, 0, 0, 256),
    }
    return nvrtc.Compiled("sm_90", b"", ".entry one( st.global ) .entry two( )", kernels)


def test_a_spill_is_named_in_the_record_and_in_the_tables(small, monkeypatch):
    launch = Launch(
        "gpu_basic/relu.cu", "two", (1,), (512,), (), defines=("WIDE=1", f"TABLE={'1' * 100}")
    )
    small(launch)
    (build,) = compilations.builds()
    assert build.startswith("gpu_basic/relu.cu WIDE=1 TABLE=#")
    monkeypatch.setattr(nvrtc, "architectures", lambda: ["sm_80", "sm_90"])
    for compiler, local in (
        ("9.0", {"spill_bytes": 24, "stack_bytes": 16}),
        ("10.0", {"spill_bytes": 0, "stack_bytes": 0}),
    ):
        monkeypatch.setattr(nvrtc, "compile_file", lambda *_, local=local: compiled(**local))
        compilations.update(compilations.read(), compiler, "sm_90")
    record = compilations.read()
    row = record["rows"][build]
    assert row["registers"] == {"9.0 sm_90": 255, "10.0 sm_90": 255} and row["kernels"] == 2
    assert row["local"] == {"one": {"9.0 sm_90": 24}} and row["idle"] == [
        "two, 9.0 sm_90",
        "two, 10.0 sm_90",
    ]
    assert row["refused"] == [
        f"two, {compiler} sm_90: a block of (512, 1, 1) where 256 threads are allowed"
        for compiler in ("10.0", "9.0")
    ]
    text = compilations.tables(record)
    assert "| gpu_basic | 1 | 2 | 255 | 255 |" in text and "| sm_90 | H100, H200 | 24 | 0 |" in text
    assert f"- not explained: {build.replace(' ', ' one ', 1)}" in text


@needs.NVRTC
def test_only_what_changed_is_compiled_again(small, capsys, monkeypatch):
    def builds(compiler):
        compilations.update(compilations.read(), compiler, "sm_90")
        return capsys.readouterr().out

    relu = Launch("gpu_basic/relu.cu", "relu_forward", (1,), (256,), ())
    small(relu)
    assert (
        builds("9.0") == "NVRTC 9.0, sm_90: 1 builds\n"
        and builds("9.0") == "NVRTC 9.0, sm_90: 0 builds\n"
    )
    assert builds("10.0") == "NVRTC 10.0, sm_90: 1 builds\n"
    small(relu, Launch("gpu_basic/add.cu", "add_forward", (1,), (256,), ()))  # another build
    assert compilations.outdated(compilations.read()) == ["gpu_basic/add.cu"]
    assert (
        builds("9.0") == "NVRTC 9.0, sm_90: 1 builds\n"
        and builds("10.0") == "NVRTC 10.0, sm_90: 1 builds\n"
    )
    assert compilations.outdated(compilations.read()) == []
    # another launch, and a build that is gone
    small(Launch("gpu_basic/relu.cu", "relu_forward", (2,), (256,), ()))
    assert compilations.outdated(compilations.read()) == ["gpu_basic/relu.cu"]
    assert builds("9.0") == "NVRTC 9.0, sm_90: 1 builds\n" and list(
        compilations.read()["rows"]
    ) == ["gpu_basic/relu.cu"]
    assert compilations.outdated(compilations.read()) == ["gpu_basic/relu.cu"], (
        "10.0 has not compiled it as it is"
    )
    assert (
        builds("10.0") == "NVRTC 10.0, sm_90: 1 builds\n"
        and compilations.outdated(compilations.read()) == []
    )
    text = compilations.step_kernels.text
    # another text
    monkeypatch.setattr(compilations.step_kernels, "text", lambda source: text(source) + " ")
    compilations.digest.cache_clear()
    assert compilations.outdated(compilations.read()) == ["gpu_basic/relu.cu"]


def test_a_compiler_that_the_record_is_not_of_is_refused_in_one_line(small):
    with pytest.raises(
        UserError,
        match=r"^this is NVRTC 11\.0; the record is of 9\.0, 10\.0: COMPILERS in benchmarks/comp",
    ):
        compilations.update(compilations.read(), "11.0", "sm_90")


def test_what_is_outdated_ends_the_check(monkeypatch):
    monkeypatch.setattr(compilations, "outdated", lambda record: ["gpu_basic/relu.cu"])
    monkeypatch.setattr(sys, "argv", ["compilations.py", "--check"])
    with pytest.raises(
        SystemExit,
        match=r"^gpu_basic/relu.cu changed since it was compiled; run: .*, once by each NVRTC",
    ):
        compilations.main()
