"""gpu_bf16's kernels on copies in bfloat16 against rounded operands, and gpu_opt_v1's convolution kernels as it launches them.

Tensor cores add by either model of cuda_emulator/tensor_cores.cpp.
"""

import itertools
import sys

import numpy as np
import pytest

import emulator_executor
import zoo
from compiled import compiled
from cuda_emulator import KERNELS, KernelFault, load
from kernel_checks import gamma, integers, normal, poisoned
from ladder.arithmetic.multipliers import PRECISIONS, to_bfloat16
from ladder.executors import create as executors
from ladder.executors.cuda import nvrtc
from ladder.network import networks
from ladder.network.optimizers import AVERAGES
from ladder.rungs import gpu_bf16, gpu_opt_v1
from ladder.rungs.patterns import Gradient
from ladder.sources import ROOT
from ladder.training import parity, plan
from rung_checks import SMALL, Convolution, run_step, training_plan
from tensor_checks import ARCHITECTURES, RoundedOperands, sums  # noqa: F401 (sums is a fixture)

sys.path.insert(0, str(ROOT / "benchmarks"))

import disassembly  # noqa: E402

RUNG = "gpu_bf16"
ONE_ARITHMETIC = True   # in the tests of gpu_opt_v1 the kernels run in both

# (batch, height, width, channels, filters, kernel, padding), stride: whole steps of k and not, fewer than are under way, rows
# of y that divide a step's pixels and others, ends of images, of tiles and of splits within a step
COPIED = [
    ((1, 4, 4, 64, 40, 1, 0), 1),
    ((1, 5, 7, 40, 72, 3, 1), 1),
    ((3, 8, 8, 64, 64, 3, 1), 1),
    ((2, 9, 6, 40, 48, 2, 1), 1),
    ((2, 9, 11, 40, 40, 3, 1), 2),
    ((1, 3, 70, 40, 40, 3, 0), 1),
]
FEW_FILTERS = [((2, 6, 7, 40, 3, 3, 1), 1), ((1, 8, 8, 64, 10, 1, 0), 1), ((2, 9, 8, 40, 16, 3, 1), 2),
               ((3, 16, 11, 40, 20, 3, 1), 1)]
LARGE = [((2, 8, 12, 64, 136, 3, 1), 1), ((1, 16, 16, 136, 40, 1, 0), 1), ((3, 7, 5, 40, 136, 2, 0), 1)]


class TestConvolutions(RoundedOperands):
    rung, name, rounded = gpu_bf16, "bfloat16", staticmethod(to_bfloat16)
    others, instruction = ("exact", "am16", "tf32"), "m16n8k16.row.col.f32.bf16"
    by_matrices = True


def numbers(copy):
    """float32 of bfloat16 in 16-bit words."""
    return (copy.astype(np.uint32) << 16).view(np.float32)


def padded(image, padding):
    """With borders of zeros, and channels of zeros up to the next multiple of 8."""
    return np.pad(image, ((0, 0), (padding, padding), (padding, padding), (0, -image.shape[3] % 8)))


def rounded_input(x, padding):
    copy = poisoned(padded(x, padding).shape, np.uint16)
    run_step(gpu_bf16.round_input, {"x": x}, {"rounded": copy}, padding=padding, times=1)
    return copy


def rounded_gradient(dy, padding):
    """(copy, totals)."""
    copy = poisoned(padded(dy, padding).shape, np.uint16)
    totals = poisoned((gpu_bf16._total_splits(copy.shape), dy.shape[3]))
    run_step(gpu_bf16.round_gradient, {"dy": dy}, {"rounded": copy, "totals": totals}, padding=padding)
    return copy, totals


def rounded_weight(weight, flip=True):
    """[copy, flipped]."""
    copies, attribute = copies_of("w", weight.shape, flip)
    run_step(gpu_bf16.copy_weights, {"w": weight}, copies, copies=attribute)
    return list(copies.values())


def copies_of(name, shape, flip=True):
    """({buffer: array}, a plan's {name: {role: buffer}}) of the copies of a weight."""
    shapes = gpu_bf16._copies_of_weight(shape, flip)
    return ({f"{name}.{role}": poisoned(size, np.uint16) for role, size in shapes.items()},
            {name: {role: f"{name}.{role}" for role in shapes}})


