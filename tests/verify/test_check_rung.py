"""The check of a rung on a stand-in for CuPy whose kernels run in the emulator; faults are planted
in what it returns.
"""

import numpy as np
import pytest

import cuda_emulator
import emulator_executor
import fake_cupy
import needs
import small_networks
from ladder.executors import create as executors
from ladder.executors.cuda import executor as cuda_executor
from ladder.network import networks
from ladder.plan import plan
from ladder.rungs import catalog
from ladder.training import inference
from ladder.verify import check_rung, first_use, parity

pytestmark = needs.COMPILER
RUNG = "gpu_opt_v1"


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(
        networks, "from_params", lambda params: small_networks.build(params["network"])
    )
    monkeypatch.setattr(inference, "BATCH", 4)
    monkeypatch.setattr(check_rung, "TAIL", 1)
    yield fake_cupy.install(monkeypatch, tmp_path)
    cuda_executor._cupy.cache_clear()


def check(network="small", batch=8):
    return check_rung.check(RUNG, first_use.described({"network": network}, batch), 1)


def spoil(monkeypatch, updates, factor):
    """Multiply the weights of layer a that the rung returns after these updates."""
    right = parity.train

    def train(network, rung, *arguments, **more):
        trained = right(network, rung, *arguments, **more)
        if rung == RUNG:
            trained["a.weight"][updates] *= np.float32(factor)
        return trained

    monkeypatch.setattr(parity, "train", train)


@pytest.mark.parametrize(
    "network, batches", [("small", [8, 8, 8, 5, 5, 5]), ("labelled", [12, 12, 12, 7, 7, 7])]
)
def test_a_rung_that_computes_as_the_cpu_does_passes(gpu, network, batches):
    found = check(network)
    assert (
        found["passed"]
        and found["fault"] == ""
        and found["batches"] == batches
        and found["same_replayed"]
    )
    assert found["device"].startswith("Fake")
    assert found["summary"].startswith("sgd ") and " (at most " in found["summary"]
    assert len(found["extraction"]) == 2 and max(found["extraction"].values()) < 1e-6


@pytest.mark.parametrize("rung", ["gpu_tf32", "gpu_bf16"])
def test_a_rung_for_a_lower_precision_is_compared_with_the_cpu_at_that_precision(
    gpu, monkeypatch, rung
):
    asked = []
    right = parity.train

    def train(network, rung, *arguments, multipliers, **more):
        asked.append((rung, multipliers))
        return right(network, rung, *arguments, multipliers=multipliers, **more)

    monkeypatch.setattr(parity, "train", train)
    found = check_rung.check(rung, first_use.described({"network": "small"}, 8), 1)
    assert found["passed"] and found["summary"].count("(at most 3e-03)") == 2
    assert {rung for rung, _ in asked} == {"cpu", rung}
    assert (
        {multipliers for _, multipliers in asked} == {plan.made_for(rung)} != {plan.made_for("cpu")}
    )


ON_TENSOR_CORES = [name for name, entry in catalog.RUNGS.items() if entry.on_tensor_cores]
TRUNCATED = {
    "whole": networks.build("autoencoder", (8, 8, 3)),
    "narrow": networks.build("autoencoder", (8, 8, 3), filters=(40, 36)),
    "residual": networks.build("resnet18", (16, 16, 3), width=8),
}


@pytest.mark.parametrize(
    "network, rung",
    [
        ("whole", "gpu_bf16_sm90"),
        ("whole", "gpu_3xf16_sm90"),
        ("residual", "gpu_bf16"),
        *(("narrow", rung) for rung in ON_TENSOR_CORES),
    ],
)
def test_a_right_rung_passes_where_tensor_cores_truncate_their_sums(network, rung, monkeypatch):
    create = executors.create
    monkeypatch.setattr(
        executors,
        "create",
        lambda name, *more: create(name, *more) if name == "cpu" else emulator_executor.Executor(),
    )
    monkeypatch.setattr(
        emulator_executor.Executor, "device", lambda executor: "an emulator", raising=False
    )
    monkeypatch.setattr(networks, "from_params", lambda params: TRUNCATED[params["network"]])
    monkeypatch.setattr(cuda_emulator, "tensor_sums", "truncated")
    monkeypatch.setattr(inference, "BATCH", 4)
    for name, value in {"UPDATES": 1, "REPLAYED": 1, "TAIL": 1}.items():
        monkeypatch.setattr(check_rung, name, value)
    found = check_rung.check(rung, first_use.described({"network": network}, 3), 2)
    assert found["passed"], found["fault"]
    deviations = [worst["largest"] / worst["tolerance"] for worst in found["parity"].values()]
    assert 0 < max(deviations) < 1 / 2, found["summary"]  # not by luck


