"""The record of gpu_check.py with worker processes on stand-ins for CuPy and PyTorch: what is
measured, what fails.
"""

import dataclasses
import json
import shutil
import time

import numpy as np
import pytest

import cases
import fake_cupy
import gpu
import gpu_check
import race
import record as record_module
import results
import rung_work
import sections
import small_networks
import synthetic_gpu
import table
from ladder.executors.cuda import executor as cuda_executor
from ladder.machine import driver
from ladder.machine.worker import Failed
from ladder.sources import ROOT

SMALL_CASE = synthetic_gpu.SMALL["HEADLINES"][0]
RACED = "race: small, batch 2"
CONTESTANTS = "one rung", *cases.PRECISIONS  # the fastest of PyTorch in each precision beside it


@pytest.fixture
def measure(monkeypatch, tmp_path):
    """A measure() whose steps take made-up times."""
    return synthetic_gpu.set_up(
        monkeypatch, tmp_path, {"rungs": "pretend_work", "torch": "pretend_work"}
    )


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """A record whose rungs run in the emulator."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ (Debian package: g++)")
    modules = {"rungs": "fake_rung_work", "torch": "pretend_work"}
    with pytest.MonkeyPatch.context() as patch:
        return synthetic_gpu.set_up(patch, tmp_path_factory.mktemp("record"), modules)()


@pytest.fixture
def made_up_gpu(monkeypatch, tmp_path):
    """One for this process, and small networks."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ (Debian package: g++)")
    monkeypatch.setattr(cases.networks, "build", small_networks.build)
    yield fake_cupy.install(monkeypatch, tmp_path)
    cuda_executor._cupy.cache_clear()


def measured(record):
    return {
        name: section["result"]
        for name, section in record["sections"].items()
        if "result" in section
    }


def failures(record):
    return {
        name: section["failed"]
        for name, section in record["sections"].items()
        if "failed" in section
    }


def test_the_record_has_every_section_the_headline_first(emulated):
    record, found, names = emulated, measured(emulated), list(emulated["sections"])
    assert record["left_out"] == [] and failures(record) == {}
    assert record["machine"]["cuml"] is None and "svm" not in names, (
        "what is not installed is left out, not failed"
    )
    assert record["machine"]["gpu"] == "Fake" and found["PyTorch"]["torch"] == "0.0"
    assert found["ceilings"]["copy_bytes_per_second"] == pytest.approx(2 * 4096 / 1e-3)
    assert found["ceilings"]["fp32_flop_per_second"] == pytest.approx(2 * 16 * 8 * 2 * 512 / 1e-3)
    assert found["ceilings"]["peak_flop_per_second"]["bf16"] == pytest.approx(2048 * 108 * 1.41e9)
    order = [
        names.index(name)
        for name in (
            "parity: small, gpu_gemm",
            RACED,
            "epoch: gpu_gemm",
            "race: small, batch 3",
            "parity: labelled, gpu_basic",
            "race: labelled, batch 2",
            "race: small, batch 4",
            "race: labelled, batch 3, fp16",
        )
    ]
    assert order == sorted(order)
    assert (
        found["parity: small, gpu_basic"]["passed"]
        and found["parity: labelled, gpu_gemm"]["passed"]
    )
    assert all(
        section["before"] == section["after"] == {"clocks.sm": "1500"}
        for section in record["sections"].values()
    )


def test_a_race_has_the_rungs_and_the_best_of_pytorch_by_precision(emulated):
    found = measured(emulated)
    assert len([name for name in found if name.startswith("first look: ")]) == 30
    rows = {row["name"]: row for row in found[RACED]["rows"]}
    best = [f"PyTorch {precision} compiled channels_last graph" for precision in cases.PRECISIONS]
    assert list(rows) == [*best, "gpu_gemm", "gpu_basic"], "PyTorch is entered first"
    row = rows["gpu_basic"]
    # each takes a millisecond
    assert row["median_us"] == row["low_us"] == row["high_us"] == 1000 * row["launches"]
    assert (
        row["turns_us"] == [row["median_us"]] * 2 and row["mhz"] == 1500 and row["same_bytes_twice"]
    )
    assert row["scaled_epoch_seconds"] == pytest.approx(4 * row["median_us"] / 1e6)
    assert row["tflop_per_second"] == pytest.approx(row["flop"] / row["median_us"] / 1e6)
    assert row["driver_bytes"] >= row["planned_bytes"] > 0 and row["precision"] == "fp32"
    assert [rows[name]["median_us"] for name in best] == [4000, 2000, 1000, 1000]
    second = [
        row["name"] for row in found["race: small, batch 3"]["rows"] if row["precision"] == "tf32"
    ]
    # the two fastest first looks
    assert second == [best[1], "PyTorch tf32 compiled contiguous graph"]
    exact, fp16 = (found[f"race: labelled, batch 3{name}"]["rows"] for name in ("", ", fp16"))
    # gradients are scaled
    assert fp16[0]["launches"] > next(row for row in exact if row["name"] == "gpu_gemm")["launches"]


