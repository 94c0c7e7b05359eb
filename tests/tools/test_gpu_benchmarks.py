"""The GPU benchmarks on a stand-in for CuPy: refusals, records, and the ladder's table."""

import json
import shutil
import sys

import numpy as np
import pytest

import fake_cupy
from ladder.errors import UserError
from ladder.executors.cuda import executor as cuda_executor
from ladder.executors.cuda import nvrtc
from ladder.machine import driver
from ladder.network import layers, networks
from ladder.sources import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu  # noqa: E402
import kernel  # noqa: E402
import roofline  # noqa: E402
import table  # noqa: E402
import timing  # noqa: E402

NETWORK = networks.resolve("small", (4, 4, 3), (layers.conv2d("a", 4), layers.relu("a_relu"), layers.maxpool2d("a_pool"),
                                               layers.upsample2d("up"), layers.conv2d("b", 3)), "a_pool", "mse")

LABELLED = networks.resolve("labelled", (4, 4, 3), (
    layers.conv2d("a", 4, stride=2, bias=False), layers.batchnorm("a_bn"), layers.flatten("flat"), layers.dropout("drop", 0.5),
    layers.dense("scores", 5)), "flat", "cross_entropy")


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A made-up GPU on which every launch takes a millisecond, and measurements that end at once."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ (Debian package: g++)")
    for name, value in {"FLUSH_BYTES": 4096, "COPY_BYTES": 4096, "COPIES": 2, "ROUNDS": 2, "BLOCKS": 2, "LOOPS": 2}.items():
        monkeypatch.setattr(timing, name, value)
    monkeypatch.setattr(kernel, "WARM_UP", 1)
    monkeypatch.setattr(kernel, "REPETITIONS", 3)
    cases = {"AUTOENCODERS": tuple(gpu.Case("small", (4, 4, 3), batch, 8, 4) for batch in (2, 3)),
             "OTHERS": (gpu.Case("labelled", (4, 4, 3), 2, 7, 3),),
             "MULTIPLIED": tuple(gpu.Case("labelled", (4, 4, 3), 2, 7, 3, multiplier=name)
                                 for name in ("exact", "am32", "fp16"))}
    for name, value in {"ROWS": 12, "WARM_UP": 1, **cases}.items():
        monkeypatch.setattr(gpu, name, value)
    monkeypatch.setattr(gpu.networks, "build", lambda name, input_shape: {"small": NETWORK, "labelled": LABELLED}[name])
    monkeypatch.setattr(driver, "sm_clock", lambda: 1500)
    (tmp_path / "cache").mkdir()
    yield fake_cupy.install(monkeypatch, tmp_path / "cache")
    cuda_executor._cupy.cache_clear()


# ---- roofline

def test_a_steps_bytes_are_its_inputs_and_outputs_once():
    made = table.step_plan("gpu_basic", 8)
    step = next(step for step in made.steps if step.operation == "conv2d_forward" and step.layer == "enc2")
    images, weights = 8 * 16 * 16 * (256 + 128) * 4, (128 * 9 * 256 + 128) * 4
    assert roofline.step_bytes(made, step) == images + weights
    load = next(step for step in made.steps if step.operation == "load_batch")
    assert roofline.step_bytes(made, load) == 8 * 32 * 32 * 3 * (1 + 4)   # of 50,000 images eight


def test_the_prediction_is_the_longer_of_both_times():
    made = table.step_plan("gpu_basic", 8)
    for ceilings, bound in ((roofline.Ceilings("", 1, 1e30), "FLOP"), (roofline.Ceilings("", 1e30, 1), "bytes")):
        seconds = roofline.plan_seconds(made, ceilings)
        assert roofline.bound_by(made, ceilings) == bound
        assert seconds == pytest.approx(made.flop if bound == "FLOP" else roofline.plan_bytes(made))


@pytest.mark.parametrize("seconds, refused", [(1.0, False), (0.95, False), (0.85, True)])
def test_a_time_below_the_floor_is_impossible(seconds, refused):
    ceilings = roofline.Ceilings("", 1e12, 1e9)
    for flop, cold in ((1e12, 0), (0, 1e9), (1e12, 1e9)):
        assert bool(roofline.impossible(seconds, flop, cold, ceilings)) == refused


def test_from_rung_to_rung_launches_and_bytes_fall():
    plans = [table.step_plan(variant, 64) for variant in ("gpu_basic", "gpu_opt_v1", "gpu_opt_v2")]
    for measure in (roofline.plan_bytes, lambda made: sum(len(step.launches) for step in made.steps)):
        values = [measure(made) for made in plans]
        assert values[0] > values[1] > values[2], values