@pytest.mark.parametrize(
    "updates", [slice(0, 3), slice(3, 6)], ids=["whole batches", "tail batches"]
)
def test_a_tensor_that_deviates_is_named_with_how_much(gpu, monkeypatch, updates):
    spoil(monkeypatch, updates, 1.01)
    found = check()
    assert not found["passed"] and found["report"] and not found["passing"]
    assert found["fault"].startswith(
        "rung gpu_opt_v1 computes other numbers than the cpu rung on Fake, driver "
    )
    assert (
        "a.weight deviates by " in found["fault"]
        and "of its update with sgd, 2e-03 at most" in found["fault"]
    )


def test_steps_that_give_other_bytes_when_they_are_replayed_fail(gpu, monkeypatch):
    right = cuda_executor.Executor.run_many

    def run_many(executor, plan, arrays, count):
        right(executor, plan, arrays, count)
        if count > 1:
            executor.fill(arrays["a.bias"], 1)

    monkeypatch.setattr(cuda_executor.Executor, "run_many", run_many)
    assert (
        "steps that are recorded and replayed give other bytes than single ones" in check()["fault"]
    )


def test_nan_fails(gpu, monkeypatch):
    spoil(monkeypatch, slice(3, 6), np.nan)
    assert not check()["passed"]


def test_an_extraction_that_deviates_in_its_last_images_only_fails(gpu, monkeypatch):
    right = inference.Inference.batches

    def batches(encoder, images, flip=False):
        for start, values in right(encoder, images, flip):
            yield start, values * np.float32(1 + 1e-2 * (encoder.rung == RUNG and start == 4))

    monkeypatch.setattr(inference.Inference, "batches", batches)
    fault = check()["fault"]
    assert (
        "the output of b deviates by " in fault
        and "the output of a_pool deviates by " in fault
        and "1e-04 at most" in fault
    )


def test_a_network_without_gradients_is_extracted_only(gpu, monkeypatch):
    only = networks.resolve("only", (4, 4, 3), small_networks.PLAIN.layers[:3], "a_pool", None)
    monkeypatch.setattr(networks, "from_params", lambda params: only)
    found = check()
    assert found["passed"] and "parity" not in found and list(found["extraction"]) == ["a_pool"]


@pytest.mark.parametrize(
    "error, words, passing",
    [
        (
            fake_cupy.CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access"),
            "please report it",
            False,
        ),
        (
            fake_cupy.CUDARuntimeError("cudaErrorMemoryAllocation: out of memory"),
            "too little free memory",
            True,
        ),
        (ZeroDivisionError("a bug"), "ZeroDivisionError: a bug", False),
    ],
    ids=repr,
)
def test_an_exception_is_an_outcome_in_one_line(gpu, monkeypatch, error, words, passing):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(cuda_executor.Executor, "run", fail)
    found = check()
    assert not found["passed"] and found["passing"] == passing
    assert (
        found["fault"].startswith("rung gpu_opt_v1 does not run here: ") and words in found["fault"]
    )


def test_a_batch_that_would_take_the_cpu_long_is_smaller_but_not_too_small():
    assert check_rung.batches_of(small_networks.PLAIN, 64) == (64, 64, 64, 33, 33, 33)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_rung, "MOST_FLOP", 1)
        assert check_rung.batches_of(small_networks.PLAIN, 64) == (6, 6, 6, 4, 4, 4)
        assert check_rung.batches_of(small_networks.LABELLED, 64) == (12, 12, 12, 7, 7, 7)