def test_whole_runs_are_of_the_best_of_each_precision(emulated):
    found = measured(emulated)
    best = min(found[RACED]["rows"][-2:], key=lambda row: row["median_us"])["name"]
    wholes = [name for name in found if name.startswith("epoch: ")]
    torch = [
        f"epoch: PyTorch {precision} compiled channels_last graph" for precision in cases.PRECISIONS
    ]
    assert wholes == [f"epoch: {best}", *torch]
    assert found[f"epoch: {best}"]["steps"] == 4 and len(found[f"epoch: {best}"]["losses"]) == 2
    assert found[f"extraction: {best}"]["images"] == 12
    streamed = found[f"streaming: {best}"]
    # a step is longer
    assert (streamed["copy_us"], streamed["waited_us"], streamed["hidden_share"]) == (1000, 0, 1)


@pytest.mark.parametrize(
    "kind, reason",
    [
        ("die", "the process was ended by SIGKILL"),
        ("illegal\naddress at " + "x" * 300, "RuntimeError: illegal address at xxx"),
    ],
)
def test_a_contestant_that_fails_costs_itself_only(measure, kind, reason):
    record = measure(prepare__gpu_gemm=kind)
    raced = measured(record)[RACED]
    assert (
        raced["failed"]["gpu_gemm"].startswith(reason) and len(raced["failed"]["gpu_gemm"]) <= 200
    )
    assert "\n" not in raced["failed"]["gpu_gemm"]
    assert [row["name"] for row in raced["rows"]][-1] == "gpu_basic" and len(raced["rows"]) == len(
        CONTESTANTS
    )


def test_a_contestant_that_fails_in_a_turn_leaves_the_others_in_the_race(measure):
    raced = measured(measure(once__turn__gpu_gemm="die"))[RACED]
    assert list(raced["failed"]) == ["gpu_gemm"]
    assert [len(row["turns_us"]) for row in raced["rows"]] == [2] * len(CONTESTANTS), (
        "the others of its process have entered again"
    )


class Calls:
    """A Session whose calls take no time, but for the last one of `answers`, which the end of the
    time cuts off.
    """

    def __init__(self, answers):
        self.answers = answers

    def call(self, kind, function, *arguments, limit):
        if not self.answers:
            raise Failed("was ended", timed_out=True)
        assert self.answers.pop(0) == function
        return (
            {"us": [7.0]}
            if function == "turn"
            else {"step_us": 7.0, "precision": "fp32", "batch": 2}
        )


def test_what_the_end_of_the_time_cuts_off_keeps_the_turns_before_it():
    contest = race.Contest(
        SMALL_CASE,
        Calls(["prepare", "prepare", "turn", "turn", "turn"]),
        time.monotonic() + 55,
    )  # less than the time limit of a turn
    for name in ("gpu_gemm", "gpu_basic"):
        contest.enter(name)
    assert contest.turn() and not contest.turn()
    assert [(row["name"], row["turns_us"]) for row in contest.rows()] == [
        ("gpu_gemm", [7.0, 7.0]),
        ("gpu_basic", [7.0]),
    ]
    assert contest.failed == {}


def test_who_is_prepared_but_has_no_turn_is_late_and_not_wrong():
    contest = race.Contest(SMALL_CASE, Calls(["prepare"]), time.monotonic() + 55)
    contest.enter("gpu_gemm")
    contest.enter("gpu_basic")
    assert contest.rows() == [] and contest.failed == {
        "gpu_basic": race.LATE,
        "gpu_gemm": race.LATE,
    }