@pytest.mark.parametrize("shape, padding", [((1, 1, 1, 16), 0), ((2, 3, 5, 24), 2), ((3, 9, 8, 80), 1)], ids=str)
def test_copies_are_rounded_to_nearest_with_a_border_of_zeros(shape, padding):
    x = normal(*shape)
    x.flat[:2] = np.inf, np.nan
    wanted = padded(to_bfloat16(x), padding)
    assert np.array_equal(numbers(rounded_input(x, padding)), wanted, equal_nan=True)
    copy, totals = rounded_gradient(x[..., 8:].copy(), padding)
    assert np.array_equal(numbers(copy), wanted[..., 8:])
    error = np.abs(totals.sum(axis=0, dtype=float) - x[..., 8:].sum(axis=(0, 1, 2), dtype=float))
    assert (error <= gamma(x[..., 0].size) * np.abs(x[..., 8:]).sum(axis=(0, 1, 2), dtype=float)).all()


def test_a_copy_of_an_upsampled_image_repeats_its_pixels():
    x = normal(2, 3, 5, 16)
    wanted = padded(to_bfloat16(x).repeat(2, axis=1).repeat(2, axis=2), 1)
    copy = poisoned(wanted.shape, np.uint16)
    run_step(gpu_bf16.round_input, {"x": x}, {"rounded": copy}, padding=1, times=2)
    assert np.array_equal(numbers(copy), wanted)


@pytest.mark.parametrize("channels", [1, 3, 20, 67])
def test_channels_of_a_gradient_are_filled_with_zeros(channels):
    dy = normal(3, 9, 8, channels)
    copy, totals = rounded_gradient(dy, 2)
    assert np.array_equal(numbers(copy), padded(to_bfloat16(dy), 2))
    error = np.abs(totals.sum(axis=0, dtype=float) - dy.sum(axis=(0, 1, 2), dtype=float))
    assert (error <= gamma(dy[..., 0].size) * np.abs(dy).sum(axis=(0, 1, 2), dtype=float)).all()


@pytest.mark.parametrize("shape", [(8, 1, 1, 8), (40, 3, 3, 24), (3, 2, 2, 40)], ids=str)
def test_copies_of_weights_are_rounded_and_flipped(shape):
    weight = normal(*shape)
    for copy in (rounded_weight(weight, flip=False)[0], rounded_weight(weight)[0]):
        assert np.array_equal(numbers(copy), to_bfloat16(weight))
    flipped = to_bfloat16(weight)[:, ::-1, ::-1].transpose(3, 1, 2, 0)
    assert np.array_equal(numbers(rounded_weight(weight)[1]), padded(flipped, 0))


SIZES = {"few.bias": (7,), "both.weight": (20, 3, 3, 40), "one.weight": (33, 1, 1, 48), "dense.weight": (5, 1, 1, 300)}


@pytest.mark.parametrize("rule", AVERAGES)
def test_the_update_is_gpu_opt_v1s_and_leaves_copies_of_the_new_weights(rule):
    gradients = {f"{name}.gradient": normal(*shape) for name, shape in SIZES.items()}
    places = {name: Gradient(f"{name}.gradient") for name in SIZES}
    reads = {**gradients, "learning_rates": np.full(4, 0.25), "counters": np.array([3, 0, 0], np.int64)}
    given = {"weight_decay": 0.125, "clip": 0.5, **({"momentum": 0.5} if rule == "momentum" else {}), "gradients": places}

    def updated(function, copied, **more):
        writes = {role: np.abs(normal(*shape)) for name, shape in SIZES.items()
                  for role in (name, *(f"{name}.{average}" for average in AVERAGES[rule]))}
        run_step(function, reads, {**writes, **copied}, operation=f"{rule}_update", **given, **more)
        return writes

    both, of_both = copies_of("both.weight", SIZES["both.weight"])
    one, of_one = copies_of("one.weight", SIZES["one.weight"], flip=False)
    wanted = updated(gpu_opt_v1.update, {})
    found = updated(gpu_bf16.update, {**both, **one}, copies={**of_both, **of_one})
    for role, value in wanted.items():
        assert found[role].tobytes() == value.tobytes(), role
    for name, copies in (("both.weight", both), ("one.weight", one)):
        again = rounded_weight(found[name], flip=len(copies) == 2)
        assert [copy.tobytes() for copy in copies.values()] == [copy.tobytes() for copy in again], name


