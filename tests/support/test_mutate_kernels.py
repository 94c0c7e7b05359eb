"""The mutation script kills what a test notices and reports what none does."""

import re
import shutil

import pytest

import cuda_emulator
import mutant_fates
import mutant_schemata
import mutate_kernels
import needs
from ladder.sources import ROOT

KERNEL = """
extern "C" __global__ void scale(const float* x, float* y, int count) {
    int i = threadIdx.x;
    if (i < count) y[i] = 2.0f * x[i];   // a b + c
    if (count > 9) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}
"""
TEST = """
import numpy as np
from cuda_emulator import check
from emulated import KERNELS, load

def test_scale():
    x, y = np.arange(4, dtype=np.float32), np.full(4, np.nan, np.float32)
    check(load(KERNELS / "toy" / "scale.cu").get_function("scale"), (1,), (6,), (x, y, np.int32(4)))
    assert y.tolist() == [0, 2, 4, 6]
"""


@pytest.fixture
def toy(tmp_path):
    """A project with one kernel, whose last line no test reaches."""
    for folder in (
        "kernels/toy",
        "kernels/common",
        "workflow/scripts",
        "tests/kernels",
        "tests/support",
        "benchmarks",
    ):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copytree(ROOT / "emulator/src", tmp_path / "emulator/src")
    for name in ("emulated.py", "emulated.h"):
        shutil.copy(ROOT / "tests/support" / name, tmp_path / "tests/support")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "kernels/toy/scale.cu").write_text(KERNEL)
    (tmp_path / "tests/kernels/test_toy.py").write_text(TEST)
    (tmp_path / "tests/support/equivalent_mutants.toml").write_text(
        '[[mutant]]\nfile = "toy/scale.cu"\nline = "if (count > 9) y[i] = x[i] <= 0.0f ? 0.0f : x[i];"\nwhy = "zero is zero"\n'
    )
    return tmp_path


@needs.COMPILER
def test_a_planted_survivor_is_found_and_the_others_are_killed(toy, capsys):
    mutate_kernels.main(["toy", "scale.cu"], toy)
    assert capsys.readouterr().out.splitlines() == [
        "survived: toy/scale.cu:5: if (count >= 9) y[i] = x[i] < 0.0f ? 0.0f : x[i];",
        "toy: 3 of 4 mutants killed (75.0%); 1 more compute the same, 0 do not compile",
    ]


@needs.COMPILER
def test_the_tests_asked_for_alone_judge(toy, capsys):
    test = toy / "tests/kernels/test_toy.py"
    ends = TEST.replace("test_scale", "test_ends").replace(
        "    assert y.tolist() == [0, 2, 4, 6]\n", ""
    )
    test.write_text(TEST + ends)
    mutate_kernels.main(["toy", "-k", "ends"], toy)
    found = capsys.readouterr().out
    # no bound, but the result
    assert "survived: toy/scale.cu:4: if (i < count) y[i] = 2.0f + x[i];   // a b + c" in found
    assert "killed (50.0%)" in found


@needs.COMPILER
def test_what_the_short_run_misses_is_judged_by_all_and_said(toy, capsys):
    test = toy / "tests/kernels/test_toy.py"
    ends = TEST.replace("test_scale", "test_ends").replace(
        "    assert y.tolist() == [0, 2, 4, 6]\n", ""
    )
    test.write_text(TEST.replace("test_scale", "test_scale_at_night") + ends)
    shutil.copy(ROOT / "tests/support/toy_conftest.py", toy / "tests/conftest.py")
    mutate_kernels.main(["toy", "--short"], toy)
    assert capsys.readouterr().out.splitlines() == [
        "killed by all: toy/scale.cu:4: if (i < count) y[i] = 2.0f + x[i];   // a b + c",
        "survived: toy/scale.cu:5: if (count >= 9) y[i] = x[i] < 0.0f ? 0.0f : x[i];",
        "toy: 2 of 4 mutants killed (50.0%); 1 more compute the same, 0 do not compile",
    ]


# A mutant in a constant expression, an undefined name, an endless loop and a branch that no test
# reaches.
ALL_FATES = """
template <int by>
__device__ int multiple(int i) {
    return by * i;
}
extern "C" __global__ void scale(const float* x, float* y, int channels) {
    for (int i = multiple<0>(7); i < channels; i += 1) y[i] = 2.0f * x[i];
    if (channels > 9) y[1] = 3.0f;
}
"""


@needs.COMPILER
def test_the_fates_are_those_of_mutants_compiled_one_by_one(toy, capsys):
    (toy / "kernels/toy/scale.cu").write_text(ALL_FATES)
    (toy / "tests/kernels/test_toy.py").write_text(TEST.replace("(6,)", "(1,)"))
    said = []
    for options in ((), ("--one-by-one",)):
        mutate_kernels.main(["toy", "scale.cu", *options], toy)
        said.append(sorted(capsys.readouterr().out.splitlines()))
    assert (
        said[0]
        == said[1]
        == [
            "survived: toy/scale.cu:8: if (channels > 9) y[2] = 3.0f;",
            "survived: toy/scale.cu:8: if (channels >= 9) y[1] = 3.0f;",
            "toy: 7 of 9 mutants killed (77.8%); 0 more compute the same, 2 do not compile",
        ]
    )


