"""The GPU benchmarks on a stand-in for CuPy: refusals, records, and the ladder's table."""

import dataclasses
import json
import os
import shutil
import sys

import numpy as np
import pytest

import fake_cupy
import small_networks
from ladder.errors import UserError
from ladder.executors.cuda import executor as cuda_executor
from ladder.executors.cuda import nvrtc
from ladder.machine import driver
from ladder.sources import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import cases  # noqa: E402
import gpu  # noqa: E402
import kernel  # noqa: E402
import race  # noqa: E402
import record as record_module  # noqa: E402
import roofline  # noqa: E402
import rung_work  # noqa: E402
import sections  # noqa: E402
import table  # noqa: E402
import timing  # noqa: E402
from cases import Case  # noqa: E402

@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A made-up GPU on which every launch takes a millisecond, and measurements that end at once."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ (Debian package: g++)")
    for name, value in {"FLUSH_BYTES": 4096, "COPY_BYTES": 4096, "COPIES": 2, "ROUNDS": 2, "BLOCKS": 2, "LOOPS": 2}.items():
        monkeypatch.setattr(timing, name, value)
    monkeypatch.setattr(kernel, "WARM_UP", 1)
    monkeypatch.setattr(kernel, "REPETITIONS", 3)
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

SMALL = {"HEADLINES": tuple(Case("small", (4, 4, 3), batch, 8) for batch in (2, 3)), "LARGE": Case("small", (4, 4, 3), 4, 8),
         "OTHERS": (Case("labelled", (4, 4, 3), 2, 7),), "MULTIPLIED": Case("labelled", (4, 4, 3), 2, 7)}
RACED = "race: small, batch 2"


def set_up(patch, folder, modules):
    """measure(*arguments, rungs, faults) makes a record of small networks in `folder` with these worker modules, and returns it.

    faults: see fake_faults.py; a double underscore stands for a space.
    """
    (folder / "fake").mkdir()
    for name, value in {**SMALL, "MULTIPLIERS": ("exact", "fp16")}.items():
        patch.setattr(sections, name, value)
    for name, value in {"TURNS": 2, "TURN_SECONDS": 0.002, "FEWEST_STEPS": 1}.items():
        patch.setattr(race, name, value)
    patch.setattr(gpu, "MODULES", modules)
    patch.setattr(gpu, "find_torch", lambda: sys.executable)
    patch.setattr(gpu.variants, "no_gpu", lambda: None)
    patch.setattr(gpu, "state", lambda machine: {"clocks.sm": "1500"})
    patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT / "tests/support", ROOT / "workflow/scripts"))))
    patch.setenv("FAKE_FOLDER", str(folder / "fake"))

    def measure(*arguments, rungs="gpu_basic,gpu_gemm", **faults):
        patch.setenv("FAULTS", json.dumps({name.replace("__", " "): kind for name, kind in faults.items()}))
        gpu.main(["--out", str(folder / "out"), "--rungs", rungs, *arguments])
        return json.loads((folder / "out/record.json").read_text())

    return measure


