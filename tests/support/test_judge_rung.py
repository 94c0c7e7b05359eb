"""A rung that `make rung` starts is right as it is, and `make check` names what is planted in
it.
"""

import re
import shutil

import pytest

import needs
import processes
from ladder.sources import ROOT

pytestmark = needs.COMPILER

# One small network, whose update takes a second; the programs take all.
JUDGE = (
    "import sys; sys.path.insert(0, 'tests/support'); import judge_rung, zoo; "
    "zoo.NETWORKS = {'forked': zoo.FORKED}; sys.argv[1:] = ['mine']; judge_rung.main()"
)
BODY = "if (i < count) y[i] = x[i] < 0.0f ? 0.0f : x[i];"
FAULTS = {
    "does not compile": BODY.replace("x[i];", "x[j];"),
    "out of bounds": BODY.replace("<", "<=", 1),
    "race": "__shared__ float of[256]; of[threadIdx.x] = 0.0f; "
    + BODY.replace(": x[i]", ": x[i] + of[threadIdx.x ^ 1]"),
    "wrong tensor": BODY.replace("0.0f :", "0.01f :"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of what a rung needs, with the rung "mine", gpu_basic with relu.cu of its own."""
    folder = tmp_path_factory.mktemp("project")
    for part in (
        "kernels",
        "workflow/scripts",
        "tests/support",
        "emulator/src",
        "benchmarks",
    ):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / part, folder / part)
    before = files(folder)
    made = start(folder, "mine", "gpu_basic", "relu.cu")
    assert (
        made.returncode != 0
        and made.stderr
        == ("KERNEL='relu.cu': gpu_basic runs no such file; the nearest is gpu_basic/relu.cu\n")
        and files(folder) == before
    )
    made = start(folder, "mine", "gpu_basic", "gpu_basic/relu.cu")
    assert made.returncode == 0, made.stderr
    assert files(folder) - before == {
        "kernels/mine/relu.cu",
        "kernels/mine/rung.toml",
        "workflow/scripts/ladder/rungs/mine.py",
    }
    return folder


def start(folder, *arguments):
    return run(folder, "tests/support/new_rung.py", *arguments)


def run(folder, *arguments):
    return processes.python(*arguments, cwd=folder)


def files(folder):
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def test_a_new_rung_is_right_and_has_its_kernel(project):
    judged = run(project, "-c", JUDGE)
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert re.findall(r"^mine: ([\w ]+): ", judged.stdout, re.M) == [
        "compiles",
        "runs",
        "trains",
        "as fast by counts",
    ]
    assert re.search(
        r"^mine: as fast by counts: ([\d-]+) us .* 1.00 times as fast as gpu_basic, \1 us$",
        judged.stdout,
        re.M,
    )
    # relu in both directions
    assert "runs: 2 kernels of its own in 1 network and 3 orders" in judged.stdout


@pytest.mark.parametrize("kind", FAULTS)
def test_a_planted_fault_is_named_in_the_last_line(project, kind):
    kernel = project / "kernels/mine/relu.cu"
    right = kernel.read_text()
    assert right.count(BODY) == 1
    try:
        kernel.write_text(right.replace(BODY, FAULTS[kind]))
        judged = run(project, "-c", JUDGE)
    finally:
        kernel.write_text(right)
    last = judged.stdout.splitlines()[-1]
    assert judged.returncode == 1 and judged.stderr == "" and last.startswith(f"mine: {kind}: "), (
        judged.stdout + judged.stderr
    )
    assert len(last) < 300 and (
        "relu" in last or re.search(r"deviates from the cpu rung's by \d\.\de", last)
    ), last


def test_an_error_of_the_rungs_module_is_one_line_with_its_place(project):
    module = project / "workflow/scripts/ladder/rungs/mine.py"
    right = module.read_text()
    try:
        module.write_text(right.replace("RUNG = ", "RUNG = another."))
        judged = run(project, "-c", JUDGE)
    finally:
        module.write_text(right)
    assert judged.returncode == 1 and judged.stderr == ""
    assert re.fullmatch(
        r"mine: its module fails: mine\.py:\d+: NameError: name 'another' is not.*\n",
        judged.stdout,
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ("Mine", "gpu_basic"),
            "NAME='Mine': a name has lower-case letters, digits and _, such as mine",
        ),
        (
            ("common", "gpu_basic"),
            "NAME=common: there is a rung, a folder below kernels/ or a module of that name already",
        ),
        (
            ("other", "gpu_bassic"),
            "FROM='gpu_bassic' is no rung for a GPU; the nearest is gpu_basic",
        ),
    ],
)
def test_a_rung_that_cannot_be_started_is_refused_in_one_line(project, arguments, message):
    before = files(project)
    refused = start(project, *arguments)
    assert (refused.returncode, refused.stderr, files(project)) == (1, f"{message}\n", before)


def test_without_a_kernel_the_busiest_is_copied_with_the_headers_beside_it(project):
    before = files(project)
    assert start(project, "copied", "gpu_shared").returncode == 0
    made = files(project) - before
    assert made == {
        *(f"kernels/copied/{name}" for name in ("conv2d.cu", "tile.cuh", "rung.toml")),
        "workflow/scripts/ladder/rungs/copied.py",
    }
    for name in made:
        (project / name).unlink()


def test_a_header_is_copied_with_the_kernel_that_includes_it_and_what_is_between(project):
    before = files(project)
    assert start(project, "of_header", "gpu_opt_v1", "common/gemm_loop.cuh").returncode == 0
    made = files(project) - before
    names = "conv2d_weight_grad.cu", "conv2d_gemm.cuh", "gemm_tile.cuh", "gemm_loop.cuh"
    assert {f"kernels/of_header/{name}" for name in names} < made
    assert "kernels/of_header/packed.cuh" not in made
    included = (project / "kernels/of_header/gemm_tile.cuh").read_text()
    assert '#include "of_header/gemm_loop.cuh"' in included
    for name in made:
        (project / name).unlink()


def test_a_rung_that_is_not_there_is_refused_with_those_that_are(project):
    refused = run(project, "tests/support/judge_rung.py", "mien")
    assert (
        refused.returncode == 1
        and refused.stderr.startswith("RUNG='mien': say which rung")
        and "mine" in refused.stderr
    )