@needs.COMPILER
def test_tests_that_fail_without_a_mutation_are_said(toy):
    (toy / "tests/kernels/test_toy.py").write_text("def test(): assert 0")
    with pytest.raises(SystemExit, match="fail on the kernels as they are"):
        mutate_kernels.main(["toy"], toy)


@needs.COMPILER
def test_a_mutant_that_does_not_compile_is_left_out_of_what_is_loaded_then(toy, monkeypatch):
    """Also where the emulator does not look whether files have changed, as in the tests."""
    monkeypatch.setattr(cuda_emulator, "isolated", False)
    folder, names = toy / "kernels", toy / "tests/support/emulated.h"
    names.write_text(names.read_text() + mutant_schemata.HEADER)
    file = folder / "toy/scale.cu"
    file.write_text(f"{KERNEL}// {toy}: in no cache")
    at = KERNEL.index("2.0f"), KERNEL.index("2.0f") + len("2.0f")
    kernels = mutant_fates.Kernels(
        cuda_emulator,
        folder,
        {1: ("toy/scale.cu", *at, "nosuch"), 2: ("toy/scale.cu", *at, "3.0f")},
    )
    kernels.write_schemata()
    with pytest.raises(cuda_emulator.CompileError) as failed:
        cuda_emulator.load(file, (), (folder, names)).plain  # noqa: B018 (compiles)
    assert kernels.leave_out(str(failed.value)) and kernels.wrong == {1}
    cuda_emulator.load(file, (), (folder, names)).plain  # noqa: B018


def test_comments_signatures_and_what_gcc_does_not_see_are_left_alone(tmp_path):
    (tmp_path / "k.cuh").write_text(
        "int a = 1 + 1;\nvoid f(int a = 1) {\n    a = a / a; // 1 + 1\n#ifndef CUDA_EMULATOR\n"
        "#if A\n#endif\n    a = a - a;\n#endif\n    __syncthreads();\n}\nint b = 1 + 1;\n"
    )
    assert [
        (mutant.number, mutant.line) for mutant in mutate_kernels.mutants(tmp_path, "k.cuh")
    ] == [(3, "a = a * a; // 1 + 1"), (9, "")]


def test_functions_of_one_line_and_const_ones_are_mutated(tmp_path):
    (tmp_path / "k.cuh").write_text(
        "struct S {\n    int a(int i = 3 + 4) const { return i + 4; }\n    int b = 3 + 4;\n"
        "    int c() const {\n        return 3 + 4;\n    }\n};\nint d() { return 3 + 4; }\n"
    )
    assert [mutant.line for mutant in mutate_kernels.mutants(tmp_path, "k.cuh")] == [
        "int a(int i = 3 + 4) const { return i - 4; }",
        "return 3 - 4;",
        "int d() { return 3 - 4; }",
    ]


def test_a_rungs_files_are_its_own_and_the_headers_that_they_include():
    files = mutate_kernels.files_of(ROOT / "kernels", "gpu_opt_v1")
    assert "gpu_opt_v1/conv2d_forward.cu" in files and "common/gemm_tile.cuh" in files
    assert not any(file.startswith("gpu_basic/") for file in files)
    launched = mutate_kernels.files_of(ROOT / "kernels", "gpu_gemm")
    assert set(launched) < set(files) and "gpu_opt_v1/conv2d_forward.cu" in launched


def test_lessons_are_judged_by_the_tests_that_they_share():
    operations = "tests/operations/test_operations.py"
    assert mutate_kernels.tests_of(ROOT, "gpu_shared") == [
        "tests/rungs/test_lessons.py",
        operations,
    ]
    assert (ROOT / "tests/rungs/test_lessons.py").is_file()
    assert mutate_kernels.tests_of(ROOT, "gpu_opt_v1") == [
        "tests/kernels/test_gpu_opt_v1.py",
        operations,
    ]


def test_of_the_operations_of_all_back_ends_those_of_the_rung_judge():
    (operations,) = re.findall(
        r"def (test_\w+)", (ROOT / "tests/operations/test_operations.py").read_text()
    )
    assert mutate_kernels.chosen("gpu_basic", "") == f"(not {operations} or gpu_basic)"
    assert (
        mutate_kernels.chosen("gpu_basic", "relu") == f"(relu) and (not {operations} or gpu_basic)"
    )


def test_every_explained_mutant_is_still_one():
    made = {
        (mutant.file, mutant.line)
        for file, _ in mutate_kernels.equivalent(ROOT)
        for mutant in mutate_kernels.mutants(ROOT / "kernels", file)
    }
    assert mutate_kernels.equivalent(ROOT) <= made


def test_a_mutant_may_be_explained_for_one_rung_alone(tmp_path):
    (tmp_path / "tests/support").mkdir(parents=True)
    (tmp_path / "tests/support/equivalent_mutants.toml").write_text(
        '[[mutant]]\nfile = "a"\nline = "x"\nwhy = "w"\n[[mutant]]\nrung = "one"\nfile = "b"\nline = "y"\nwhy = "w"\n'
    )
    assert (
        mutate_kernels.equivalent(tmp_path, "one")
        == mutate_kernels.equivalent(tmp_path)
        == {("a", "x"), ("b", "y")}
    )
    assert mutate_kernels.equivalent(tmp_path, "two") == {("a", "x")}
