"""The comparison of rungs: verdicts and measurements."""

import os
import shutil
import types

import numpy as np
import pytest

import fake_cupy
import page_text
import small_comparison
import zoo
from ladder.errors import UserError
from ladder.executors import create
from ladder.executors import sequential as numba_executor
from ladder.executors.cuda import executor as cuda_executor
from ladder.network.optimizers import Optimizer
from ladder.pages import parity as parity_page
from ladder.plan import plan
from ladder.plan.data import PURPOSES
from ladder.rungs import catalog
from ladder.rungs.launches import WORK
from ladder.sources import ROOT
from ladder.verify import measure_rungs, parity
from small_comparison import NETWORK


@pytest.fixture(autouse=True, scope="module")
def brief():
    with small_comparison.brief():
        yield


@pytest.fixture(scope="module")
def summary():
    return small_comparison.summary()


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("no g++ (Debian package: g++)")
    yield fake_cupy.install(monkeypatch, tmp_path)
    cuda_executor._cupy.cache_clear()


def test_the_rungs_of_the_cpu_pass_and_one_is_fastest(summary):
    assert [rung["name"] for rung in summary["rungs"]] == ["cpu", "cpu_sequential"]
    assert all(rung["passed"] and rung["same_bytes"] for rung in summary["rungs"])
    assert (
        summary["rungs"][0]["parity"]["sgd"]["largest"]
        == 0
        < summary["rungs"][1]["parity"]["sgd"]["largest"]
    )
    assert summary["fastest"] == {
        "float32": min(summary["rungs"], key=lambda rung: rung["step"])["name"]
    }
    assert summary["machine"] == catalog.machine()


def test_the_time_of_a_step_is_divided_into_kinds_of_work(summary):
    sequential = summary["rungs"][1]
    assert set(sequential["work"]) == {
        "convolution forward",
        "convolution backward",
        "ReLU",
        "pooling",
        "upsampling",
        "loss",
        "update",
        "input",
    }
    assert 0 < sum(sequential["work"].values()) <= sequential["step"]
    assert sequential["steps"] == measure_rungs.STEPS


