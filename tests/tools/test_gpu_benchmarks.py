"""The roofline, and the benchmark of one kernel on a stand-in for CuPy."""

import dataclasses
import json
import shutil

import pytest

import cases
import fake_cupy
import kernel
import needs
import roofline
import table
import timing
from ladder.errors import UserError
from ladder.executors.cuda import executor as cuda_executor
from ladder.executors.cuda import nvrtc
from ladder.machine import driver
from ladder.rungs import catalog


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A made-up GPU on which every launch takes a millisecond, and measurements that end at
    once.
    """
    if shutil.which("g++") is None:
        pytest.skip("no g++ (Debian package: g++)")
    for name, value in {
        "FLUSH_BYTES": 4096,
        "COPY_BYTES": 4096,
        "COPIES": 2,
        "ROUNDS": 2,
        "BLOCKS": 2,
        "LOOPS": 2,
    }.items():
        monkeypatch.setattr(timing, name, value)
    monkeypatch.setattr(kernel, "WARM_UP", 1)
    monkeypatch.setattr(kernel, "REPETITIONS", 3)
    monkeypatch.setattr(driver, "sm_clock", lambda: 1500)
    monkeypatch.setattr(driver, "gpu_size", lambda: driver.Size(108, 1.41e9, 1.2e9, 5120, 40 << 20))
    (tmp_path / "cache").mkdir()
    yield fake_cupy.install(monkeypatch, tmp_path / "cache")
    cuda_executor._cupy.cache_clear()


# ---- roofline


def test_a_steps_bytes_are_its_inputs_and_outputs_once():
    made = table.step_plan("gpu_basic", 8)
    step = next(
        step for step in made.steps if step.operation == "conv2d_forward" and step.layer == "enc2"
    )
    images, weights = 8 * 16 * 16 * (256 + 128) * 4, (128 * 9 * 256 + 128) * 4
    assert roofline.step_bytes(made, step) == images + weights
    load = next(step for step in made.steps if step.operation == "load_batch")
    assert roofline.step_bytes(made, load) == 8 * 32 * 32 * 3 * (1 + 4)  # of 50,000 images eight


def test_the_prediction_is_the_longer_of_both_times():
    made = table.step_plan("gpu_basic", 8)
    assert roofline.plan_seconds(made, roofline.Ceilings("", 1, 1e30)) == pytest.approx(made.flop)
    assert roofline.plan_seconds(made, roofline.Ceilings("", 1e30, 1)) == pytest.approx(
        roofline.plan_bytes(made)
    )


@pytest.mark.parametrize("seconds, refused", [(1.0, False), (0.95, False), (0.85, True)])
def test_a_time_below_the_floor_is_impossible(seconds, refused):
    ceilings = roofline.Ceilings("", 1e12, 1e9)
    for flop, cold in ((1e12, 0), (0, 1e9), (1e12, 1e9)):
        assert bool(roofline.impossible(seconds, flop, cold, ceilings)) == refused


@pytest.mark.parametrize(
    "architecture, size, tflops, bandwidth",
    [
        (
            "sm_90",
            driver.Size(132, 1.98e9, 3.201e9, 6144, 0),
            {"fp32": 67, "tf32": 535, "bf16": 1071, "fp16": 1071},
            4.9e12,
        ),  # H200
        (
            "sm_80",
            driver.Size(108, 1.41e9, 1.215e9, 5120, 0),
            {"fp32": 19.5, "tf32": 156, "bf16": 312, "fp16": 312},
            1.56e12,
        ),  # A100, 40 GB
        ("sm_75", driver.Size(40, 1.59e9, 5.001e9, 256, 0), {"fp32": 8.1, "fp16": 65}, 320e9),
    ],
)  # T4
def test_peaks_are_those_of_the_datasheets(architecture, size, tflops, bandwidth):
    found = {
        precision: roofline.peak(architecture, size, precision)
        for precision in (*cases.PRECISIONS, "fp16")
    }
    assert {name: peak.flop / 1e12 for name, peak in found.items() if peak} == pytest.approx(
        tflops, rel=0.01
    )
    assert found["fp32"].bytes == pytest.approx(bandwidth, rel=0.01)


def test_the_peak_of_a_rung_is_that_of_the_instructions_of_its_products():
    of_each = [
        cases.products(rung)
        for rung in "gpu_gemm gpu_3xtf32 gpu_tf32 gpu_bf16 gpu_f16 gpu_3xf16_sm90".split()
    ]
    assert of_each == list(roofline.H200)
    assert [
        cases.precision(rung) for rung in ("gpu_3xtf32", "gpu_tf32", "gpu_bf16", "gpu_f16")
    ] == list(cases.PRECISIONS)
    size = driver.Size(132, 1.98e9, 3.201e9, 6144, 0)
    found = {
        architecture: {
            products: roofline.peak(architecture, size, products) for products in roofline.H200
        }
        for architecture in ("sm_75", "sm_86", "sm_90")
    }
    for products, parts in roofline.SPLIT.items():
        assert found["sm_90"][products].flop == pytest.approx(found["sm_90"][parts].flop / 3)
    # what stays on the float32 units is faster there
    assert found["sm_86"]["3xtf32"].flop == found["sm_86"]["fp32"].flop
    assert found["sm_75"]["3xtf32"] is found["sm_75"]["bf16"] is None
    assert (
        roofline.rate({"tf32": 30.0}, "3xtf32") == 10
        and roofline.rate({"tf32": 30.0, "fp32": 13.0}, "3xtf32") == 13
    )


def test_a_rung_is_compared_with_the_nearest_below_of_its_precision():
    # the last two have none
    rungs = "gpu_basic", "gpu_gemm", "gpu_3xtf32_packed", "gpu_bf16_sm90", "gpu_tf32", "gpu_f16"
    assert [table.compared(rung) for rung in rungs] == [
        None,
        "gpu_opt_v1",
        "gpu_3xtf32",
        "gpu_bf16",
        "gpu_3xtf32",
        "gpu_bf16",
    ]


@pytest.mark.parametrize(
    "below, products", [("gpu_gemm", "fp32"), ("gpu_3xtf32", "3xtf32"), ("gpu_bf16", "bf16")]
)
def test_an_own_rung_makes_its_products_as_the_one_below(monkeypatch, below, products):
    own = dataclasses.replace(catalog.RUNGS[below], below=below, role="own")
    monkeypatch.setitem(catalog.RUNGS, "mine", own)
    assert cases.products("mine") == products


def test_what_is_not_known_of_a_gpu_sets_no_limit():
    size = driver.Size(108, 1.41e9, 0, 5120, 0)
    assert roofline.peak("sm_999", size, "fp32") is None
    assert roofline.peak("sm_80", dataclasses.replace(size, hertz=0), "fp32") is None
    # no memory clock
    assert roofline.impossible(1e-9, 0, 1e12, roofline.peak("sm_80", size, "fp32")) is None


def test_from_rung_to_rung_launches_and_bytes_fall():
    plans = [table.step_plan(rung, 64) for rung in ("gpu_basic", "gpu_opt_v1", "gpu_opt_v2")]
    for measure in (
        roofline.plan_bytes,
        lambda made: sum(len(step.launches) for step in made.steps),
    ):
        values = [measure(made) for made in plans]
        assert values[0] > values[1] > values[2], values


@needs.NVRTC
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_the_ceilings_kernel_is_multiply_adds_from_registers(architecture):
    compiled = nvrtc.compile_file(timing.HERE / "ceilings.cu", architecture)
    resources = compiled.kernels["multiply_add"]
    assert resources.spill_bytes == resources.stack_bytes == 0
    assert compiled.ptx.count("fma.rn.f32") >= 128


# ---- one kernel


@pytest.mark.parametrize(
    "arguments",
    [
        "conv2d_forward --shape 2 5 7 3 4",
        "conv2d_input_grad --shape 2 5 6 3 4 5 2",
        "conv2d_weight_grad --shape 3 4 4 2 5",
        "maxpool2d_backward --shape 2 6 4 3",
        "relu_forward --shape 2 3 3 2",
        "upsample2d_backward --shape 2 3 3 2",
        "conv2d_weight_grad --shape 2 7 6 3 4 5 2 2",
        "dense_input_grad --shape 3 1 1 7 5",
        "batchnorm_forward --shape 2 3 4 5",
        "batchnorm_backward --shape 2 3 4 5",
        "dropout_forward --shape 2 3 3 2",
        "lrn_backward --shape 2 3 3 7",
        "add_forward --shape 2 3 3 2",
        "flatten_backward --shape 2 3 3 2",
    ],
)
def test_an_operation_is_timed_and_its_result_checked(machine, capsys, arguments):
    kernel.main([*arguments.split(), "--rung", "gpu_basic"])
    first, _, record = capsys.readouterr().out.partition("\n")
    record = json.loads(record)
    assert "predicted for an H200" in first
    launches = int(first.partition(" launches")[0].rpartition(" ")[2])
    assert (
        record["median_us"] == 1000 * launches
        and record["repetitions"] == 3
        and record["mhz"] == 1500
    )
    assert record["relative_error"] <= 1e-6 and record["torch_us"] is None


def test_the_gradient_that_a_measurement_fills_in_is_packed_by_a_step_of_its_own():
    """There is no loss that would pack it."""
    steps = kernel.find(
        "rounded_conv2d_weight_grad", "gpu_bf16", [2, 8, 8, 64, 40, 3, 1, 1]
    ).plan.steps
    (packing,) = (step for step in steps if step.operation == "conv2d_round_gradient")
    (product,) = (
        step
        for step in steps
        if step.operation == "rounded_conv2d_weight_grad" and step.layer == "layer"
    )
    assert (
        packing.reads["dy"] == "layer.gradient" and product.reads["dy"] == packing.writes["rounded"]
    )


def test_a_wrong_result_is_refused(machine, monkeypatch):
    run_once = kernel.run_once

    def without_it(executor, case, arrays, clock, flush):
        arrays.steps = [
            arrays.steps[0] if number == case.step else step
            for number, step in enumerate(arrays.steps)
        ]
        run_once(executor, case, arrays, clock, flush)

    monkeypatch.setattr(kernel, "run_once", without_it)
    with pytest.raises(SystemExit, match="conv2d_forward is wrong: relative error"):
        kernel.main(["conv2d_forward", "--rung", "gpu_basic", "--shape", "2", "4", "4", "3", "4"])


def test_an_impossible_time_is_refused(machine, monkeypatch):
    monkeypatch.setattr(driver, "gpu_size", lambda: driver.Size(1, 1e3, 1e3, 8, 0))
    with pytest.raises(SystemExit, match="1000.0 us is impossible"):
        kernel.main(["conv2d_forward", "--rung", "gpu_basic", "--shape", "2", "4", "4", "3", "4"])


def test_the_cache_is_flushed_before_each_timed_repetition(machine, monkeypatch):
    flushed = []
    monkeypatch.setattr(
        timing, "flusher", lambda executor: lambda: flushed.append(len(machine.launched))
    )
    kernel.main(["relu_forward", "--rung", "gpu_basic", "--shape", "2", "3", "3", "2"])
    timed = [number for number, (name, _) in enumerate(machine.launched) if name == "relu_forward"]
    assert flushed == timed[-3:]


@pytest.mark.parametrize(
    "shape, one",
    [
        ([2, 8, 8, 4, 5], "conv2d_forward"),
        ([2, 8, 8, 4, 5, 3, 1, 2], "conv2d_forward"),
        ([2, 8, 8, 4], "global_avgpool_forward"),
        ([2, 1, 1, 4], "add_forward"),
    ],
    ids=str,
)
@pytest.mark.parametrize("rung", table.gpu_rungs())
def test_every_operation_of_a_rung_can_be_planned(rung, shape, one):
    with pytest.raises(UserError, match="has no operation nothing .* it has (.*)") as error:
        kernel.find("nothing", rung, shape)
    names = str(error.value).rpartition("it has ")[2].split(", ")
    assert one in names
    for name in names:
        assert kernel.find(name, rung, shape).operation.operation == name


def test_without_a_gpu_a_kernel_says_so_and_plans_all_the_same(capsys):
    arguments = ["conv2d_forward", "--rung", "gpu_basic", "--shape", "64", "16", "16", "256", "128"]
    kernel.main([*arguments, "--dry-run"])
    assert "9.66 GFLOP" in capsys.readouterr().out
    if driver.gpu_count() == 0:
        with pytest.raises(SystemExit, match="needs an NVIDIA GPU"):
            kernel.main(arguments)


@pytest.mark.parametrize(
    "shape",
    [
        ["1", "2"],
        ["1", "2", "3", "4", "5", "6"],
        ["0", "2", "3", "4"],
        ["1", "2", "3", "4", "5", "3", "0", "0"],
    ],
)
def test_a_wrong_shape_is_refused(shape, capsys):
    with pytest.raises(SystemExit):
        kernel.main(["relu_forward", "--rung", "gpu_basic", "--shape", *shape])
    assert "4, 5, 7 or 8 numbers" in capsys.readouterr().err