def test_a_contestant_that_found_no_time_is_entered_in_the_next_call(measure, monkeypatch):
    monkeypatch.setattr(race, "SECONDS", 1e6)
    record = measure()
    assert RACED in record["left_out"] and RACED not in record["sections"]
    monkeypatch.setattr(race, "SECONDS", 60)
    enter = race.Contest.enter

    def late_for_basic(contest, name):
        contest.late(name) if name == "gpu_basic" else enter(contest, name)

    monkeypatch.setattr(race.Contest, "enter", late_for_basic)
    assert measured(measure())[RACED]["failed"] == {"gpu_basic": "out of time"}
    monkeypatch.setattr(race.Contest, "enter", enter)
    found = measured(measure())[RACED]
    assert found["failed"] == {} and len(found["rows"]) == 1 + len(CONTESTANTS)


def test_a_section_that_hangs_is_ended_and_recorded(measure, monkeypatch):
    monkeypatch.setattr(sections, "LOOK_SECONDS", 4)  # in which a new process has to start
    slow = "PyTorch bf16 compiled channels_last graph"
    record = measure(**{f"screen__{slow}": "hang"})
    assert failures(record)[f"first look: {slow}"] == "was ended after 4 s"
    names = [row["name"] for row in measured(record)[RACED]["rows"]]
    assert "PyTorch bf16 compiled contiguous graph" in names and slow not in names


def test_a_rung_beyond_its_tolerance_keeps_its_time_marked_and_is_never_the_fastest(measure):
    record = measure(check__gpu_basic="beyond")  # the faster of the two
    rows = {row["name"]: row for row in measured(record)[RACED]["rows"]}
    assert [rows[rung]["within_limit"] for rung in ("gpu_basic", "gpu_gemm")] == [False, True]
    assert rows["gpu_gemm"]["median_us"] < rows["gpu_basic"][
        "median_us"
    ] or "epoch: gpu_basic" not in measured(record)
    assert results.fastest(record, SMALL_CASE, "fp32", torch=False)["name"] == "gpu_gemm"
    assert "numbers not within the limit" in table.spread(rows["gpu_basic"])
    assert measured(measure())[RACED]["rows"] == measured(record)[RACED]["rows"], (
        "a second call measures nothing again"
    )


def test_a_rung_that_cannot_run_does_not_race(measure):
    record = measure(check__gpu_gemm="cudaErrorIllegalAddress")
    assert failures(record)["parity: small, gpu_gemm"] == "RuntimeError: cudaErrorIllegalAddress"
    assert "gpu_gemm" not in [row["name"] for row in measured(record)[RACED]["rows"]]


def test_without_pytorch_the_rungs_are_measured_all_the_same(measure, monkeypatch):
    monkeypatch.setattr(gpu, "find_torch", lambda: None)
    record = measure(rungs="gpu_basic")
    assert failures(record)["PyTorch"] == "PyTorch is not installed"
    assert [row["name"] for row in measured(record)[RACED]["rows"]] == ["gpu_basic"]