def test_a_step_takes_the_mean_time_of_those_that_were_begun_in_the_time_for_them(monkeypatch):
    now = [0.0]

    class Slow(numba_executor.Executor):
        def run(self, plan, arrays):
            now[0] += 0.25
            self.seconds = {"update": self.seconds.get("update", 0) + 0.125}

    monkeypatch.setattr(measure_rungs, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(measure_rungs.executors, "create", lambda rung, threads: Slow(threads))
    monkeypatch.setattr(measure_rungs, "SECONDS", 1)
    monkeypatch.setattr(measure_rungs, "STEPS", 10)
    measured = measure_rungs.measure(NETWORK, "cpu_sequential", 4, 1)
    assert (measured["steps"], measured["step"], measured["work"]) == (4, 250, {"update": 125})


def test_memory_is_that_of_the_plan(summary):
    memory = summary["rungs"][1]["memory"]
    assert memory["weights"] == 4 * NETWORK.parameter_count == memory["optimizer"] / 2
    assert (
        memory["images and counters"]
        >= 4 * (measure_rungs.WARM_UP + 2 * measure_rungs.STEPS) * 6 * 6 * 3
    )


def test_a_rung_that_trains_something_else_fails_and_is_not_the_fastest(monkeypatch):
    right = numba_executor.OPERATIONS["conv2d_weight_grad"]

    def wrong(x, dy, dweight, *attributes, **more):
        right(x, dy, dweight, *attributes, **more)
        dweight *= np.float32(1.01)

    monkeypatch.setitem(numba_executor.OPERATIONS, "conv2d_weight_grad", wrong)
    found = small_comparison.compare(NETWORK, ["cpu", "cpu_sequential"])
    assert [rung["passed"] for rung in found["rungs"]] == [True, False] and found["fastest"] == {
        "float32": "cpu"
    }
    page = parity_page.page(found, "2026-01-31T12:34:56Z")
    assert "cpu_sequential did not pass." in page and "and all results agree" not in page


@pytest.mark.parametrize(
    "rung, deviation, passed",
    [("gpu_gemm", 7.9e-5, False), ("gpu_3xtf32", 7.9e-5, True), ("gpu_3xtf32", 4e-4, False)],
)
def test_a_rung_on_tensor_cores_may_deviate_by_what_their_cut_sums_cost_an_h200(
    monkeypatch, rung, deviation, passed
):
    protocols = parity.protocols(NETWORK)
    references = {
        name: measure_rungs.Reference({}, protocol.tolerance)
        for name, protocol in protocols.items()
    }
    monkeypatch.setattr(measure_rungs.executors, "create", lambda *_: None)
    monkeypatch.setattr(parity, "train", lambda *_, **settings: {"a.weight": np.zeros(1)})
    monkeypatch.setattr(parity, "deviations", lambda *_: {"a.weight": deviation})
    found = measure_rungs.check(NETWORK, rung, 1, references)
    assert (
        found["same_bytes"]
        and found["passed"] == passed
        and found["parity"]["sgd"]["tolerance"] == 2e-3
    )


def test_a_rung_that_gives_nan_fails(monkeypatch):
    monkeypatch.setitem(
        numba_executor.OPERATIONS, "conv2d_bias_grad", lambda dy, dbias: dbias.fill(np.nan)
    )
    found = small_comparison.compare(NETWORK, ["cpu_sequential"])
    assert not found["rungs"][0]["passed"] and found["fastest"] == {}


def test_a_rung_that_is_not_the_same_twice_fails(monkeypatch):
    right, calls = parity.train, []

    def train(*arguments, **more):
        trained = right(*arguments, **more)
        calls.append(arguments)
        if len(calls) == 4:  # the second run of the first protocol, after the two references
            trained["b.bias"][-1] = np.nextafter(trained["b.bias"][-1], np.float32(2))
        return trained

    monkeypatch.setattr(parity, "train", train)
    rung = small_comparison.compare(NETWORK, ["cpu"])["rungs"][0]
    assert not rung["same_bytes"] and not rung["passed"]


def test_a_rung_that_stops_is_reported_and_the_others_go_on(monkeypatch):
    def stop(*arguments):
        raise UserError("kernels/x.cu:3: no such thing")

    monkeypatch.setattr(numba_executor.Executor, "run", stop)
    found = small_comparison.compare(NETWORK, ["cpu_sequential", "cpu"])
    assert found["rungs"][0]["fault"] == "kernels/x.cu:3: no such thing" and found["fastest"] == {
        "float32": "cpu"
    }
    assert (
        "<strong>cpu_sequential did not run.</strong> kernels/x.cu:3: no such thing"
        in parity_page.page(found, "")
    )


def test_a_cuda_error_is_a_fault_with_what_to_do_and_the_others_go_on(gpu, monkeypatch):
    def fail(executor, plan, arrays):
        raise fake_cupy.CUDARuntimeError(
            "cudaErrorIllegalAddress: an illegal memory access was encountered"
        )

    monkeypatch.setattr(cuda_executor.Executor, "run", fail)
    found = small_comparison.compare(NETWORK, ["gpu_basic", "cpu"])
    assert found["rungs"][0]["fault"].startswith(
        "CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access was"
    )
    assert "please report it" in found["rungs"][0]["fault"] and found["fastest"] == {
        "float32": "cpu"
    }
    page = page_text.text_of(parity_page.page(found, ""))
    assert page.count("gpu_basic did not run. CUDARuntimeError") == 1, "one line, no row of a table"


def test_a_rung_that_ends_its_process_leaves_the_others_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests/support"))
    monkeypatch.setattr(measure_rungs, "__name__", "fake_rungs")
    monkeypatch.setattr(measure_rungs, "GPU_SECONDS", 5)
    monkeypatch.setenv(
        "FAULTS",
        '{"of_rung gpu_basic": "die", "of_rung gpu_opt_v1": "error 700", "of_rung gpu_gemm": "hang"}',
    )
    names = ["cpu", "gpu_basic", "gpu_opt_v1", "gpu_gemm", "gpu_opt_v2", "gpu_tf32"]
    with measure_rungs.apart({"network": "small"}, 4, 1) as run:
        found = measure_rungs.compare(NETWORK, names, 4, run)
    assert [rung.get("fault") for rung in found["rungs"]] == [
        None,
        "the process was ended by SIGKILL",
        "RuntimeError: error 700",
        "it was ended after 5 s",
        None,
        None,
    ]
    assert found["fastest"] == {"float32": "gpu_opt_v2", "tf32": "gpu_tf32"}
    processes = [rung["process"] for rung in found["rungs"] if "process" in rung]
    assert len(set(processes)) == 2  # after a failure it is a new one
    assert not any(os.path.exists(f"/proc/{process}") for process in processes)


def test_a_rung_runs_with_its_parameters_in_a_process_of_its_own():
    params = {"network": "lenet_5", "image": [28, 28, 1], "classes": 10}
    with measure_rungs.apart(params, 4, 1) as run:
        rung = run("cpu")
    assert rung["passed"] and rung["step"] > 0 and rung["parity"]["sgd"]["largest"] == 0


def test_a_rung_of_the_gpu_is_measured_with_events_and_the_drivers_memory(gpu):
    found = small_comparison.compare(NETWORK, ["cpu", "gpu_basic"])["rungs"][1]
    assert found["passed"] and found["device"].startswith("Fake")
    assert found["work"]["loss"] == pytest.approx(3)  # three launches of a millisecond each
    assert found["driver_bytes"] >= sum(found["memory"].values()) > 0


def test_a_network_that_classifies_is_compared(gpu):
    found = small_comparison.compare(zoo.ZOO, ["cpu", "cpu_sequential", "gpu_opt_v2"])
    assert all(rung["passed"] for rung in found["rungs"])
    work = {"dense layers", "batch normalisation", "dropout and LRN", "shortcuts and shapes"}
    assert work <= set(found["rungs"][1]["work"])
    # gpu_opt_v2 computes a dense layer as a convolution
    assert work - {"dense layers"} <= set(found["rungs"][2]["work"])
    page = parity_page.page(found, "2026-01-31T12:34:56Z")
    assert '<td class="right">8e-03</td>' in page


def test_every_kind_of_work_of_a_plan_has_its_row_and_every_kind_of_buffer_its_part():
    assert {work for _, work in WORK} == set(measure_rungs.WORK) - {create.WAITING}
    settings = plan.TrainingSettings(
        network=zoo.ZOO, rung="gpu_opt_v2", batch_size=2, optimizer=Optimizer("adam")
    )
    made = plan.training_plan(settings, plan.Dataset(4, "uint8"), plan.Length(2, 2))
    assert set(made.bytes_by_kind()) == {*PURPOSES, "dataset", "control"} - {"copy"}  # gpu_bf16