def forward(conv, relu, tile=None):
    y = poisoned(conv.output)
    run_step(lambda step, build: gpu_bf16.forward(step, build, tile),
             {"x": rounded_input(conv.x, conv.padding), "weight": rounded_weight(conv.weight)[0], "bias": conv.bias}, {"y": y},
             stride=conv.stride, relu=relu)
    return y


def input_grad(conv, tile=None):
    dx, padding = poisoned(conv.x.shape), conv.kernel - 1 - conv.padding
    run_step(lambda step, build: gpu_bf16.input_grad(step, build, tile),
             {"dy": rounded_gradient(conv.dy, padding)[0], "flipped": rounded_weight(conv.weight)[1],
              "zeros": np.zeros(conv.x.shape[3:], np.float32)}, {"dx": dx})
    return dx


def weight_grad(conv, tile=None):
    dweight, dbias = poisoned(conv.weight.shape), poisoned(conv.bias.shape)
    padding = conv.kernel - 1 - conv.padding if conv.stride == 1 else 0
    dy, totals = rounded_gradient(conv.dy, padding)
    run_step(lambda step, build: gpu_bf16.weight_grad(step, build, tile),
             {"x": rounded_input(conv.x, conv.padding), "dy": dy, "totals": totals}, {"dweight": dweight, "dbias": dbias},
             stride=conv.stride, padding=padding)
    return dweight, dbias


def check(shape, stride, tile=None):
    """Exact on small integers; otherwise the products of rounded operands, but for the order and the rounding of sums."""
    conv = Convolution(shape, integers, stride)
    assert np.array_equal(forward(conv, False, tile), conv.forward(conv.x, conv.weight, conv.bias))
    if stride == 1:
        assert np.array_equal(input_grad(conv, tile), conv.input_grad(conv.dy, conv.weight))
    dweight, dbias = weight_grad(conv, tile)
    assert np.array_equal(dweight, conv.weight_grad(conv.x, conv.dy))
    assert np.array_equal(dbias, conv.dy.sum(axis=(0, 1, 2)))

    conv, exact = (Convolution(shape, normal, stride) for _ in range(2))
    exact.x, exact.weight, exact.dy = (to_bfloat16(value) for value in (conv.x, conv.weight, conv.dy))
    y = exact.forward(exact.x, exact.weight, conv.bias)
    close(forward(conv, True, tile), np.maximum(y, 0))
    if stride == 1:
        close(input_grad(conv, tile), exact.input_grad(exact.dy, exact.weight))
    dweight, dbias = weight_grad(conv, tile)
    close(dweight, exact.weight_grad(exact.x, exact.dy))
    close(dbias, conv.dy.astype(float).sum(axis=(0, 1, 2)))   # a sum, no product: not rounded


def close(found, wanted):
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()   # another rounding would be a hundred times as far


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("shape, stride", COPIED, ids=str)
def test_products_of_copies(shape, stride):
    check(shape, stride, gpu_bf16.SQUARE)


MANY_STEPS = [((6, 8, 8, 64, 64, 3, 1), 1), ((7, 9, 11, 40, 40, 3, 1), 2), ((2, 3, 70, 40, 40, 2, 1), 1),
              ((260, 3, 3, 40, 40, 3, 0), 1), ((35, 5, 4, 40, 40, 3, 1), 2)]


@pytest.mark.parametrize("shape, stride", MANY_STEPS, ids=str)
def test_weight_gradients_over_many_steps(shape, stride, monkeypatch):
    """More than there are stages, of less than a row, of several rows and of several images."""
    monkeypatch.setattr(gpu_bf16, "SPLITS", 1)
    conv = Convolution(shape, integers, stride)
    assert conv.dy[..., 0].size > gpu_bf16.STEP * gpu_bf16.STAGES
    dweight, dbias = weight_grad(conv)
    assert np.array_equal(dweight, conv.weight_grad(conv.x, conv.dy))
    assert np.array_equal(dbias, conv.dy.sum(axis=(0, 1, 2)))


@pytest.mark.parametrize("shape, stride", FEW_FILTERS, ids=str)
def test_products_of_copies_with_few_filters(shape, stride):
    check(shape, stride)


