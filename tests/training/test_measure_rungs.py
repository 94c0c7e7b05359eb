"""The comparison of rungs: verdicts and measurements."""

import shutil

import numpy as np
import pytest

import fake_cupy
import small_comparison
import zoo
from ladder.errors import UserError
from ladder.executors import create
from ladder.executors import sequential as numba_executor
from ladder.executors.cuda import executor as cuda_executor
from ladder.network.optimizers import Optimizer
from ladder.pages import parity as parity_page
from ladder.rungs import variants
from ladder.training import measure_rungs, parity, plan
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
    assert [rung["variant"] for rung in summary["rungs"]] == ["cpu", "cpu_sequential"]
    assert all(rung["passed"] and rung["same_bytes"] for rung in summary["rungs"])
    assert summary["rungs"][0]["parity"]["sgd"]["largest"] == 0 < summary["rungs"][1]["parity"]["sgd"]["largest"]
    assert summary["fastest"] == min(summary["rungs"], key=lambda rung: rung["step"])["variant"]
    assert summary["machine"] == variants.machine()


def test_the_time_of_a_step_is_divided_into_kinds_of_work(summary):
    sequential = summary["rungs"][1]
    assert set(sequential["work"]) == {"convolution forward", "convolution backward", "ReLU", "pooling", "upsampling", "loss",
                                       "update", "input"}
    assert 0 < sum(sequential["work"].values()) <= sequential["step"]
    assert sequential["steps"] == measure_rungs.STEPS


def test_memory_is_that_of_the_plan(summary):
    memory = summary["rungs"][1]["memory"]
    assert memory["weights"] == 4 * NETWORK.parameter_count == memory["optimizer"] / 2
    assert memory["images and counters"] >= 4 * (measure_rungs.WARM_UP + 2 * measure_rungs.STEPS) * 6 * 6 * 3


def test_a_rung_that_trains_something_else_fails_and_is_not_the_fastest(monkeypatch):
    right = numba_executor.OPERATIONS["conv2d_weight_grad"]

    def wrong(x, dy, dweight, *attributes, **more):
        right(x, dy, dweight, *attributes, **more)
        dweight *= np.float32(1.01)

    wrong.signatures = ()
    monkeypatch.setitem(numba_executor.OPERATIONS, "conv2d_weight_grad", wrong)
    found = measure_rungs.compare(NETWORK, ["cpu", "cpu_sequential"], 4, 1)
    assert [rung["passed"] for rung in found["rungs"]] == [True, False] and found["fastest"] == "cpu"
    page = parity_page.page(found, "2026-01-31T12:34:56Z")
    assert "cpu_sequential did not pass." in page and "and all results agree" not in page


def test_a_rung_that_gives_nan_fails(monkeypatch):
    monkeypatch.setitem(numba_executor.OPERATIONS, "conv2d_bias_grad", bias := type("", (), {"signatures": ()})())
    type(bias).__call__ = lambda self, dy, dbias: dbias.fill(np.nan)
    found = measure_rungs.compare(NETWORK, ["cpu_sequential"], 4, 1)
    assert not found["rungs"][0]["passed"] and found["fastest"] is None


def test_a_rung_that_is_not_the_same_twice_fails(monkeypatch):
    right, calls = parity.train, []

    def train(*arguments, **more):
        trained = right(*arguments, **more)
        calls.append(arguments)
        if len(calls) == 4:   # the second run of the first protocol, after the two references
            trained["b.bias"][-1] = np.nextafter(trained["b.bias"][-1], np.float32(2))
        return trained

    monkeypatch.setattr(parity, "train", train)
    rung = measure_rungs.compare(NETWORK, ["cpu"], 4, 1)["rungs"][0]
    assert not rung["same_bytes"] and not rung["passed"]


def test_a_rung_that_stops_is_reported_and_the_others_go_on(monkeypatch):
    def stop(*arguments):
        raise UserError("kernels/x.cu:3: no such thing")

    monkeypatch.setattr(numba_executor.Executor, "run", stop)
    found = measure_rungs.compare(NETWORK, ["cpu_sequential", "cpu"], 4, 1)
    assert found["rungs"][0]["fault"] == "kernels/x.cu:3: no such thing" and found["fastest"] == "cpu"
    assert "<strong>cpu_sequential did not run.</strong> kernels/x.cu:3: no such thing" in parity_page.page(found, "")


def test_a_rung_of_the_gpu_is_measured_with_events_and_the_drivers_memory(gpu):
    found = measure_rungs.compare(NETWORK, ["cpu", "gpu_basic"], 4, 1)["rungs"][1]
    assert found["passed"] and found["device"].startswith("Fake")
    assert found["work"]["loss"] == pytest.approx(3)   # three launches of a millisecond each
    assert found["driver_bytes"] >= sum(found["memory"].values()) > 0
    operations = {layer: one["operation"] for one in found["kernels"] for layer in one["layers"]}
    assert operations["a_relu"] == "relu_forward"


def test_a_network_that_classifies_is_compared_and_kernels_of_other_rungs_are_named(gpu):
    found = measure_rungs.compare(zoo.ZOO, ["cpu", "cpu_sequential", "gpu_opt_v2"], 4, 1)
    assert all(rung["passed"] for rung in found["rungs"])
    work = {"dense layers", "batch normalisation", "dropout and LRN", "shortcuts and shapes"}
    assert work <= set(found["rungs"][1]["work"])
    assert work - {"dense layers"} <= set(found["rungs"][2]["work"])   # gpu_opt_v2 computes a dense layer as a convolution
    rung = found["rungs"][2]
    assert {one["layers"][0]: one["rung"] for one in rung["kernels"] if one["operation"] == "conv2d_forward"} == {
        "first": "gpu_opt_v2", "c7": "gpu_opt_v1", "left": "gpu_opt_v1", "right": "gpu_opt_v1", "mid": "gpu_opt_v2",
        "third_conv": "gpu_opt_v2", "c5": "gpu_opt_v1", "units": "gpu_opt_v2", "scores_a": "gpu_opt_v2",
        "scores_b": "gpu_opt_v2"}
    page = parity_page.page(found, "2026-01-31T12:34:56Z")
    assert "of gpu_opt_v1" in page and "of gpu_basic" in page and "of gpu_opt_v2" not in page and "of cpu" not in page
    assert "at most 8e-03" in page.replace("<br>", " ").replace('<span class="soft">', "")


def test_every_kind_of_work_of_a_plan_has_its_row_and_every_kind_of_buffer_its_part():
    assert {work for _, work in plan.WORK} == set(measure_rungs.WORK) - {create.WAITING}
    settings = plan.Settings(network=zoo.ZOO, variant="gpu_opt_v2", batch_size=2, optimizer=Optimizer("adam"))
    made = plan.training_plan(settings, plan.Dataset(4, "uint8"), plan.Length(2, 2))
    assert set(made.bytes_by_kind()) == {*plan.PURPOSES, "dataset", "control"}