@pytest.mark.skipif(not nvrtc.installed(), reason="NVRTC is not installed (envs/kernels.txt)")
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_the_ceilings_kernel_is_multiply_adds_from_registers(architecture):
    compiled = nvrtc.compile_file(timing.HERE / "ceilings.cu", architecture)
    resources = compiled.kernels["multiply_add"]
    assert resources.spill_bytes == resources.stack_bytes == 0
    assert compiled.ptx.count("fma.rn.f32") >= 128


# ---- one kernel

@pytest.mark.parametrize("arguments", ["conv2d_forward --shape 2 5 7 3 4", "conv2d_input_grad --shape 2 5 6 3 4 5 2",
                                       "conv2d_weight_grad --shape 3 4 4 2 5", "maxpool2d_backward --shape 2 6 4 3",
                                       "relu_forward --shape 2 3 3 2", "upsample2d_backward --shape 2 3 3 2",
                                       "conv2d_weight_grad --shape 2 7 6 3 4 5 2 2", "dense_input_grad --shape 3 1 1 7 5",
                                       "batchnorm_forward --shape 2 3 4 5", "batchnorm_backward --shape 2 3 4 5",
                                       "dropout_forward --shape 2 3 3 2", "lrn_backward --shape 2 3 3 7",
                                       "add_forward --shape 2 3 3 2", "flatten_backward --shape 2 3 3 2"])
def test_an_operation_is_timed_and_its_result_checked(machine, capsys, arguments):
    kernel.main([*arguments.split(), "--rung", "gpu_basic"])
    first, _, record = capsys.readouterr().out.partition("\n")
    record = json.loads(record)
    assert "predicted for an H200" in first
    launches = int(first.partition(" launches")[0].rpartition(" ")[2])
    assert record["median_us"] == 1000 * launches and record["repetitions"] == 3 and record["mhz"] == 1500
    assert record["relative_error"] <= 1e-6 and record["torch_us"] is None


def test_a_wrong_result_is_refused(machine, monkeypatch):
    run_once = kernel.run_once

    def without_it(executor, case, arrays, clock, flush):
        arrays.launches[case.step] = arrays.launches[0]   # every step of this plan is one launch
        run_once(executor, case, arrays, clock, flush)

    monkeypatch.setattr(kernel, "run_once", without_it)
    with pytest.raises(SystemExit, match="conv2d_forward is wrong: relative error"):
        kernel.main(["conv2d_forward", "--rung", "gpu_basic", "--shape", "2", "4", "4", "3", "4"])


def test_an_impossible_time_is_refused(machine, monkeypatch):
    monkeypatch.setattr(timing, "ceilings", lambda executor: roofline.Ceilings("slow", 1e3, 1e3))
    with pytest.raises(SystemExit, match="1000.0 us is impossible"):
        kernel.main(["conv2d_forward", "--rung", "gpu_basic", "--shape", "2", "4", "4", "3", "4"])


def test_the_cache_is_flushed_before_each_timed_repetition(machine, monkeypatch):
    flushed = []
    monkeypatch.setattr(timing, "flusher", lambda executor: lambda: flushed.append(len(machine.launched)))
    kernel.main(["relu_forward", "--rung", "gpu_basic", "--shape", "2", "3", "3", "2"])
    timed = [number for number, (name, _) in enumerate(machine.launched) if name == "relu_forward"]
    assert flushed == timed[-3:]


@pytest.mark.parametrize("shape, one", [([2, 8, 8, 4, 5], "conv2d_forward"), ([2, 8, 8, 4, 5, 3, 1, 2], "conv2d_forward"),
                                        ([2, 8, 8, 4], "global_avgpool_forward"), ([2, 1, 1, 4], "add_forward")], ids=str)
@pytest.mark.parametrize("variant", table.gpu_rungs())
def test_every_operation_of_a_rung_can_be_planned(variant, shape, one):
    with pytest.raises(UserError, match="has no operation nothing .* it has (.*)") as error:
        kernel.find("nothing", variant, shape)
    names = str(error.value).rpartition("it has ")[2].split(", ")
    assert one in names
    for name in names:
        assert kernel.find(name, variant, shape).operation.operation == name


def test_without_a_gpu_a_kernel_says_so_and_plans_all_the_same(capsys):
    arguments = ["conv2d_forward", "--rung", "gpu_basic", "--shape", "64", "16", "16", "256", "128"]
    kernel.main([*arguments, "--dry-run"])
    assert "9.66 GFLOP" in capsys.readouterr().out
    if driver.gpu_count() == 0:
        with pytest.raises(SystemExit, match="needs an NVIDIA GPU"):
            kernel.main(arguments)