@pytest.fixture
def measure(monkeypatch, tmp_path):
    """A measure() whose steps take made-up times."""
    return set_up(monkeypatch, tmp_path, {"rungs": "pretend_work", "torch": "pretend_work"})


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """A record whose rungs run in the emulator."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ (Debian package: g++)")
    with pytest.MonkeyPatch.context() as patch:
        measure = set_up(patch, tmp_path_factory.mktemp("record"), {"rungs": "fake_rung_work", "torch": "pretend_work"})
        yield measure()


def results(record):
    return {name: section["result"] for name, section in record["sections"].items() if "result" in section}


def failures(record):
    return {name: section["failed"] for name, section in record["sections"].items() if "failed" in section}


def test_the_record_has_every_section_the_headline_first(emulated):
    record, found, names = emulated, results(emulated), list(emulated["sections"])
    assert record["left_out"] == [] and list(failures(record)) == ["svm"] and "needs an NVIDIA GPU" in failures(record)["svm"]
    assert record["machine"]["gpu"] == "Fake" and found["PyTorch"]["torch"] == "0.0"
    assert found["ceilings"]["copy_bytes_per_second"] == pytest.approx(2 * 4096 / 1e-3)
    assert found["ceilings"]["fp32_flop_per_second"] == pytest.approx(2 * 16 * 8 * 2 * 512 / 1e-3)
    assert found["ceilings"]["peak_flop_per_second"]["bf16"] == pytest.approx(2048 * 108 * 1.41e9)
    order = [names.index(name) for name in ("parity: small, gpu_gemm", RACED, "race: small, batch 3", "epoch: gpu_gemm", "svm",
                                            "parity: labelled, gpu_basic", "race: labelled, batch 2", "race: small, batch 4",
                                            "race: labelled, batch 2, fp16")]
    assert order == sorted(order)
    assert found["parity: small, gpu_basic"]["passed"] and found["parity: labelled, gpu_gemm"]["passed"]
    assert all(section["before"] == section["after"] == {"clocks.sm": "1500"} for section in record["sections"].values())


def test_a_race_has_the_rungs_and_the_best_of_pytorch_by_precision(emulated):
    found = results(emulated)
    assert len([name for name in found if name.startswith("first look: ")]) == 24
    rows = {row["name"]: row for row in found[RACED]["rows"]}
    best = [f"PyTorch {precision} compiled channels_last graph" for precision in ("fp32", "tf32", "bf16")]
    assert list(rows) == ["gpu_gemm", "gpu_basic", *best]
    row = rows["gpu_basic"]
    assert row["median_us"] == row["low_us"] == row["high_us"] == 1000 * row["launches"]   # each takes a millisecond
    assert row["turns_us"] == [row["median_us"]] * 2 and row["mhz"] == 1500 and row["same_bytes_twice"]
    assert row["scaled_epoch_seconds"] == pytest.approx(4 * row["median_us"] / 1e6)
    assert row["tflop_per_second"] == pytest.approx(row["flop"] / row["median_us"] / 1e6)
    assert row["driver_bytes"] >= row["planned_bytes"] > 0 and row["precision"] == "fp32"
    assert [rows[name]["median_us"] for name in best] == [4000, 2000, 1000]
    second = [row["name"] for row in found["race: small, batch 3"]["rows"] if row["precision"] == "tf32"]
    assert second == [best[1], "PyTorch tf32 compiled contiguous graph"]   # the two fastest first looks
    exact, fp16 = (found[f"race: labelled, batch 2{name}"]["rows"] for name in ("", ", fp16"))
    assert fp16[0]["launches"] > next(row for row in exact if row["name"] == "gpu_gemm")["launches"]   # gradients are scaled


def test_whole_runs_are_of_the_best_of_each_precision(emulated):
    found = results(emulated)
    best = min(found[RACED]["rows"][:2], key=lambda row: row["median_us"])["name"]
    wholes = [name for name in found if name.startswith("epoch: ")]
    assert wholes == [f"epoch: {best}", *(f"epoch: PyTorch {one} compiled channels_last graph" for one in ("fp32", "tf32", "bf16"))]
    assert found[f"epoch: {best}"]["steps"] == 4 and len(found[f"epoch: {best}"]["losses"]) == 2
    assert found[f"extraction: {best}"]["images"] == 12
    streamed = found[f"streaming: {best}"]
    assert streamed["copy_us"] == 1000 and 0 <= streamed["hidden_share"] <= 1


@pytest.mark.parametrize("kind, reason", [("die", "the process was ended by SIGKILL"),
                                          ("out of memory", "RuntimeError: out of memory"),
                                          ("illegal\naddress at " + "x" * 300, "RuntimeError: illegal address at xxx")])
def test_a_contestant_that_fails_costs_itself_only(measure, kind, reason):
    record = measure(prepare__gpu_gemm=kind)
    raced = results(record)[RACED]
    assert raced["failed"]["gpu_gemm"].startswith(reason) and len(raced["failed"]["gpu_gemm"]) <= 200
    assert "\n" not in raced["failed"]["gpu_gemm"]
    assert [row["name"] for row in raced["rows"]][0] == "gpu_basic" and len(raced["rows"]) == 4


def test_a_contestant_that_fails_in_a_turn_leaves_the_others_in_the_race(measure):
    raced = results(measure(once__turn__gpu_gemm="die"))[RACED]
    assert list(raced["failed"]) == ["gpu_gemm"]
    assert [len(row["turns_us"]) for row in raced["rows"]] == [2] * 4, "the others of its process have entered again"


def test_a_section_that_hangs_is_ended_and_recorded(measure, monkeypatch):
    monkeypatch.setattr(sections, "LOOK_SECONDS", 1)
    slow = "PyTorch bf16 compiled channels_last graph"
    record = measure(**{f"screen__{slow}": "hang"})
    assert failures(record)[f"first look: {slow}"] == "was ended after 1 s"
    names = [row["name"] for row in results(record)[RACED]["rows"]]
    assert "PyTorch bf16 compiled contiguous graph" in names and slow not in names


def test_a_rung_that_is_not_within_its_tolerance_does_not_race(measure):
    record = measure(check__gpu_gemm="cudaErrorIllegalAddress")
    assert failures(record)["parity: small, gpu_gemm"] == "RuntimeError: cudaErrorIllegalAddress"
    assert "gpu_gemm" not in [row["name"] for row in results(record)[RACED]["rows"]]


def test_without_pytorch_the_rungs_are_measured_all_the_same(measure, monkeypatch):
    monkeypatch.setattr(gpu, "find_torch", lambda: None)
    record = measure(rungs="gpu_basic")
    assert failures(record)["PyTorch"] == "PyTorch is not installed"
    assert [row["name"] for row in results(record)[RACED]["rows"]] == ["gpu_basic"]


def test_a_second_call_goes_on_where_the_time_ran_out(measure, monkeypatch):
    monkeypatch.setattr(sections, "FIRST_LOOKS_UNTIL", 0)
    first = measure(rungs="gpu_basic")
    looks = [name for name in first["left_out"]]
    assert len(looks) == 24 and all(name.startswith("first look: ") for name in looks)
    assert [row["name"] for row in results(first)[RACED]["rows"]] == ["gpu_basic"]
    monkeypatch.setattr(sections, "FIRST_LOOKS_UNTIL", 1.0)
    second = measure(rungs="gpu_basic")
    assert second["left_out"] == [] and second["made"] == first["made"]
    assert len(results(second)[RACED]["rows"]) == 4, "the race is held again, with PyTorch"
    unchanged = "parity: small, gpu_basic"
    assert second["sections"][unchanged] == first["sections"][unchanged]


def test_what_failed_is_tried_again_after_everything_else(measure, capsys):
    measure(check__gpu_basic="out of memory")
    capsys.readouterr()
    record = measure()
    assert results(record)["parity: small, gpu_basic"]["passed"] and results(record)[RACED]["rows"]


def test_nothing_starts_after_the_deadline(measure):
    record = measure("--minutes", "0")
    assert record["sections"] == {} and "ceilings" in record["left_out"]


def test_a_record_of_other_sources_is_put_aside(measure, monkeypatch, tmp_path, capsys):
    measure("--minutes", "0")
    monkeypatch.setattr(record_module, "sources", lambda: "0123456789abcdef")
    measure("--minutes", "0")
    assert "is of other sources: it is kept as record-" in capsys.readouterr().err
    assert len(list((tmp_path / "out").glob("record-*.json"))) == 1


def test_a_time_below_the_floor_of_its_precision_is_no_result(measure, monkeypatch):
    monkeypatch.setenv("FLOOR_US", "3010")
    raced = results(measure())[RACED]
    assert "is impossible" in raced["failed"]["gpu_basic"] and "in fp32 take at least" in raced["failed"]["gpu_basic"]
    assert "gpu_basic" not in [row["name"] for row in raced["rows"]]


def test_steps_that_are_not_reproducible_have_no_time(machine, monkeypatch):
    fetch, calls = cuda_executor.Executor.fetch, []

    def noisy(self, array):
        calls.append(array)
        return fetch(self, array) + np.float32(len(calls))

    monkeypatch.setattr(cuda_executor.Executor, "fetch", noisy)
    monkeypatch.setattr(cases.networks, "build", small_networks.build)
    with pytest.raises(RuntimeError, match="two runs of the same steps end in different bytes"):
        rung_work.prepare(dataclasses.asdict(SMALL["HEADLINES"][0]), "gpu_basic")


def test_a_record_names_no_host_no_person_and_no_folder(monkeypatch):
    monkeypatch.setattr(record_module.platform, "node", lambda: "maries-pc")
    monkeypatch.setattr(record_module.getpass, "getuser", lambda: "marie")
    monkeypatch.setattr(record_module.pathlib.Path, "home", lambda: "/home/marie")
    said = {"failed": f"{ROOT}/kernels/x.cu and /home/marie/.cache/y on maries-pc (marie)", "rows": [{"name": "marieke", "n": 1}]}
    assert record_module.scrubbed(said) == {"failed": "kernels/x.cu and ~/.cache/y on HOST (USER)",
                                            "rows": [{"name": "marieke", "n": 1}]}


def test_a_dry_run_prints_every_rung_and_measures_nothing(capsys):
    gpu.main(["--dry-run"])
    output = capsys.readouterr().out
    lines = [line.split()[:3] for line in output.splitlines()]
    for variant in table.gpu_rungs():
        for name, batch in (("autoencoder", "512"), ("lenet_5", "64"), ("resnet18", "128"), ("resnet50", "32")):
            assert [name, variant, batch] in lines
    assert "nothing here was measured" in output


@pytest.mark.parametrize("arguments, words", [([], "--out"), (["--out", "x", "--rungs", "cpu"], "cpu is no GPU rung")])
def test_wrong_arguments_are_refused(arguments, words, capsys):
    with pytest.raises(SystemExit):
        gpu.main(arguments)
    assert words in capsys.readouterr().err


def test_without_a_gpu_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "gpu_count", lambda: 0)
    with pytest.raises(SystemExit, match="^benchmarks/gpu.py needs an NVIDIA GPU and no driver answers here$"):
        gpu.main(["--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


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
