"""Lessons, the small steps between two rungs: their training, their launches, and what each one
changes.

A lesson is no choice of `auto`, so it is tested on what it changes alone;
tests/rungs/test_ladder.py has the rungs.
"""

import functools

import numpy as np
import pytest

import emulator_executor
import needs
import plan_checks
import zoo
from compiled import compiled
from ladder.arithmetic import multipliers
from ladder.executors import create as executors
from ladder.executors.cuda import nvrtc
from ladder.network import networks
from ladder.plan import plan
from ladder.rungs import catalog
from ladder.verify import parity
from rung_checks import training_plan

pytestmark = needs.COMPILER

LESSONS = [name for name, entry in catalog.RUNGS.items() if entry.role == "lesson"]
# Lesson on tensor cores -> what of their instructions it has.
TENSOR_CORES = {
    "gpu_mma": {"mma.sync"},
    "gpu_async": {"mma.sync", "cp.async"},
    "gpu_wgmma": {"wgmma.mma_async", "mbarrier.try_wait"},
}
NETWORK = networks.build("autoencoder")
SMALL = 5e-5  # largest deviation, as in test_ladder.py


@pytest.mark.parametrize(
    "rung, network", [*((rung, "forked") for rung in LESSONS), ("gpu_fused", "postactivation")]
)
def test_networks_train_as_on_the_cpu(rung, network):
    precision = catalog.RUNGS[rung].precision
    reference, network = reference_of(network, precision), zoo.NETWORKS[network]
    protocol = parity.protocols(network, precision)["momentum"]
    trained = parity.train(
        network,
        rung,
        emulator_executor.Executor("random"),
        protocol,
        follow=reference,
        multipliers=plan.made_for(rung),
    )
    deviations = parity.deviations(network, trained, reference)
    largest = SMALL if precision == "float32" else protocol.tolerance
    assert max(deviations.values()) <= largest, deviations


@functools.cache
def reference_of(name, precision):
    network = zoo.NETWORKS[name]
    protocol = parity.protocols(network, precision)["momentum"]
    return parity.train(
        network,
        "cpu",
        executors.create("cpu", 1),
        protocol,
        multipliers=multipliers.PRECISIONS[precision],
    )


@pytest.mark.parametrize("network", [NETWORK, zoo.ZOO], ids=["autoencoder", "zoo"])
@pytest.mark.parametrize("rung", LESSONS)
def test_launches_match_their_kernels_parameters_and_write_what_their_step_declares(rung, network):
    plan = training_plan(rung, network)
    assert [
        wrong
        for launch in plan_checks.launches(plan)
        for wrong in plan_checks.wrong_arguments(launch, plan)
    ] == []
    assert not plan_checks.undeclared_writes(plan)


def files(rung):
    """{entry: file} of the large convolutions of the autoencoder's step."""
    return {
        launch.entry: launch.source
        for step in training_plan(rung, NETWORK).steps
        for launch in step.launches
        if step.layer in ("enc2", "dec2", "enc3", "dec1") and "conv2d" in launch.entry
    }


@pytest.mark.parametrize("rung", ["gpu_shared", "gpu_registers", "gpu_wide"])
def test_large_convolutions_run_in_the_lessons_own_kernels(rung):
    found = files(rung)
    assert all(
        found[f"conv2d_{one}"] == f"{rung}/conv2d.cu"
        for one in ("forward", "input_grad", "weight_grad")
    )


@pytest.mark.parametrize("rung", TENSOR_CORES)
def test_all_convolutions_of_a_lesson_on_tensor_cores_run_in_its_own_kernels(rung):
    launches = plan_checks.launches(training_plan(rung, NETWORK))
    assert {launch.source for launch in launches if "conv2d_" in launch.entry} == {
        f"{rung}/conv2d.cu",
        f"{rung}/weight_grad.cu",
        "gpu_basic/conv2d_bias.cu",
    }
    assert all(
        "bias" in launch.entry for launch in launches if launch.source == "gpu_basic/conv2d_bias.cu"
    )


@needs.NVRTC
@pytest.mark.parametrize("rung", TENSOR_CORES)
def test_each_lesson_on_tensor_cores_adds_its_instruction(rung):
    precision, architecture = catalog.RUNGS[rung].precision, f"sm_{catalog.RUNGS[rung].oldest}"
    ptx = compiled(f"{rung}/conv2d.cu", (f"MULTIPLIER={precision}",), architecture).ptx
    assert {
        instruction
        for instruction in ("mma.sync", "cp.async", "wgmma.mma_async", "mbarrier.try_wait")
        if instruction in ptx
    } == TENSOR_CORES[rung]


def test_split_k_changes_weight_gradients_alone_and_fills_the_gpu():
    below, found = files("gpu_wide"), files("gpu_split_k")
    assert (
        found.pop("conv2d_weight_grad_split")
        == found.pop("conv2d_add_splits")
        == "gpu_split_k/weight_grad.cu"
    )
    del below["conv2d_weight_grad"]
    assert found == below
    grids = [
        np.prod(launch.grid)
        for step in training_plan("gpu_split_k", NETWORK).steps
        for launch in step.launches
        if launch.entry == "conv2d_weight_grad_split"
    ]
    assert grids and all(264 < blocks <= 528 for blocks in grids)


def test_a_fused_relu_saves_a_launch_and_the_bytes_of_what_it_would_read():
    below, found = training_plan("gpu_split_k", NETWORK), training_plan("gpu_fused", NETWORK)
    fused = [step for step in found.steps if step.attributes.get("relu")]
    assert len(fused) == len([step for step in below.steps if step.operation == "relu_forward"]) > 0
    assert len(plan_checks.launches(found)) == len(plan_checks.launches(below)) - len(fused)
    assert plan_checks.touched_bytes(found) < plan_checks.touched_bytes(below)


@needs.NVRTC
def test_only_from_its_lesson_on_accesses_have_16_bytes():
    def loads(rung):
        return nvrtc.wide_accesses(
            compiled(f"{rung}/conv2d.cu", (), "sm_90").ptx, "conv2d_forward"
        )[0]

    assert loads("gpu_shared") == loads("gpu_registers") == 0 < loads("gpu_wide")


def test_a_lesson_builds_on_the_one_before_and_the_rungs_stay():
    order = list(catalog.RUNGS)
    first = order[order.index("gpu_basic") + 1 : order.index("gpu_opt_v1")]
    assert [*first, *TENSOR_CORES] == LESSONS
    assert order.index("gpu_gemm") + 1 == order.index("gpu_mma")
    assert [catalog.RUNGS[name].below for name in [*LESSONS, "gpu_opt_v1"]] == [
        "gpu_basic",
        *LESSONS[:-1],
        first[-1],
    ]
    assert not any(map(catalog.is_for_auto, LESSONS))


def test_an_inference_plan_of_a_lesson_computes_the_features_of_the_cpu_rung():
    network = zoo.FORKED
    uploaded = {**parity.random_images(network, 2), **parity.initial(network)}

    def values(executor, rung):
        made = plan.inference_plan(network, rung, 2, plan.Dataset(2, "uint8"))
        arrays = executor.allocate(made, executor.upload(uploaded))
        executor.run(made, arrays)
        return executor.download(arrays[made.output])

    expected = values(executors.create("cpu", 1), "cpu")
    assert (
        np.abs(values(emulator_executor.Executor(), "gpu_fused") - expected).max()
        <= 1e-5 * np.abs(expected).max()
    )