@pytest.mark.parametrize("shape", [["1", "2"], ["1", "2", "3", "4", "5", "6"], ["0", "2", "3", "4"],
                                   ["1", "2", "3", "4", "5", "3", "0", "0"]])
def test_a_wrong_shape_is_refused(shape, capsys):
    with pytest.raises(SystemExit):
        kernel.main(["relu_forward", "--rung", "gpu_basic", "--shape", *shape])
    assert "4, 5, 7 or 8 numbers" in capsys.readouterr().err


# ---- the record

def test_the_record_has_every_section_and_makes_the_table(machine, tmp_path):
    gpu.main(["--out", str(tmp_path / "record.json"), "--rungs", "gpu_basic"])
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["left_out"] == []
    assert record["machine"]["gpu"] == "Fake" and record["machine"]["torch"] is None
    assert record["ceilings"]["copy_bytes_per_second"] == pytest.approx(2 * 4096 / 1e-3)
    assert record["ceilings"]["fp32_flop_per_second"] == pytest.approx(2 * 16 * 8 * 2 * 512 / 1e-3)
    assert record["parity"]["gpu_basic"]["passed"]
    assert [row["batch"] for row in record["steps"]] == [2, 3]
    first = record["steps"][0]
    assert first["median_us"] == 1000 * first["launches"] and first["repetitions"] == 4 and first["mhz"] == 1500
    assert first["scaled_epoch_seconds"] == pytest.approx(4 * first["median_us"] / 1e6)
    assert record["extraction"][0]["images"] == 12
    assert first["driver_bytes"] >= first["planned_bytes"] > 0
    other = record["networks"]["labelled"]
    assert other["parity"]["gpu_basic"]["passed"] and other["parity"]["gpu_basic"]["parity"]["sgd"]["tolerance"] == 8e-3
    assert [(row["batch"], row["repetitions"], row["same_bytes_twice"]) for row in other["steps"]] == [(2, 3, True)]
    assert other["steps"][0]["scaled_epoch_seconds"] == pytest.approx(4 * other["steps"][0]["median_us"] / 1e6)
    exact, am32, fp16 = record["multipliers"]
    assert (exact["multiplier"], am32["multiplier"], fp16["multiplier"]) == ("exact", "am32", "fp16")
    assert exact["launches"] == am32["launches"] < fp16["launches"]   # which scales its gradients


def test_nothing_starts_after_the_deadline(machine, tmp_path):
    gpu.main(["--out", str(tmp_path / "record.json"), "--rungs", "gpu_basic", "--minutes", "0"])
    record = json.loads((tmp_path / "record.json").read_text())
    assert "steps" not in record and all(one.endswith("out of time") for one in record["left_out"])
    assert record["machine"] and record["ceilings"]   # written before


def test_a_step_that_is_too_fast_is_left_out_and_the_rest_goes_on(machine, monkeypatch, tmp_path):
    monkeypatch.setattr(timing, "ceilings", lambda executor: roofline.Ceilings("slow", 1e3, 1e3))
    gpu.main(["--out", str(tmp_path / "record.json"), "--rungs", "gpu_basic"])
    record = json.loads((tmp_path / "record.json").read_text())
    assert "steps" not in record and "extraction" in record
    assert any("is impossible" in one for one in record["left_out"])


def test_steps_that_are_not_reproducible_are_left_out(machine, monkeypatch, tmp_path):
    fetch, calls = cuda_executor.Executor.fetch, []

    def noisy(self, array):
        calls.append(array)
        return fetch(self, array) + np.float32(len(calls))

    monkeypatch.setattr(cuda_executor.Executor, "fetch", noisy)
    gpu.main(["--out", str(tmp_path / "record.json"), "--rungs", "gpu_basic"])
    left_out = json.loads((tmp_path / "record.json").read_text())["left_out"]
    assert any("two runs of the same steps end in different bytes" in one for one in left_out)


def test_a_dry_run_prints_every_rung_and_measures_nothing(capsys):
    gpu.main(["--dry-run"])
    output = capsys.readouterr().out
    lines = [line.split()[:3] for line in output.splitlines()]
    for variant in table.gpu_rungs():
        for name, batch in (("autoencoder", "512"), ("lenet_5", "64"), ("resnet18", "128"), ("resnet50", "32")):
            assert [name, variant, batch] in lines
    assert "nothing here was measured" in output