@pytest.mark.parametrize("shape, stride", LARGE, ids=str)
def test_products_of_copies_in_large_tiles(shape, stride):
    check(shape, stride, gpu_bf16.LARGE)


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("frozen", [(), ("a",)], ids=["all", "not a"])
def test_a_network_of_copies_trains_as_on_the_cpu_in_the_same_bytes_in_every_order(frozen):
    protocol, settings = parity.protocols(zoo.WIDE)["momentum"], {"multipliers": PRECISIONS["bfloat16"], "frozen": frozen}
    reference = parity.train(zoo.WIDE, "cpu", executors.create("cpu", 2), protocol, **settings)
    found = [parity.train(zoo.WIDE, RUNG, emulator_executor.Executor(order), protocol, follow=reference, **settings)
             for order in ("forward", "forward", "reverse", "random")]
    learning = {name: value for name, value in reference.items() if name.split(".")[0] not in frozen}
    deviations = parity.deviations(zoo.WIDE, found[0], learning)
    assert max(deviations.values()) <= SMALL["bfloat16"], deviations
    for other, (name, value) in itertools.product(found[1:], found[0].items()):
        assert np.asarray(other[name]).tobytes() == np.asarray(value).tobytes(), name


def test_copies_are_made_of_what_is_read_again():
    """Forward alone there is no flipped weight; with a frozen layer before it neither; with a stride it would be of no use."""
    def entries(made):
        return {(step.layer, launch.entry) for step in made.steps for launch in step.launches if "round" in launch.entry} | {
            name for name, buffer in made.buffers.items() if buffer.kind == "copy"}

    settings = {"network": zoo.WIDE, "variant": RUNG, "batch_size": 2, "multipliers": PRECISIONS["bfloat16"]}
    dataset = plan.Dataset(4, "uint8")
    trained = entries(plan.training_plan(plan.Settings(**settings), dataset, plan.Length(1, 1)))
    frozen = entries(plan.training_plan(plan.Settings(**settings, frozen=("a", "b")), dataset, plan.Length(1, 1)))
    inferred = entries(plan.inference_plan(zoo.WIDE, RUNG, 2, dataset, multipliers=PRECISIONS["bfloat16"]))
    assert trained - frozen == {("b", "round_gradient"), "c.weight.flipped"}
    assert inferred == {("b", "round_image"), *((layer, "round_image") for layer in "cdef"),
                        *(f"{layer}.weight.bfloat16" for layer in "bcdef")}
    assert trained - inferred == {*((layer, "round_gradient") for layer in "bcdef"),
                                  *(f"{layer}.weight.flipped" for layer in "cdef")}


PLAN = training_plan(RUNG, networks.build("autoencoder"))
OWN = {(launch.source, launch.defines) for launch in PLAN.launches if launch.source.startswith("gpu_bf16/")}
TILES = {"gpu_bf16/conv2d.cu": (gpu_bf16.LARGE, gpu_bf16.SQUARE, gpu_bf16.FEW_COLUMNS),
         "gpu_bf16/weight_grad.cu": (gpu_bf16.LARGE, gpu_bf16.SQUARE, gpu_bf16.FEW_ROWS)}
FLAGS = {"gpu_bf16/conv2d.cu": ("WHOLE",), "gpu_bf16/weight_grad.cu": ("WHOLE", "WHOLE_ROWS")}
EVERY = {(source, tile.defines(**dict(zip(flags, values, strict=True)))): tile for source, flags in FLAGS.items()
         for tile in TILES[source] for values in itertools.product((False, True), repeat=len(flags))}
# Of the instructions of a loop, at least, that multiply, three quarters of it where steps are not whole. In the tiles of few
# lines there is less to multiply than to load.
SHARES = {gpu_bf16.LARGE: 0.46, gpu_bf16.SQUARE: 0.24, gpu_bf16.FEW_COLUMNS: 0.16, gpu_bf16.FEW_ROWS: 0.12}


def test_the_autoencoders_convolutions_of_many_channels_have_copies():
    layers = {step.layer for step in PLAN.steps if step.operation.startswith("rounded_conv2d_")}
    assert layers == {"enc2", "dec1", "dec2", "dec3"}


@pytest.mark.skipif(not nvrtc.installed(), reason="NVRTC is not installed (envs/kernels.txt)")
@pytest.mark.parametrize("source, defines, architecture", sorted(
    [*((*one, architecture) for one in OWN for architecture in ARCHITECTURES),
     *((*one, "sm_90") for one in EVERY.keys() - OWN)]), ids=str)
