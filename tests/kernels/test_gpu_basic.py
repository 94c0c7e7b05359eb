"""The kernels of gpu_basic against their definitions in float64, watched in the emulator and
compiled for every GPU.
"""

import numpy as np
import pytest

import needs
import operation_cases
import references
import sparse_memory
from compiled import compiled, without_spills
from cuda_emulator import check
from emulated import KERNELS, load
from kernel_checks import counters, fused, integers, normal, poisoned
from ladder.arithmetic import randomness
from ladder.executors.cuda import nvrtc
from ladder.rungs import gpu_basic
from rung_checks import completed_launches, run_step

FOLDER = KERNELS / "gpu_basic"


def kernel(file, name):
    return load(FOLDER / file).get_function(name)


def blocks(count, size=256):
    return -(-count // size)


def run(file, name, *arguments, count):
    """Check the kernel with one thread for each of `count` elements; ints and floats are passed as
    int32 and float32.
    """
    kinds = {int: np.int32, float: np.float32}
    arguments = tuple(
        kinds[type(value)](value) if type(value) in kinds else value for value in arguments
    )
    check(kernel(file, name), (blocks(count),), (256,), arguments)


# ---- what no step alone shows; tests/operations has the operations


def test_normal_numbers_are_those_of_the_cpu_to_the_last_bit():
    """Of so many words that every branch and rounding is seen; with a variance of 1 they are the
    noise.
    """
    mean = np.zeros((200, 8, 8, 8), np.float32)
    y, noise = poisoned(mean.shape), poisoned(mean.shape)
    run_step(
        gpu_basic.sample_forward,
        {"mean": mean, "log_variance": mean, "counters": counters(3, 0, 0)},
        {"y": y, "noise": noise},
        seed=8,
        stream=2,
    )
    assert np.array_equal(y.ravel(), randomness.normal(8, 18, 3, 0, y.size)) and abs(y).max() > 4


@pytest.mark.parametrize("count, parts", [(1, 1024), (45, 7), (1024, 1024), (5003, 1000)])
def test_a_divergence_is_added_up_in_parts(count, parts):
    for mean, log_variance in (
        (integers(count), np.zeros(count, np.float32)),
        (normal(count), normal(count, seed=1)),
    ):
        partials, padded = poisoned(parts), np.zeros((2, -(-count // parts) * parts))
        run(
            "sample.cu",
            "divergence_partials",
            mean,
            log_variance,
            partials,
            count,
            parts,
            count=parts,
        )
        padded[:, :count] = mean, log_variance
        wanted = references.divergences(*padded.reshape(2, -1, parts).swapaxes(1, 2))
        np.testing.assert_allclose(partials, wanted, rtol=0, atol=1e-5 * log_variance.any())


def test_the_parts_of_a_divergence_are_added_in_double_precision():
    divergences = poisoned(5, np.float64)
    check(
        kernel("sample.cu", "divergence_total"),
        (1,),
        (1,),
        (np.float32([2**24, 1, 1, 1]), counters(7, 0, 2), divergences, np.int32(2), np.int32(4)),
    )
    assert divergences[2] == (2**24 + 3) / 2 and np.isnan(divergences).sum() == 4


# A large number and 256 that float32 loses beside it, one by one.
LOST_IN_FLOAT32 = np.array([2**24, *[1] * 256], np.float32)


def test_sums_over_parts_are_in_float64():
    parts, total = len(LOST_IN_FLOAT32), 2**24 + 256
    column = LOST_IN_FLOAT32[:, None].copy()
    mean = poisoned(1)
    run("batchnorm.cu", "batchnorm_mean", column, mean, 2, 1, parts, count=1)
    assert mean[0] == total / 2

    inverse, running_mean, running_var = (
        poisoned(1),
        np.full(1, 3, np.float32),
        np.full(1, 5, np.float32),
    )
    run(
        "batchnorm.cu",
        "batchnorm_statistics",
        column[1:],
        np.full(1, 0.1, np.float32),
        inverse,
        running_mean,
        running_var,
        3,
        1,
        parts - 1,
        np.float64(0.9),
        np.float64(1e-5),
        count=1,
    )
    assert inverse[0] == np.float32(1 / np.sqrt(256 / 3 + 1e-5))
    assert running_mean[0] == np.float32(0.9 * 3 + (1 - 0.9) * np.float64(np.float32(0.1)))
    assert running_var[0] == np.float32(0.9 * 5 + (1 - 0.9) * 256 / 2)

    odd = total - 1  # no float32
    run(
        "batchnorm.cu",
        "batchnorm_statistics",
        column[:-1],
        mean,
        inverse,
        running_mean,
        running_var,
        6,
        1,
        parts - 1,
        np.float64(0),
        np.float64(0),
        count=1,
    )
    assert running_var[0] == np.float32(odd / 5) != np.float32(np.float32(odd) / np.float64(5))

    both, dweight, dbias = np.stack([column, 2 * column]), poisoned(1), poisoned(1)
    run("batchnorm.cu", "batchnorm_parameter_grads", both, dweight, dbias, 1, parts, count=1)
    assert (dbias[0], dweight[0]) == (total, 2 * total)

    run("conv2d_bias.cu", "conv2d_bias_grad", column, dbias, 1, parts, count=1)
    assert dbias[0] == total


def test_losses_are_added_in_float64():
    parts, total, losses, hits = len(LOST_IN_FLOAT32), 2**24 + 256, np.zeros(1), np.zeros(1)
    check(
        kernel("mse.cu", "mse_total"),
        (1,),
        (1,),
        (LOST_IN_FLOAT32, counters(0), losses, np.int32(3), np.int32(parts)),
    )
    assert losses[0] == total / 3
    rows = np.stack([LOST_IN_FLOAT32, LOST_IN_FLOAT32])
    check(
        kernel("cross_entropy.cu", "cross_entropy_totals"),
        (1,),
        (1,),
        (rows, counters(0), losses, hits, np.int32(parts)),
    )
    assert (losses[0], hits[0]) == (total / parts, total)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_data_set_may_have_more_values_than_32_bits_count(dtype):
    for case in operation_cases.loading(normal, dtype, flip=False):
        images, permutation = case.reads["images"], case.reads["permutation"]
        first = 2**32 // images[0].size + 1
        all_images = sparse_memory.zeros((first + len(images), *images.shape[1:]), images.dtype)
        all_images[first:] = images
        arrays = {
            **case.reads,
            "images": all_images,
            "permutation": permutation + first,
            **case.writes,
        }
        for launch in completed_launches(
            gpu_basic.RUNG.launches[case.operation],
            arrays,
            case.reads,
            case.writes,
            case.operation,
            **case.attributes,
        ):
            arguments = [
                arrays[argument] if isinstance(argument, str) else argument
                for argument in launch.arguments
            ]
            load(KERNELS / launch.source).get_function(launch.entry)(
                launch.grid, launch.block, arguments
            )
        assert np.array_equal(arrays["batch"], case.results()["batch"]), case.operation


# ---- every file

FILES = sorted(path.name for path in FOLDER.glob("*.cu"))


@needs.NVRTC
@pytest.mark.parametrize("file", FILES)
def test_a_gpu_can_run_it(file):
    binary = without_spills(f"gpu_basic/{file}", (), nvrtc.ARCHITECTURES[-1])
    assert sorted(binary.kernels) == sorted(load(FOLDER / file).names)
    for name, resources in binary.kernels.items():
        assert resources.static_shared_bytes == 0, f"{name}: this rung uses global memory only"
        body = binary.ptx.partition(f".entry {name}(")[2]
        assert "st.global" in body.partition(".entry")[0], f"{name} does nothing"


@needs.NVRTC
@pytest.mark.parametrize(
    "file, kernels",
    [
        ("gpu_basic/load_batch.cu", ("load_batch_uint8", "load_batch_float32")),
        *(
            (f"{file}.cu", ("sgd_update", "momentum_update"))
            for file in ("gpu_basic/update", "gpu_opt_v1/update", "gpu_opt_v2/weight_update")
        ),
        (
            "gpu_basic/augmentation.cu",
            ("load_augmented_batch_uint8", "load_augmented_batch_float32"),
        ),
        (
            "gpu_basic/jitter.cu",
            ("draw_jitter", "load_jittered_batch_uint8", "load_jittered_batch_float32"),
        ),
    ],
)
def test_what_is_claimed_to_the_last_bit_has_no_fused_product(file, kernels):
    ptx = compiled(file, (), nvrtc.ARCHITECTURES[-1]).ptx
    assert {name: fused(ptx, name) for name in kernels} == {name: [] for name in kernels}
