"""Tests of every GPU rung: it trains as the cpu rung does, every GPU accepts its launches, its
plans are consistent, and the ladder's claims hold. Kernels run in the emulator. A new rung is
covered by its row in catalog.RUNGS.
"""

import functools
import itertools
import os
import re

import numpy as np
import pytest

import emulator_executor
import needs
import plan_checks
import zoo
from compiled import compiled
from emulated import KERNELS, load
from ladder.arithmetic.multipliers import PRECISIONS, ByDirection, Integers
from ladder.errors import UserError
from ladder.executors import create as executors
from ladder.executors.cuda import executor as cuda_executor
from ladder.executors.cuda import nvrtc
from ladder.plan import plan
from ladder.rungs import catalog
from ladder.rungs.interface import implementation
from ladder.verify import parity
from rung_checks import SMALL, kernel_folder
from rung_plans import AUGMENTED, EPOCH, FORWARD, NETWORK, NETWORKS, inferred_in, plans, trained_in

pytestmark = needs.COMPILER

RUNGS = [
    name
    for name, entry in catalog.RUNGS.items()
    if entry.executor == "cuda" and entry.role != "lesson"
]
# slow in the emulator
ON_TENSOR_CORES = [rung for rung in RUNGS if catalog.RUNGS[rung].on_tensor_cores]
# Each with fewer launches and bytes.
LADDER = [rung for rung in ("gpu_basic", "gpu_opt_v1", "gpu_opt_v2") if rung in catalog.RUNGS]
# Largest deviation of an output, of its largest value: another order of a sum can move an operand
# to the next number.
OUTPUT = {"float32": 1e-5, "tf32": 5e-4, "bfloat16": 4e-3, "float16": 5e-4}


# ---- training as the cpu rung does


class WithWrongGradients(emulator_executor.Executor):
    """Also repeats each update on copies of the parameter and its running averages, with its
    gradient 1 % too large.

    wrong: name -> parameter after each update so far.
    """

    def allocate(self, plan, uploaded):
        self.buffers, self.wrong = plan.buffers, {}
        return super().allocate(plan, uploaded)

    def run(self, plan, arrays):
        self.copies = {
            name: arrays[name].copy()
            for name, buffer in self.buffers.items()
            if buffer.kind in ("parameter", "optimizer")
        }
        super().run(plan, arrays)
        for name, value in self.copies.items():
            self.wrong.setdefault(name, []).append(value)

    def launch(self, launch, arrays):
        written = {
            name: self.copies[name] for name in plan_checks.writes(launch) & self.copies.keys()
        }
        if written:
            gradients = {
                name: arrays[name] * np.float32(1.01)
                for name in plan_checks.reads(launch)
                if self.buffers[name].kind in ("gradient", "workspace")
            }
            assert gradients, f"{launch.entry} writes {set(written)} from no gradient"
            super().launch(launch, {**arrays, **gradients, **written})
        super().launch(launch, arrays)


@functools.cache
def trained_by_cpu(network, protocol, precision, **settings):
    """(result of parity.train, the arrays at the end)."""
    executor = keeping_arrays(executors.create("cpu", os.cpu_count()))
    protocol = parity.protocols(NETWORKS[network], precision)[protocol]
    settings["multipliers"] = PRECISIONS[precision]
    return parity.train(NETWORKS[network], "cpu", executor, protocol, **settings), executor.arrays


def keeping_arrays(executor):
    """The executor, which then keeps the last allocated plan's arrays as `arrays`."""
    allocate = executor.allocate

    def kept(*arguments):
        executor.arrays = allocate(*arguments)
        return executor.arrays

    executor.allocate = kept
    return executor


@pytest.mark.parametrize(
    "rung, network",
    [
        (rung, network)
        for rung in RUNGS
        for network in ("autoencoder", "zoo", "preactivation", "postactivation")
        if network != "autoencoder" or rung not in ON_TENSOR_CORES
    ],
)
# last, so that the autoencoder's two, the longest by far, run side by side
@pytest.mark.parametrize("name", parity.PROTOCOLS)
def test_parity_holds_and_a_gradient_wrong_by_one_percent_in_one_tensor_fails_it(
    rung, network, name
):
    precision = catalog.RUNGS[rung].precision
    protocol, (reference, _) = (
        parity.protocols(NETWORKS[network], precision)[name],
        trained_by_cpu(network, name, precision),
    )
    network, executor = NETWORKS[network], WithWrongGradients()
    trained = parity.train(
        network, rung, executor, protocol, follow=reference, multipliers=plan.made_for(rung)
    )
    deviations = parity.deviations(network, trained, reference)
    assert max(deviations.values()) <= protocol.tolerance, deviations
    if precision != "float32" and protocol.optimizer.momentum:
        # most of an update are older gradients, which nothing clips; the other protocol sees each
        # tensor's
        return
    for tensor in network.parameters:
        if not network.classifies and protocol.optimizer.clip and tensor == "dec3.bias":
            # all three elements of its gradient are clipped in every update; the other protocol
            # sees it
            continue
        wrong = parity.deviations(
            network, {tensor: np.stack(executor.wrong[tensor])}, {tensor: reference[tensor]}
        )
        assert wrong[tensor] > protocol.tolerance, f"{tensor}: {wrong}"


