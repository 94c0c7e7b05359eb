"""A dependent launch: what it may touch before it has waited for the launch ahead of it."""

import numpy as np
import pytest

from cuda_emulator import KernelFault, check, command, load

ISOLATED = True
# y = w x, where the launch before wrote x and read y; the weights w are older.
KERNEL = """
__device__ void wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
extern "C" __global__ void scale(const float* w, const float* x, float* y) {
    __shared__ float weights[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    weights[threadIdx.x] = w[i];
    asm volatile("griddepcontrol.launch_dependents;");
    wait();
    y[i] = weights[threadIdx.x] * x[i];
}
"""
BEFORE = {"x": "writes", "y": "reads"}


def faults(tmp_path, text=KERNEL, **options):
    path = tmp_path / "scale.cu"
    path.write_text(text)
    arrays = [np.arange(128, dtype=np.float32) for _ in range(3)]
    try:
        report = check(load(path).get_function("scale"), (2,), (64,), arrays, **options)
    except KernelFault as fault:
        return fault.faults
    assert (arrays[2] == np.arange(128) ** 2).all()
    return report.faults


def changed(*pairs):
    text = KERNEL
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def test_what_is_older_may_be_read_before_the_wait(tmp_path):
    assert faults(tmp_path, before=BEFORE) == ()


@pytest.mark.parametrize(
    "wait",
    [
        "cudaGridDependencySynchronize();",
        "if (threadIdx.x == 5) wait(); __syncthreads();",
        "if (threadIdx.x % 32 == 5) wait(); __syncwarp();",
        "wait(); wait();",
    ],
)
def test_one_thread_waits_for_those_that_a_barrier_orders_behind_it(tmp_path, wait):
    assert faults(tmp_path, changed(("    wait();", wait)), before=BEFORE) == ()


def test_without_a_dependent_launch_there_is_nothing_to_wait_for(tmp_path):
    assert faults(tmp_path, changed(("    wait();", ""))) == ()


PLANTED = {
    "reads early": ([("= w[i];", "= w[i] + 0 * x[i];")], "reads x[0], which the launch before writes"),
    "writes early": ([("    asm", "    y[i] = 0; asm")], "writes y[0], which the launch before reads"),
    "waits in one warp": ([("    wait();", "if (threadIdx.x < 32) wait();")], "reads x[32], which"),
    "waits in one block": ([("    wait();", "if (blockIdx.x == 0) wait();")], "reads x[64], which"),
    "no barrier behind the wait": (
        [("    wait();", "if (threadIdx.x == 0) wait();")],
        "reads x[1], which",
    ),
    "adds early": (
        [("    asm", "    atomicAdd(y + i, 0.0f); asm")],
        "writes y[0], which the launch before reads",
    ),
    "copies early": (
        [
            ("__shared__ float", "__shared__ __align__(16) float"),
            ("= w[i];", "= w[i]; emulator::cp_async(4, weights + threadIdx.x, x + i, true);"),
            ("    wait();", "emulator::cp_async_commit_group(); emulator::wait_for_copies(0); wait();"),
        ],
        "reads x[0], which the launch before writes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_an_access_ahead_of_the_wait_is_a_fault(tmp_path, name):
    pairs, words = PLANTED[name]
    text = changed(*pairs)
    found = [each for each in faults(tmp_path, text, before=BEFORE) if each.severity == "error"]
    assert {fault.kind for fault in found} == {"missing dependency wait"}
    assert words in found[0].message and "ahead of griddepcontrol.wait" in found[0].message
    assert text.splitlines()[found[0].line - 1].strip()


def test_a_launch_in_which_nobody_waits_orders_nothing_behind_it(tmp_path):
    (fault,) = faults(tmp_path, changed(("    wait();", "")), before={})
    assert fault.kind == "missing dependency wait" and "no thread calls" in fault.message


def test_bulk_copies_wait_too(tmp_path):
    text = """
using namespace emulator;
extern "C" __global__ void scale(const float* w, const float* x, float* y) {
    auto* full = reinterpret_cast<unsigned long long*>(dynamic_shared() + 512);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1), fence_mbarrier_init();
        mbarrier_arrive_expect_tx(full, 512);
        cp_async_bulk(dynamic_shared(), w, 256, full);
        WAIT
        cp_async_bulk(dynamic_shared() + 256, x, 256, full);
    }
    __syncthreads();
    mbarrier_wait_parity(full, 0);
    const float* both = reinterpret_cast<float*>(dynamic_shared());
    y[threadIdx.x] = both[threadIdx.x] * both[64 + threadIdx.x];
}
"""
    path = tmp_path / "bulk.cu"
    for wait in ("grid_dependency_wait();", ""):
        path.write_text(text.replace("WAIT", wait))
        arrays = [np.ones(64, np.float32) for _ in range(3)]
        launch = load(path).get_function("scale"), (1,), (64,), arrays, 520
        if wait:
            assert check(*launch, before=BEFORE).faults == ()
        else:
            with pytest.raises(KernelFault, match=r"reads x\[0\], which the launch before writes"):
                check(*launch, before=BEFORE)


def test_the_command_takes_what_the_launch_before_does(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = (
        "check scale.cu --grid 2 --block 64 --args w:float32[128] x:float32[128] "
        "y:float32[128]=empty --before {}"
    )

    def said(before, text=KERNEL):
        (tmp_path / "scale.cu").write_text(text)
        status = command.main(words.format(before).split())
        return status, *capsys.readouterr()

    assert said("x=writes")[0] == command.RIGHT
    early = changed(("= w[i];", "= w[i] + 0 * x[i];"))
    status, printed, _ = said("x=writes", early)
    assert status == command.WRONG
    assert "scale.cu:6: error: missing dependency wait: thread" in printed
    assert said("", early)[0] == command.RIGHT
    for before, answer in {
        "q=writes": "scale has no parameter q",
        "x=takes": "before: 'takes' is neither 'reads' nor 'writes'",
    }.items():
        assert said(before)[::2] == (command.UNCHECKED, f"cuda-emulator: {answer}\n")


def test_names_and_numbers_of_parameters_mean_the_same(tmp_path):
    early = changed(("= w[i];", "= w[i] + 0 * x[i];"))
    assert len(faults(tmp_path, early, before={1: "writes"})) == len(
        faults(tmp_path, early, before={"x": "writes"})
    )
