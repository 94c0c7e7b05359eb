"""What is asked of every GPU rung alike: that it trains as the cpu rung does, that every GPU accepts what it launches, that
its plans are in order, and that it keeps what the ladder claims. Kernels run in the emulator. A new rung is covered by its row
in variants.VARIANTS.
"""

import concurrent.futures
import functools
import itertools
import os
import re
import shutil

import numpy as np
import pytest

import emulator_executor
import plan_checks
from compiled import compiled
from cuda_emulator import KERNELS, load
from ladder import cuda_executor, executors, layers, networks, nvrtc, optimizers, parity, plan, weights
from ladder.optimizers import Optimizer
from ladder.variants import VARIANTS

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ (Debian package: g++)")
needs_nvrtc = pytest.mark.skipif(not nvrtc.installed(), reason="NVRTC is not installed (envs/kernels.txt)")

RUNGS = [name for name, variant in VARIANTS.items() if variant.executor == "cuda"]
LADDER = [rung for rung in ("gpu_basic", "gpu_opt_v1", "gpu_opt_v2") if rung in VARIANTS]   # each makes the step smaller
NETWORK = networks.build("autoencoder")
# Odd sizes, more pixels than a block takes, kernels of 1, 3 and 5, channels that 4 divides and others, each layer kind on its
# own and in company.
ODD = networks.resolve("odd", (14, 22, 3), (
    layers.conv2d("a", 5, kernel=5, padding=2), layers.relu("a_relu"), layers.maxpool2d("a_pool"), layers.upsample2d("up"),
    layers.maxpool2d("pool"), layers.relu("b_relu"), layers.conv2d("c", 7, kernel=1, padding=0), layers.conv2d("d", 8),
    layers.relu("d_relu"), layers.upsample2d("d_up"), layers.conv2d("e", 20), layers.relu("e_relu"), layers.conv2d("f", 3)),
    "pool", "mse")
NETWORKS = {"autoencoder": NETWORK, "odd": ODD}
EPOCH = 50_000   # images of CIFAR-10; the last batch of an epoch is a smaller one
BATCHES = sorted({size for batch in (1, 3, 32, 64, 512) for size in (batch, EPOCH % batch) if size})
LENGTH = plan.Length(10, 5)


# ---- training as the cpu rung does

class WithWrongGradients(emulator_executor.Executor):
    """Also makes each update of a parameter on copies of it and of its running averages, with its gradient 1 % too large.

    The copies go their own way from the first update on; they meet the gradients of the right network, which differ from
    their own only in second order. wrong: name -> parameter that such a gradient has trained.
    """

    def allocate(self, plan, placed):
        self.buffers, self.wrong = plan.buffers, {}
        return super().allocate(plan, placed)

    def launch(self, launch, arrays):
        written = {name for name in plan_checks.writes(launch) if self.buffers[name].kind in ("parameter", "optimizer")}
        if written:
            for name in written - self.wrong.keys():
                self.wrong[name] = arrays[name].copy()
            gradients = {name: arrays[name] * np.float32(1.01) for name in plan_checks.reads(launch)
                         if self.buffers[name].kind in ("gradient", "workspace")}
            assert gradients, f"{launch.entry} writes {written} from no gradient"
            super().launch(launch, {**arrays, **gradients, **{name: self.wrong[name] for name in written}})
        super().launch(launch, arrays)


@functools.cache
def trained_by_cpu(network, protocol):
    return parity.train(NETWORKS[network], "cpu", executors.create("cpu", os.cpu_count()), parity.PROTOCOLS[protocol])


@pytest.mark.parametrize("name", parity.PROTOCOLS)
@pytest.mark.parametrize("rung", RUNGS)
def test_parity_holds_and_a_gradient_wrong_by_one_percent_in_one_tensor_fails_it(rung, name):
    protocol, reference, executor = parity.PROTOCOLS[name], trained_by_cpu("autoencoder", name), WithWrongGradients()
    trained = parity.train(NETWORK, rung, executor, protocol)
    deviations = parity.deviations(NETWORK, trained, reference)
    assert max(deviations.values()) <= protocol.tolerance, deviations
    for tensor in NETWORK.parameters:
        if protocol.optimizer.clip and tensor == "dec3.bias":
            continue   # all three elements of its gradient are clipped in every update; the other protocol sees it
        wrong = parity.deviations(NETWORK, {**trained, tensor: executor.wrong[tensor]}, reference)
        assert wrong[tensor] > protocol.tolerance, f"{tensor}: {wrong}"


@pytest.mark.parametrize("rung", RUNGS)
def test_parity_on_a_network_of_odd_sizes_in_the_same_bytes_in_every_order(rung):
    """Forward twice: two runs of one program."""
    protocol = parity.PROTOCOLS["momentum"]
    first, *others = (parity.train(ODD, rung, emulator_executor.Executor(order), protocol)
                      for order in ("forward", "forward", "reverse", "random", 11))
    assert max(parity.deviations(ODD, first, trained_by_cpu("odd", "momentum")).values()) <= protocol.tolerance
    for other, (name, value) in itertools.product(others, first.items()):
        assert other[name].tobytes() == value.tobytes(), name


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("rung", RUNGS)
def test_features_are_those_of_the_cpu_rung(rung, flip):
    def features(executor, variant):
        made = plan.inference_plan(NETWORK, variant, 2, plan.Dataset(2, "uint8"), NETWORK.features, flip)
        images = np.random.default_rng(0).integers(0, 256, (2, *NETWORK.input_shape), dtype=np.uint8)
        arrays = executor.allocate(made, executor.place({
            "images": images, "permutation": np.arange(2), "scale": np.full(3, 1 / 255, np.float32),
            **weights.initialize(NETWORK, 0)}))
        executor.run(made, arrays)
        return executor.fetch(arrays[NETWORK.features])

    found = features(emulator_executor.Executor(), rung)
    expected = features(executors.create("cpu", 1), "cpu")
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