@pytest.mark.parametrize("network", zoo.NETWORKS)
@pytest.mark.parametrize("rung", RUNGS)
def test_small_networks_train_as_on_the_cpu_in_the_same_bytes_in_every_order(rung, network):
    """Losses and hits are those of the last update."""
    precision = catalog.RUNGS[rung].precision
    protocol = parity.protocols(NETWORKS[network], precision)["momentum"]
    reference, at_reference = trained_by_cpu(network, "momentum", precision, augmentation=AUGMENTED)
    network, found = NETWORKS[network], []
    for order in ("forward", "reverse", "random"):
        executor = keeping_arrays(emulator_executor.Executor(order))
        trained = parity.train(
            network,
            rung,
            executor,
            protocol,
            follow=reference,
            augmentation=AUGMENTED,
            multipliers=plan.made_for(rung),
        )
        kept = {
            name: executor.arrays[name] for name in ("losses", "hits") if name in executor.arrays
        }
        found.append({**trained, **kept})
    deviations = parity.deviations(network, found[0], reference)
    assert max(deviations.values()) <= SMALL[precision], deviations
    np.testing.assert_allclose(
        found[0]["losses"], at_reference["losses"], rtol=max(1e-4, SMALL[precision] / 2)
    )
    if network.classifies:
        assert np.array_equal(found[0]["hits"], at_reference["hits"])
    for other, (name, value) in itertools.product(found[1:], found[0].items()):
        assert other[name].tobytes() == value.tobytes(), name


@pytest.mark.parametrize("rung", RUNGS)
def test_frozen_layers_keep_their_bytes_and_the_others_train_as_on_the_cpu(rung):
    network, precision = zoo.ODD, catalog.RUNGS[rung].precision
    protocol = parity.protocols(network, precision)["momentum"]
    reference, _ = trained_by_cpu("odd", "momentum", precision, frozen=network.encoder)
    trained = parity.train(
        network,
        rung,
        emulator_executor.Executor(),
        protocol,
        follow=reference,
        frozen=network.encoder,
        multipliers=plan.made_for(rung),
    )
    assert set(trained) == set(reference)
    start = parity.initial(network)
    for layer in network.layers:
        for name in layer.parameters:
            frozen = layer.name in network.encoder
            assert (
                all(value.tobytes() == start[name].tobytes() for value in trained[name]) == frozen
            ), name
    learning = {
        name: value
        for name, value in reference.items()
        if name.split(".")[0] not in network.encoder
    }
    deviations = parity.deviations(network, trained, learning)
    assert max(deviations.values()) <= SMALL[precision], deviations


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(
    "rung, network",
    [
        (rung, network)
        for rung in RUNGS
        for network in FORWARD
        if network != "autoencoder" or rung not in ON_TENSOR_CORES
    ],
)
def test_features_and_output_are_those_of_the_cpu_rung(rung, network, flip):
    network, multipliers = FORWARD[network], plan.made_for(rung)
    random = np.random.default_rng(0)
    uploaded = {**parity.random_images(network, 2), **parity.initial(network)}
    for name in network.state:
        # a mean of 1 would leave nothing for the ReLU behind it
        low, high = (-0.25, 0.25) if name.endswith("mean") else (0.5, 1.5)
        uploaded[name] = random.uniform(low, high, uploaded[name].shape).astype(np.float32)

    def values(executor, rung, until):
        made = plan.inference_plan(
            network, rung, 2, plan.Dataset(2, "uint8"), until, flip, multipliers
        )
        arrays = executor.allocate(made, executor.upload(uploaded))
        executor.run(made, arrays)
        return executor.download(arrays[made.output])

    for until in (network.features, None):
        found = values(emulator_executor.Executor(), rung, until)
        expected = values(executors.create("cpu", 1), "cpu", until)
        error = np.abs(found - expected).max() / np.abs(expected).max()
        assert error <= OUTPUT[catalog.RUNGS[rung].precision]