def test_a_second_call_goes_on_where_the_time_ran_out(measure, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(gpu.Session, "left", synthetic_gpu.until(6))
        first = measure(rungs="gpu_basic")
    assert list(first["sections"]) == [
        "kernels: small, batch 2",
        "launches: gpu_basic",
        "parity: small, gpu_basic",
        "ceilings",
        "PyTorch",
        "PyTorch's ceilings",
    ]
    assert "svm" in first["left_out"]
    second = measure(rungs="gpu_basic")
    assert second["left_out"] == [] and second["made"] == first["made"]
    assert len(measured(second)[RACED]["rows"]) == len(CONTESTANTS)
    assert all(second["sections"][name] == section for name, section in first["sections"].items())


def test_what_waits_is_measured_where_time_is_left_and_the_race_is_held_again(measure, monkeypatch):
    measure_first = sections.first_looks
    monkeypatch.setattr(
        sections,
        "first_looks",
        lambda record, most=None: (
            dataclasses.replace(look, until=0) if "fp32" in look.name else look
            for look in measure_first(record, most)
        ),
    )
    record = measure(rungs="gpu_basic")
    names = list(record["sections"])
    assert record["left_out"] == [] and names.index("svm") < names.index(
        "first look: PyTorch fp32 eager contiguous"
    )
    assert len(measured(record)[RACED]["rows"]) == len(CONTESTANTS)


def test_what_failed_is_tried_again_after_everything_else(measure, capsys):
    measure(check__gpu_basic="out of memory")
    capsys.readouterr()
    record = measure()
    assert (
        measured(record)["parity: small, gpu_basic"]["passed"] and measured(record)[RACED]["rows"]
    )


def test_nothing_starts_after_the_deadline(measure):
    record = measure("--minutes", "0")
    assert record["sections"] == {} and "ceilings" in record["left_out"]


def test_only_what_depends_on_an_edit_is_measured_again(measure, monkeypatch, tmp_path, capsys):
    first, edited = measure(), ROOT / "workflow/scripts/ladder/rungs/gpu_gemm.py"
    digest = record_module._digest
    monkeypatch.setattr(
        record_module, "_digest", lambda path: "edited" if path == edited else digest(path)
    )
    second = measure("--minutes", "0")
    gone = first["sections"].keys() - second["sections"].keys()
    assert {name.partition(": ")[0] for name in gone} == {
        "kernels",
        "launches",
        "parity",
        "race",
        "epoch",
        "extraction",
        "streaming",
        "chain",
        "tiles",
    }
    assert "parity: small, gpu_gemm" in gone and "parity: small, gpu_basic" not in gone
    assert (
        f"has {len(gone)} of its {len(first['sections'])} sections of other sources"
        in capsys.readouterr().err
    )
    (aside,) = (tmp_path / "out").glob("record-*.json")
    assert json.loads(aside.read_text()) == first


def test_a_machine_goes_on_with_its_own_record_after_another_had_its_turn(tmp_path):
    machines = [{name: card for name in record_module.SAME} for card in ("H100", "H200")]
    for turn, machine in enumerate((*machines, *machines)):
        record, reason = record_module.Record.open(tmp_path / "record.json", machine)
        assert len(record.data["sections"]) == turn // 2 and bool(reason) == (turn > 0)
        record.keep(f"epoch: gpu_basic {turn}", {"result": {"seconds": turn}})
        for path in tmp_path.glob("record-*.json"):  # put aside within one second
            path.rename(tmp_path / f"record-{turn}{path.name.removeprefix('record-')}")


@pytest.mark.parametrize(
    "name, of, files",
    [
        ("ceilings", None, {"benchmarks/ceilings.cu"}),
        ("PyTorch", None, {"benchmarks/torch_gpu.py"}),
        (
            "parity: autoencoder, gpu_bf16",
            None,
            {
                "kernels/packed/conv2d_halo.cu",
                "workflow/scripts/ladder/plan/plan.py",
                "workflow/scripts/ladder/verify/parity.py",
            },
        ),
        ("epoch: PyTorch fp32 eager contiguous", None, {"benchmarks/torch_gpu.py"}),
        (
            "memcheck: gpu_basic",
            None,
            {"benchmarks/one_step.py", "benchmarks/timing.py", "kernels/gpu_basic/relu.cu"},
        ),
        (
            "race: autoencoder, batch 64",
            ["gpu_basic", "PyTorch fp32 eager contiguous"],
            {"benchmarks/torch_gpu.py", "benchmarks/timing.py", "kernels/gpu_basic/relu.cu"},
        ),
    ],
)
def test_a_section_depends_on_its_own_files(monkeypatch, name, of, files):
    read = []
    monkeypatch.setattr(
        record_module, "_digest", lambda path: read.append(path.relative_to(ROOT).as_posix()) or ""
    )
    record_module.sources(name, of)
    others = {
        "benchmarks/gpu_page.py",
        "benchmarks/one_step.py",
        "benchmarks/ceilings.cu",
        "benchmarks/torch_gpu.py",
        "kernels/packed/conv2d_halo.cu",
        "kernels/gpu_basic/relu.cu",
    } - files
    # which others build on
    assert files <= set(read) and not others & set(read) - {"kernels/gpu_basic/relu.cu"}


def test_a_time_below_the_floor_of_its_precision_is_no_result(measure, monkeypatch):
    monkeypatch.setenv("FLOOR_US", "3010")
    raced = measured(measure())[RACED]
    assert (
        "is impossible" in raced["failed"]["gpu_basic"]
        and "in fp32 take at least" in raced["failed"]["gpu_basic"]
    )
    assert "gpu_basic" not in [row["name"] for row in raced["rows"]]


def test_steps_are_timed_in_laps_of_recorded_ones_as_in_a_training(monkeypatch, made_up_gpu):
    monkeypatch.setattr(driver, "gpu_size", lambda: driver.Size(108, 1.41e9, 1.2e9, 5120, 40 << 20))
    numbers = rung_work.prepare(
        dataclasses.asdict(cases.Case("small", (4, 4, 3), 2, 60)), "gpu_basic"
    )
    made_up_gpu.replayed.clear()
    assert rung_work.turn("gpu_basic", 30)["us"] == [pytest.approx(numbers["step_us"])] * 3
    # one step in fifty is measured alone
    assert made_up_gpu.replayed.count(10 * numbers["launches"]) >= 2
    rung_work.forget()


def test_a_launch_takes_what_a_step_in_which_it_is_made_twice_takes_longer(
    monkeypatch, made_up_gpu
):
    """On a made-up GPU, where each launch takes a millisecond, whether it is made beside others or
    not.
    """
    for name in ("STEPS", "TURNS", "MOST"):
        monkeypatch.setattr(rung_work.launch_times, name, 1)
    timed = rung_work.launches(dataclasses.asdict(SMALL_CASE), "gpu_gemm")
    rows = timed["launches"]
    assert timed["step_us"] == 1000 * len(rows) and timed["launching"] == "as CUDA graphs"
    assert [row["median_us"] for row in rows] == [1000] * (len(rows) - 1) + [None], (
        "advance would leave the permutation"
    )
    assert rows[-1]["kernel"] == "gpu_basic/update.cu advance" and rows[1]["place"] == "a forward"


def test_steps_that_are_not_reproducible_have_no_time(monkeypatch, made_up_gpu):
    download, calls = cuda_executor.Executor.download, []

    def noisy(self, array):
        calls.append(array)
        return download(self, array) + np.float32(len(calls))

    monkeypatch.setattr(cuda_executor.Executor, "download", noisy)
    with pytest.raises(RuntimeError, match="two runs of the same steps end in different bytes"):
        rung_work.prepare(dataclasses.asdict(SMALL_CASE), "gpu_basic")


def test_a_record_names_no_host_no_person_and_no_folder(monkeypatch):
    monkeypatch.setattr(record_module.platform, "node", lambda: "maries-pc")
    monkeypatch.setattr(record_module.getpass, "getuser", lambda: "marie")
    monkeypatch.setattr(record_module.pathlib.Path, "home", lambda: "/home/marie")
    said = {
        "failed": f"{ROOT}/kernels/x.cu and /home/marie/.cache/y on maries-pc (marie)",
        "rows": [{"name": "marieke", "n": 1}],
    }
    assert record_module.scrubbed(said) == {
        "failed": "kernels/x.cu and ~/.cache/y on HOST (USER)",
        "rows": [{"name": "marieke", "n": 1}],
    }


def test_a_rung_that_is_none_of_a_gpu_is_refused(capsys):
    with pytest.raises(SystemExit):
        gpu_check.main(["--rungs", "cpu"])
    assert "cpu is no GPU rung" in capsys.readouterr().err


def test_a_measured_record_fills_both_tables(emulated, monkeypatch):
    for module in (table, results):
        monkeypatch.setattr(module, "HEADLINES", synthetic_gpu.SMALL["HEADLINES"])
    monkeypatch.setattr(table, "CASE", SMALL_CASE)
    monkeypatch.setattr(table.networks, "build", small_networks.build)
    rows = {}
    # the measured table comes first, the predictions after it
    for line in table.table(emulated).splitlines():
        rows.setdefault(line.split(" | ")[0].removeprefix("| "), line)
    assert (
        "not measured" not in rows["gpu_gemm"].replace("% of ceiling", "")
        and "not measured" in rows["gpu_opt_v2"]
    )
    assert table.cards(results.by_card([emulated])).count("| Fake | 2 |") == len(cases.PRECISIONS)