# ---- launches that every GPU accepts

@functools.cache
def plans(rung):
    """What a rung may be asked to run, small changes apart."""
    made = []
    for network, batch, dtype in itertools.product(NETWORKS.values(), BATCHES, ("uint8", "float32")):
        dataset = plan.Dataset(EPOCH, dtype)
        for name, fuse in itertools.product(optimizers.AVERAGES, (True, False)):
            made.append(plan.training_plan(network, rung, batch, dataset, Optimizer(name, momentum=0.9, clip=5.0), LENGTH,
                                           fuse_update=fuse))
        made.append(plan.inference_plan(network, rung, batch, dataset))
        made.append(plan.inference_plan(network, rung, batch, dataset, network.features, flip=True))
    return tuple(made)


def training_plan(rung, batch=64):
    return plan.training_plan(NETWORK, rung, batch, plan.Dataset(EPOCH, "uint8"), Optimizer("momentum", momentum=0.9), LENGTH)


def compiled_all(sources, architecture):
    """(source, defines) -> nvrtc.Compiled."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(sources, pool.map(lambda one: compiled(*one, architecture), sources), strict=True))


@needs_nvrtc
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
@pytest.mark.parametrize("rung", RUNGS)
def test_every_launch_of_every_plan_is_one_that_the_gpu_accepts(rung, architecture):
    launches = {launch: made for made in plans(rung) for launch in plan_checks.launches(made)}
    binaries = compiled_all(sorted({(launch.source, launch.defines) for launch in launches}), architecture)
    for launch, made in launches.items():
        resources = binaries[launch.source, launch.defines].kernels[launch.entry]
        refused = plan_checks.refusals(launch, made, resources, architecture)
        assert not refused, f"batch {made.batch}, {launch}: {refused}"
    for (source, defines), binary in binaries.items():
        for entry, resources in binary.kernels.items():
            assert resources.spill_bytes == resources.stack_bytes == 0, f"{source} {defines} {entry}: {resources}"
            body = binary.ptx.partition(f".entry {entry}(")[2].partition(".entry")[0]
            assert "st.global" in body, f"{source} {defines} {entry} does nothing"


@pytest.mark.parametrize("rung", RUNGS)
def test_every_launch_of_every_plan_gives_its_kernel_what_it_takes(rung):
    for made in plans(rung):
        for launch in plan_checks.launches(made):
            assert not plan_checks.wrong_arguments(launch, made), launch


@pytest.mark.parametrize("rung", RUNGS)
def test_every_plan_reads_what_was_written_and_keeps_its_streams_apart(rung):
    for made in plans(rung):
        assert not plan_checks.undeclared_writes(made)
        assert not plan_checks.hazards(made, cuda_executor.waits_between_streams(made))


# ---- what the ladder claims

@pytest.mark.parametrize("below, rung", list(itertools.pairwise(LADDER)))
def test_launches_and_bytes_of_a_step_fall_from_rung_to_rung(below, rung):
    for batch in (32, 64, 512):
        lower, upper = training_plan(below, batch), training_plan(rung, batch)
        assert len(plan_checks.launches(upper)) < len(plan_checks.launches(lower))
        assert plan_checks.touched_bytes(upper) < plan_checks.touched_bytes(lower)


@pytest.mark.parametrize("rung", RUNGS)
def test_every_convolution_of_the_autoencoder_runs_in_the_rungs_own_kernels(rung):
    for made in (training_plan(rung), plan.inference_plan(NETWORK, rung, 64, plan.Dataset(EPOCH, "uint8"))):
        for step in made.steps:
            if "conv2d" in step.operation:
                assert {launch.source.partition("/")[0] for launch in step.launches} == {rung}, step.operation


@pytest.mark.parametrize("rung", [rung for rung in RUNGS if rung != "gpu_basic"])
def test_above_the_first_rung_no_layer_runs_in_a_kernel_of_the_first(rung):
    for step in training_plan(rung).steps:
        if step.layer and step.work != "update":
            assert not any(launch.source.startswith("gpu_basic/") for launch in step.launches), step.operation


@needs_nvrtc
@pytest.mark.parametrize("rung", [rung for rung in RUNGS if rung != "gpu_basic"])
def test_above_the_first_rung_convolutions_read_16_bytes_at_a_time_and_use_shared_memory(rung):
    """Those whose operands come in rows of 4 channels: all but the first layer's and the last one's."""
    steps = [step for step in training_plan(rung).steps if re.search("conv2d.*(forward|grad)", step.operation)
             and step.layer not in ("enc1", "dec2_up", "dec3")]
    binaries = compiled_all(sorted({(launch.source, launch.defines) for step in steps for launch in step.launches}), "sm_90")
    assert steps
    for step in steps:
        kernels = [(binaries[launch.source, launch.defines], launch) for launch in step.launches]
        assert any(nvrtc.wide_accesses(binary.ptx, launch.entry)[0] for binary, launch in kernels), step.operation
        assert any(binary.kernels[launch.entry].static_shared_bytes + launch.shared_bytes for binary, launch in kernels)


@pytest.mark.parametrize("rung", RUNGS)
def test_every_kernel_of_the_rungs_folder_is_launched_by_some_plan(rung):
    launched = {(launch.source, launch.entry) for made in plans(rung) for launch in plan_checks.launches(made)}
    held = {(f"{rung}/{path.name}", entry) for path in (KERNELS / rung).glob("*.cu") for entry in load(path).names}
    assert held and held <= launched