# ---- launches that every GPU accepts, and benchmarks/compilations.json with what compilers make of
# each


def training_plan(rung, batch=64):
    return trained_in(NETWORK, rung, batch)


ANY = nvrtc.Resources(
    registers=32, spill_bytes=0, stack_bytes=0, static_shared_bytes=0, most_threads=None
)


@pytest.mark.parametrize("rung", RUNGS)
def test_launches_of_the_largest_batch_are_ones_that_a_gpu_accepts(rung):
    """The batch that the refusal of a larger one names: its sizes fit the kernels' indices and the
    limits of a grid.
    """
    kinds = [functools.partial(trained_in, network, rung) for network in NETWORKS.values()]
    kinds += [
        functools.partial(lambda network, batch: inferred_in(network, rung, batch)[0], network)
        for network in FORWARD.values()
    ]
    for made in kinds:
        with pytest.raises(UserError) as refused:
            made(batch=2**31)
        most = int(re.search(r"set batch_size to (\d+) or less$", str(refused.value))[1])
        with pytest.raises(UserError, match=f"set batch_size to {most} or less"):
            made(batch=most + 1)
        largest = made(batch=most)
        for launch in plan_checks.every_launch(largest):
            assert not plan_checks.refusals(launch, largest, ANY, "sm_90"), (
                f"batch {most}, {launch}"
            )


@pytest.mark.parametrize("rung", RUNGS)
def test_every_launch_of_every_plan_matches_its_kernels_parameters(rung):
    for made in plans(rung):
        for launch in plan_checks.every_launch(made):
            assert not plan_checks.wrong_arguments(launch, made), launch


@pytest.mark.parametrize("rung", RUNGS)
def test_every_plan_reads_written_buffers_and_orders_its_streams(rung):
    for made in plans(rung):
        assert not plan_checks.undeclared_writes(made)
        assert not plan_checks.hazards(made, cuda_executor.waits_between_streams(made))


# ---- the ladder's claims


@pytest.mark.parametrize(
    "rung",
    ["gpu_tf32", "gpu_bf16", "gpu_bf16_sm90", "gpu_f16", "gpu_f16_sm90", "gpu_3xf16_sm90"],
)
def test_only_the_update_waits_for_weight_gradients_and_the_loss_on_packed_operands(rung):
    made = training_plan(rung)
    launched, waits = plan_checks.launches(made), cuda_executor.waits_between_streams(made)
    beside = [launch for launch in launched if launch.stream]
    assert sum("weight_grad" in launch.entry for launch in beside) == 5 and "mse_total" in {
        launch.entry for launch in beside
    }
    waiting = {
        launch.entry
        for launch, others in zip(launched, waits, strict=True)
        if not launch.stream and any(launched[other].stream for other in others)
    }
    assert waiting == {"momentum_update"}


def test_three_products_of_tf32_run_on_one_stream():
    assert {
        launch.stream for launch in plan_checks.launches(training_plan("gpu_3xtf32_packed"))
    } == {0}


@pytest.mark.parametrize("below, rung", list(itertools.pairwise(LADDER)))
def test_launches_and_bytes_of_a_step_fall_from_rung_to_rung(below, rung):
    for batch in (32, 64, 512):
        lower, upper = training_plan(below, batch), training_plan(rung, batch)
        assert len(plan_checks.launches(upper)) < len(plan_checks.launches(lower))
        assert plan_checks.touched_bytes(upper) < plan_checks.touched_bytes(lower)


@pytest.mark.parametrize("rung", RUNGS)
def test_every_convolution_of_the_autoencoder_runs_in_the_rungs_own_kernels(rung):
    for made in (
        training_plan(rung),
        plan.inference_plan(NETWORK, rung, 64, plan.Dataset(EPOCH, "uint8")),
    ):
        for step in made.steps:
            if "conv2d" in step.operation:
                assert {launch.source.partition("/")[0] for launch in step.launches} == {
                    folder_of(rung, step)
                }, step.operation


@pytest.mark.parametrize("rung", RUNGS)
def test_every_convolution_and_dense_layer_runs_in_kernels_of_the_rung_that_has_them(
    rung,
):
    for step in (
        step
        for made in plans(rung)
        for step in made.steps
        if re.search("conv2d|dense", step.operation)
    ):
        strided = rung == "gpu_opt_v2" and step.attributes.get("stride", 1) != 1
        own = "gpu_opt_v1" if strided else folder_of(rung, step)
        beside = {
            folder for operations, folder in BESIDE.items() if re.search(operations, step.operation)
        } - {own}
        assert {launch.source.partition("/")[0] for launch in step.launches} - beside == {own}, (
            step.operation
        )