@pytest.mark.parametrize("arguments, words", [([], "--out"), (["--out", "x.json", "--rungs", "cpu"], "cpu is no GPU rung")])
def test_wrong_arguments_are_refused(arguments, words, capsys):
    with pytest.raises(SystemExit):
        gpu.main(arguments)
    assert words in capsys.readouterr().err


# ---- the table

def test_the_committed_table_is_up_to_date(monkeypatch):
    text = table.README.read_text()
    assert table.with_table(text, table.table(table.newest_record(ROOT / "benchmarks"))) == text


def test_missing_measurements_are_marked():
    rows = table.table({}).splitlines()
    assert all(row.count(table.NOT_MEASURED) == 7 for row in rows[2:2 + len(table.gpu_rungs())])


def test_measured_columns_come_from_the_newest_record(tmp_path):
    steps = [{"variant": "gpu_basic", "batch": 64, "median_us": 4000.0, "low_us": 3900.0, "high_us": 4200.0, "mhz": 1980},
             {"variant": "gpu_opt_v1", "batch": 64, "median_us": 2000.0, "low_us": 1990.0, "high_us": 2010.0, "mhz": 1975}]
    record = {"kind": "gpu", "made": "2026-02-01T00:00:00Z", "machine": {"device": "NVIDIA H200"}, "steps": steps,
              "ceilings": {"fp32_flop_per_second": 60e12}, "torch": [{"name": "eager fp32", "batch": 64, "median_us": 3000.0}],
              "parity": {"gpu_basic": {"parity": {"sgd": {"largest": 1e-4, "tolerance": 2e-3}}}}}
    (tmp_path / "old.json").write_text(json.dumps(record | {"made": "2026-01-01T00:00:00Z", "steps": []}))
    (tmp_path / "new.json").write_text(json.dumps(record))
    (tmp_path / "cpu.json").write_text(json.dumps({"rows": []}))
    made = table.table(table.newest_record(tmp_path))
    basic, better = made.splitlines()[2:4]
    assert basic.endswith("| 4000 (3900-4200) | 1980 | 16.5 | 28 | 75 |  | 1.0e-04 / 2e-03 |")
    assert "| 2000 (1990-2010) | 1975 |" in better and "| 150 | 2.00 | not measured |" in better
    assert "Measured 2026-02-01 on NVIDIA H200." in made and "resnet18" not in made


def test_other_networks_of_a_record_have_a_table_of_their_own():
    step = {"batch": 128, "low_us": 7900.0, "high_us": 8100.0, "launches": 300, "flop": 426e9, "tflop_per_second": 53.25,
            "scaled_epoch_seconds": 3.128}
    section = {"batch": 128, "torch": [{"name": "eager fp32", "batch": 128, "median_us": 6000.0}],
               "steps": [{**step, "variant": "gpu_opt_v2", "median_us": 8000.0},
                         {**step, "variant": "gpu_basic", "median_us": 60000.0}],
               "parity": {"gpu_opt_v2": {"parity": {"sgd": {"largest": 1e-5, "tolerance": 8e-3}}}}}
    assert table.others({"networks": {"resnet18": section}})[2:] == [
        "| resnet18 | 128 | gpu_basic | 300 | 426.0 | 60000 (7900-8100) | 53.2 | 3.13 | 10 | not measured |",
        "| resnet18 | 128 | gpu_opt_v2 | 300 | 426.0 | 8000 (7900-8100) | 53.2 | 3.13 | 75 | 1.0e-05 / 8e-03 |", ""]
    assert table.others({"networks": {"resnet18": {"batch": 128}}}) == table.others({}) == []


def test_multipliers_of_a_record_have_a_table_of_their_own_with_ratios_to_the_fastest_exact_rung():
    rows = [{"multiplier": multiplier, "variant": variant, "median_us": median, "low_us": 1.0, "high_us": 2.0}
            for multiplier, variant, median in (("am32", "gpu_gemm", 30000.0), ("exact", "gpu_opt_v2", 12000.0),
                                                ("exact", "gpu_gemm", 10000.0))]
    assert table.multiplied({"multipliers": rows})[2:] == [
        "| exact | gpu_opt_v2 | 12000 (1-2) | 1.20 |", "| exact | gpu_gemm | 10000 (1-2) | 1.00 |",
        "| am32 | gpu_gemm | 30000 (1-2) | 3.00 |", ""]
    assert table.multiplied({"multipliers": rows[:1]})[2].endswith("| not measured |")
    assert table.multiplied({}) == []


def test_a_text_without_markers_is_refused():
    with pytest.raises(ValueError, match="there are no lines"):
        table.with_table("nothing", "")