def test_every_gpu_from_sm_80_on_can_run_the_kernels_on_copies(source, defines, architecture):
    made = compiled(source, defines, architecture)
    for name, resources in made.kernels.items():
        assert resources.spill_bytes == resources.stack_bytes == 0, name
        assert resources.registers * (resources.most_threads or 256) <= 65536, name
    if source not in ("gpu_bf16/round.cu", "gpu_bf16/weight_update.cu"):
        tile = EVERY[source, defines]
        down, across, steps = tile.warp_m // 16, tile.warp_n // 8, gpu_bf16.STEP // 16
        assert made.ptx.count("mma.sync.aligned.m16n8k16.row.col.f32.bf16") == down * across * steps
        assert made.ptx.count("ldmatrix.sync.aligned.m8n8.x4") == (down + across // 2) * steps
        copied = gpu_bf16._shared_bytes(tile, rows_of_k="weight_grad" in source)
        assert made.ptx.count("cp.async.cg.shared.global") == copied // 16 // tile.threads


@pytest.mark.skipif(not (nvrtc.installed() and disassembly.installed()), reason="no disassembler (envs/kernels.txt)")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("source, defines", sorted(one for one in OWN if one[1]), ids=str)
def test_products_are_a_good_share_of_the_loop(source, defines, architecture):
    bodies = disassembly.bodies(nvrtc.compile_file(KERNELS / source, architecture, defines).cubin)
    found = max(bodies.values(), key=lambda one: one.products)
    least = SHARES[EVERY[source, defines]] * (0.75 if "WHOLE=0" in defines else 1)
    assert found.products >= least * found.instructions, found


@pytest.mark.parametrize("layer", ["enc2", "dec1", "dec3"])
def test_fragments_are_read_without_bank_conflicts(layer):
    step = next(step for step in PLAN.steps if (step.layer, step.operation) == (layer, "rounded_conv2d_forward"))
    (launch,) = step.launches
    arrays = {name: emulator_executor.zeros(PLAN.buffers[name]) for name in launch.buffers}
    arguments = [arrays.get(argument, argument) if isinstance(argument, str) else argument for argument in launch.arguments]
    found = emulator_executor.function(launch).count(launch.grid, launch.block, arguments, launch.shared_bytes, [0], 64, 50_000)
    assert found["shared_loads"]["least"] == found["shared_loads"]["wavefronts"] > 0
    assert found["shared_stores"]["least"] == found["shared_stores"]["wavefronts"] > 0


MISUSES = {
    "no commit": ("        cp_async_commit();\n", "", "missing cp.async wait"),
    "a wait that leaves the step under way": ("cp_async_wait<Tile::STAGES - 2>", "cp_async_wait<Tile::STAGES - 1>",
                                              "missing cp.async wait"),
    "no barrier after the wait": ("        __syncthreads();\n", "", "race"),
    "too few stages": ("Tile::STAGES> copied", "Tile::STAGES - 1> copied", "missing cp.async wait"),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_of_the_copies_is_noticed(name, tmp_path):
    old, new, kind = MISUSES[name]
    text = (KERNELS / "gpu_bf16/stages.cuh").read_text()
    assert text.count(old) == 1
    (tmp_path / "gpu_bf16").mkdir()
    (tmp_path / "gpu_bf16/stages.cuh").write_text(text.replace(old, new))
    tile_text = (KERNELS / "gpu_bf16/tile.cuh").read_text()
    (tmp_path / "gpu_bf16/tile.cuh").write_text(tile_text.replace("gpu_bf16/stages.cuh", "stages.cuh"))   # the one beside it
    (tmp_path / "conv2d.cu").write_text((KERNELS / "gpu_bf16/conv2d.cu").read_text())
    tile = gpu_bf16.SQUARE
    kernel = load(tmp_path / "conv2d.cu", tuple(f"-D{define}" for define in tile.defines(WHOLE=True))).get_function("conv2d")
    x, weight, bias, y = (np.zeros(shape, dtype) for shape, dtype in (
        ((1, 8, 8, 256), np.uint16), ((64, 1, 1, 256), np.uint16), (64, np.float32), ((1, 8, 8, 64), np.float32)))
    with pytest.raises(KernelFault) as fault:
        kernel.watched((1,), (tile.threads,), (x, weight, bias, y, *map(np.int32, (8, 8, 256, 64, 1, 1, 64, 0))),
                       gpu_bf16._shared_bytes(tile))
    assert fault.value.kind == kind