# Operations -> the folder of kernels that some of their launches take from another rung, for
# biases, phase weights or parts.
BESIDE = {"phase_": "gpu_basic", "^arranged_.*weight_grad": "packed"}


def folder_of(rung, step):
    """The folder below kernels/ of the rung's kernels for a step; those on packed operands
    have some of their own.
    """
    own = kernel_folder(rung)
    if own not in ("packed", "gpu_bf16_sm90"):
        return own
    return next(
        folder
        for name, folder in (("gpu_opt_v1", "gpu_opt_v1"), ("gpu_tf32", "packed"), (rung, own))
        if step.operation in implementation(name).launches
    )


@pytest.mark.parametrize("rung", [rung for rung in RUNGS if rung != "gpu_basic"])
def test_above_the_first_rung_no_layer_runs_in_a_kernel_of_the_first(rung):
    for step in training_plan(rung).steps:
        if step.layer and step.work != "update":
            assert not any(launch.source.startswith("gpu_basic/") for launch in step.launches), (
                step.operation
            )


@needs.NVRTC
@pytest.mark.parametrize("rung", [rung for rung in RUNGS if rung != "gpu_basic"])
def test_above_the_first_rung_convolutions_read_16_bytes_and_use_shared_memory(rung):
    """Where 4 divides the channels: in all layers but the first and the last."""
    steps = [
        step
        for step in training_plan(rung).steps
        if re.search("conv2d.*(forward|grad)", step.operation)
        and step.layer not in ("enc1", "dec2_up", "dec3")
    ]
    assert steps
    for step in steps:
        kernels = [
            (compiled(launch.source, launch.defines, "sm_90"), launch) for launch in step.launches
        ]
        assert any(
            nvrtc.wide_accesses(binary.ptx, launch.entry)[0]
            or re.search(r"cp\.async\.(cg\.shared\.global|bulk)", binary.ptx)
            for binary, launch in kernels
        ), step.operation
        assert any(
            binary.kernels[launch.entry].static_shared_bytes + launch.shared_bytes
            for binary, launch in kernels
        )


def headers(path, macros):
    """The headers that a CUDA file reads where these macros, of which #ifdef asks, are defined."""
    read, branches = set(), []
    for line in path.read_text().splitlines():
        directive, _, rest = line.partition(" ")
        if directive in ("#if", "#ifdef", "#ifndef"):
            branches.append(directive == "#if" or (rest in macros) == (directive == "#ifdef"))
        elif directive == "#else":
            branches[-1] = not branches[-1]
        elif directive == "#endif":
            branches.pop()
        elif directive == "#include" and all(branches):
            beside, below = path.parent / rest.strip('"'), KERNELS / rest.strip('"')
            header = beside if beside.exists() else below
            read |= {header, *headers(header, macros)}
    return read


@pytest.mark.parametrize("rung", RUNGS)
def test_the_macros_of_a_launch_are_explained_at_the_top_of_its_file_or_of_a_header(rung):
    launches = {launch for made in plans(rung) for launch in plan_checks.every_launch(made)}
    for source, defines in {(launch.source, launch.defines) for launch in launches}:
        macros = {define.partition("=")[0] for define in defines}
        texts = [
            path.read_text() for path in (KERNELS / source, *headers(KERNELS / source, macros))
        ]
        read, tops = (
            set(re.findall(r"(?:-D)?(\w+)", "\n".join(parts)))
            for parts in (texts, [re.match(r"(//.*\n)*", text)[0] for text in texts])
        )
        assert macros & read <= tops, source


@pytest.mark.parametrize("rung", RUNGS)
def test_every_kernel_of_the_rungs_folder_is_launched_by_some_plan(rung):
    others = PRECISIONS["bfloat16"], ByDirection(Integers("exact", np.zeros((256, 256), np.int16)))
    others = [
        trained_in(NETWORK, rung, 64, multipliers=one) for one in others if rung == "gpu_basic"
    ]
    launched = {
        (launch.source, launch.entry)
        for made in (*plans(rung), *others)
        for launch in plan_checks.every_launch(made)
    }
    folder = kernel_folder(rung)
    held = {
        (f"{folder}/{path.name}", entry)
        for path in (KERNELS / folder).glob("*.cu")
        for entry in load(path).names
    }
    assert held and held <= launched
    assert {f"kernels/{source}" for source, _ in launched} <= executors.sources(rung)
