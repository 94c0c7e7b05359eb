"""How PyTorch is made to train for the comparison, on a stand-in for it."""

import dataclasses
import importlib
import sys

import pytest

import cases
import fake_torch
import small_networks

CASE = dataclasses.asdict(cases.Case("small", (4, 4, 3), 2, 8))
GRAPH, PLAIN = "PyTorch bf16 compiled channels_last graph", "PyTorch fp32 eager contiguous"


@pytest.fixture
def torch(monkeypatch):
    """(torch_gpu, the PyTorch that it uses)"""
    torch = fake_torch.Torch()
    torch.install(monkeypatch)
    for name in ("torch_gpu", "torch_step"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    torch_gpu = importlib.import_module("torch_gpu")
    monkeypatch.setattr(torch_gpu, "Module", lambda network: fake_torch.Module())
    monkeypatch.setattr(torch_gpu, "WARM_UP", 2)
    monkeypatch.setattr(cases.networks, "build", small_networks.build)
    yield torch_gpu, torch
    for name in ("torch_gpu", "torch_step"):
        sys.modules.pop(name, None)


def test_there_is_a_contender_for_each_way_to_train():
    ways = {
        (one.precision, one.form, one.channels_last, one.graph) for one in cases.CONTENDERS.values()
    }
    assert len(cases.CONTENDERS) == len(ways) == 30


@pytest.mark.parametrize(
    "precision, tf32, matmul, cast",
    [
        ("fp32", False, "highest", "no autocast"),
        ("tf32", True, "high", "no autocast"),
        ("bf16", False, "highest", "autocast bf16"),
    ],
)
def test_a_precision_is_what_its_name_says_in_every_turn(torch, precision, tf32, matmul, cast):
    torch_gpu, fake = torch
    names = [f"PyTorch {one} eager contiguous" for one in (precision, "tf32", "fp32")]
    for name in names:  # each sets the flags for itself
        torch_gpu.prepare(CASE, name)
    fake.log.clear()
    torch_gpu.turn(names[0], 3)
    assert (fake.backends.cudnn.allow_tf32, fake.matmul, fake.backends.cudnn.benchmark) == (
        tf32,
        matmul,
        True,
    )
    assert set(fake.log) == {cast, "step of 2 on default"}


def test_float16_scales_the_loss_and_lets_no_infinite_gradient_into_a_weight(torch):
    torch_gpu, fake = torch
    torch_gpu.prepare(CASE, "PyTorch fp16 eager channels_last graph")
    assert fake.log[1:5] == [
        "autocast fp16",
        "loss times 1024",
        "step of 2 on own",
        "update unless infinite",
    ]


def test_a_graph_is_captured_after_steps_on_an_own_stream_and_replayed_on_new_images(torch):
    torch_gpu, fake = torch
    torch_gpu.prepare(CASE, GRAPH)
    steps = [entry for entry in fake.log if entry.startswith(("step", "replay"))]
    assert steps[:3] == ["step of 2 on own"] * 3 and set(steps[3:]) == {"replay"}, (
        "no step on the default stream before"
    )
    assert (
        "Adam fused=True capturable=True" in fake.log
        and "compile dynamic=False mode=default" in fake.log
    )
    assert fake._dynamo.config.recompile_limit >= 100 and not fake._dynamo.config.suppress_errors
    fake.log.clear()
    found = torch_gpu.turn(GRAPH, 3)
    # the last one shows that it learns
    assert fake.log == ["copy of 2 in channels_last", "replay"] * 4
    assert found == {"us": [1000.0 / 3]}, "a lap of three steps between two events"


def test_a_batch_of_another_size_than_the_graphs_is_made_without_it(torch):
    torch_gpu, fake = torch
    run = torch_gpu.TorchTraining(cases.Case.from_dict(CASE), cases.CONTENDERS[GRAPH])
    fake.log.clear()
    run.step_with(fake_torch.Tensor(fake, 1), fake_torch.Tensor(fake, 1))
    assert fake.log == ["autocast bf16", "step of 1 on default"]


@pytest.mark.parametrize(
    "precision, dtype, tf32",
    [("fp32", "fp32", False), ("tf32", "fp32", True), ("bf16", "bf16", False)],
)
def test_every_pass_of_every_convolution_is_timed_in_a_graph_of_its_own(
    torch, precision, dtype, tf32
):
    torch_gpu, fake = torch
    rows = torch_gpu.convolutions(CASE, precision)["rows"]
    layers = [
        layer.name for layer in cases.Case.from_dict(CASE).network.layers if layer.kind == "conv2d"
    ]
    assert [(row["layer"], row["operation"]) for row in rows] == [
        (layer, name) for layer in layers for name in torch_gpu.CONVOLUTIONS
    ]
    assert len(layers) > 1 and [len(graph.calls) for graph in fake.graphs] == [
        torch_gpu.CALLS
    ] * len(rows)
    assert all(set(types) == {dtype} for graph in fake.graphs for types in graph.calls)
    assert fake.backends.cudnn.allow_tf32 == tf32 and rows[0]["median_us"] == 1000 / torch_gpu.CALLS
    assert fake.log == ["replay"] * len(rows) * (torch_gpu.GRAPHS + 2)


@pytest.mark.parametrize("name", [GRAPH, PLAIN])
def test_a_contender_that_does_not_learn_has_no_time(torch, name):
    torch_gpu, fake = torch
    fake.learns = False
    with pytest.raises(RuntimeError, match="does not learn: the loss was 1 and is 1"):
        torch_gpu.prepare(CASE, name)
