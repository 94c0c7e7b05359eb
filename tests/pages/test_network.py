"""The drawing of a network shows every layer once with its connections, and the costs add up."""

import functools
import re

import pytest

import draw_network
import manifest_files
import zoo
from ladder.network import layers, networks, optimizers
from ladder.pages import network as network_page
from ladder.pages.network import Edge
from ladder.plan import plan
from ladder.plan.data import PURPOSES
from ladder.rungs import catalog
from ladder.store import artifacts
from page_text import addresses, joined_sentences, text_of

SHAPES = {"autoencoder": (32, 32, 3)}


@functools.cache
def built(name, shape=None):
    return networks.build(name, shape or SHAPES.get(name, (28, 28, 1)))


@functools.cache
def step(name):
    network, dataset = built(name), plan.Dataset(8, "uint8")
    if name == "patch_net":
        return plan.inference_plan(network, "cpu", 8, dataset)
    settings = plan.TrainingSettings(
        network=network, rung="cpu", batch_size=8, optimizer=optimizers.Optimizer("adam")
    )
    return plan.training_plan(settings, dataset, plan.Length(1, 1))


@functools.cache
def context_of(name):
    return network_page.context(built(name), "cpu", 8, "adam")


def drawn(name):
    """(part, drawing) of every drawing on the page."""
    return [(part, drawing) for part in context_of(name)["parts"] for drawing in part["drawings"]]


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_every_layer_is_drawn_once_or_stands_for_blocks_alike(name):
    network = built(name)
    layers_drawn = sum(
        drawing["times"] * sum(not row["elsewhere"] for row in drawing["rows"])
        for _, drawing in drawn(name)
    )
    assert layers_drawn == len(network.layers) + 1  # the input
    names = [
        row["name"] for _, drawing in drawn(name) for row in drawing["rows"] if not row["elsewhere"]
    ]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_costs_add_up_to_the_networks(name):
    network = built(name)
    context, made = context_of(name), step(name)
    kinds = made.bytes_by_kind()
    total = {
        "parameters": network.parameter_count,
        "macs": sum(layer.macs for layer in network.layers),
        "memory": kinds["activation"] + kinds.get("mask", 0),
    }
    assert context["total"] == total
    for cost, value in total.items():
        assert sum(part[cost] for part in context["parts"]) == value
        assert (
            sum(
                drawing["times"] * sum(row[cost] for row in drawing["rows"] if not row["elsewhere"])
                for _, drawing in drawn(name)
            )
            == value
        )
    assert (
        context["memory"] == sum(made.bytes_by_purpose().values()) and context["flop"] == made.flop
    )


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_lines_join_each_layer_with_what_it_reads(name):
    network = built(name)
    for _, drawing in drawn(name):
        names = [row["name"] for row in drawing["rows"]]
        _, edges = network_page.arrange({row["name"]: row["inputs"] for row in drawing["rows"]})
        joined = {(names[edge.top], names[edge.bottom]) for edge in edges}
        inside = {row["name"] for row in drawing["rows"] if not row["elsewhere"]} - {networks.INPUT}
        assert joined == {
            (source, layer.name)
            for layer in network.layers
            if layer.name in inside
            for source in layer.inputs
        }
        assert len(drawing["lines"]) == len(edges) == len(joined)


def test_a_chain_is_one_lane():
    lanes, edges = network_page.arrange({"a": (), "b": ("a",), "c": ("b",)})
    assert lanes == {"a": 0, "b": 0, "c": 0}
    assert set(edges) == {Edge(0, 0, 0, 1, 0), Edge(0, 1, 0, 2, 0)}


def test_a_shortcut_runs_beside_what_it_passes():
    lanes, edges = network_page.arrange(
        {"x": (), "conv": ("x",), "relu": ("conv",), "sum": ("relu", "x")}
    )
    assert set(lanes.values()) == {0}
    assert Edge(0, 0, 1, 3, 0) in edges and len(edges) == 4


def test_a_shortcut_with_layers_of_its_own_has_them_in_its_lane():
    inputs = {"x": (), "short": ("x",), "conv": ("x",), "sum": ("conv", "short"), "end": ("sum",)}
    lanes, edges = network_page.arrange(inputs)
    assert lanes == {"x": 0, "short": 1, "conv": 0, "sum": 0, "end": 0}
    assert (
        Edge(0, 0, 1, 1, 1) in edges
        and Edge(1, 1, 1, 3, 0) in edges
        and Edge(0, 0, 0, 2, 0) in edges
    )


def test_shortcuts_that_overlap_have_own_lanes_and_consecutive_ones_share_one():
    nested = {"a": (), "b": ("a",), "c": ("b",), "d": ("c", "b"), "e": ("d", "a")}
    _, edges = network_page.arrange(nested)
    assert sorted(edge.along for edge in edges if edge.along) == [1, 2]
    following = {"a": (), "b": ("a",), "c": ("b", "a"), "d": ("c",), "e": ("d", "c")}
    _, edges = network_page.arrange(following)
    assert [edge.along for edge in edges if edge.along] == [1, 1]


def test_what_nothing_reads_is_drawn_too():
    lanes, edges = network_page.arrange({"a": (), "loose": ("a",), "b": ("a",)})
    assert lanes == {"a": 0, "loose": 1, "b": 0} and Edge(0, 0, 1, 1, 1) in edges


def test_a_line_leaves_and_enters_nodes_level_and_stays_in_the_drawing():
    for edge in (
        Edge(0, 0, 1, 3, 0),
        Edge(0, 0, 1, 1, 1),
        Edge(1, 1, 1, 3, 0),
        Edge(2, 0, 1, 2, 0),
    ):
        path = network_page._line(edge)
        (x, y), (end_x, end_y) = (
            (network_page._x(lane), network_page._y(row))
            for lane, row in ((edge.source, edge.top), (edge.target, edge.bottom))
        )
        assert path.startswith(f"M{x} {y}")
        assert path.endswith(f"H{end_x}" if edge.along != edge.target else f"V{end_y}")


def test_frames_hold_the_layers_of_one_kernel():
    ((_, drawing),) = drawn("autoencoder")
    spans = [row["span"] for row in drawing["rows"]]
    assert spans == [1, 3, 0, 0, 3, 0, 0, 2, 0, 3, 0, 0, 2, 0]
    rows = [
        (
            round(frame["y"] / network_page.ROW),
            round((frame["y"] + frame["height"]) / network_page.ROW),
        )
        for frame in drawing["groups"]
    ]
    assert rows == [(1, 4), (4, 7), (7, 9), (9, 12), (12, 14)]
    assert all(
        0 <= frame["x"] and frame["x"] + frame["width"] <= drawing["width"]
        for frame in drawing["groups"]
    )


def test_what_a_kernel_never_writes_takes_no_memory():
    rows = {row["name"]: row for row in network_page.layer_rows(built("lenet_5"), step("lenet_5"))}
    assert rows["conv1"]["memory"] == rows["conv1_relu"]["memory"] == 0
    # four bytes per value, and one for its position
    assert rows["pool1"]["memory"] == 8 * 14 * 14 * 6 * 5
    assert rows["input"]["memory"] == 8 * 28 * 28 * 4


def test_blocks_alike_are_drawn_once_and_those_that_differ_are_not():
    found = {
        part["stage"]: [(one["title"], one["times"]) for one in part["drawings"]]
        for part, _ in drawn("resnet101")
    }
    assert found["stage3"] == [("stage3_1", 1), ("stage3_2 to stage3_23", 22)]
    assert found["stage1"] == [("stage1_1", 1), ("stage1_2 to stage1_3", 2)]


@pytest.mark.parametrize("kind", layers.KINDS)
def test_every_kind_of_layer_can_be_drawn_and_described(kind):
    words = network_page.described(zoo.LAYERS[kind])
    assert (
        len(layers.KINDS[kind].node) == 2
        and "{" not in words
        and (words or not layers.arguments(kind))
    )


def test_strides_and_paddings_are_named_unless_they_are_the_default():
    assert (
        network_page.described(layers.conv2d("x", 64, 7, 3, 2))
        == "7 × 7, 64 filters, stride 2, padding 3"
    )
    assert network_page.described(layers.conv2d("x", 6, 5, 0)) == "5 × 5, 6 filters"
    assert (
        network_page.described(layers.maxpool2d("x", 3, 2, 1))
        == "max of 3 × 3, stride 2, padding 1"
    )
    assert network_page.described(layers.maxpool2d("x")) == "max of 2 × 2"


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_every_buffers_kind_has_a_purpose(name):
    assert {buffer.kind for buffer in step(name).buffers.values()} <= {
        *PURPOSES,
        "dataset",
        "control",
    }


@pytest.mark.parametrize(
    "name, batch, sentence",
    [
        ("lenet_5", 64, "With 64 images and adam, the forward pass of cpu has 7 operations."),
        ("patch_net", 1, "With 1 image, cpu needs 5 operations"),
    ],
)
def test_the_step_is_described_in_whole_sentences(name, batch, sentence):
    page = network_page.page(built(name), "cpu", batch, "adam")
    assert sentence in text_of(page) and "The buffers of the step are allocated once." in text_of(
        page
    )
    assert joined_sentences(page) == []


def test_the_flop_of_attention_are_said_to_be_counted():
    attentive = networks.build("autoencoder", (8, 8, 3), filters=(4, 4), attentive=True)
    plain = networks.build("autoencoder", (8, 8, 3), filters=(4, 4))
    said = [text_of(network_page.page(network, "cpu", 2, "sgd")) for network in (attentive, plain)]
    assert "FLOP, counting the convolutions, attention and the loss, forward" in said[0]
    assert "FLOP, counting the convolutions and the loss, forward" in said[1]


def test_an_autoencoders_page_begins_with_what_it_rebuilds_an_image_from():
    plain = networks.build("autoencoder", (8, 8, 3), filters=(4, 5))
    sparse = networks.build("wta_autoencoder", (8, 8, 3), filters=7, kernels=(3, 3))
    first, second = (
        text_of(network_page.page(network, "cpu", 2, "sgd")) for network in (plain, sparse)
    )
    assert "reconstruct an image of 8 × 8 × 3 from the 20 values of latent." in first
    assert (
        "reconstruct an image of 8 × 8 × 3 from at most 7 values that are not zero, of the 252 values of winners."
        in second
    )


def test_the_stage_writes_the_page(tmp_path):
    params = {
        "network": "lenet_5",
        "image": [28, 28, 1],
        "classes": 10,
        "batch_size": 16,
        "optimizer": "sgd",
        "variant": "cpu",
    }
    with artifacts.making(
        tmp_path / "network/n0123456789a", manifest_files.spec("network", params)
    ) as work:
        draw_network.make(work, {}, params)
    page = (tmp_path / "network/n0123456789a/network.html").read_text()
    assert (
        page.startswith("<!doctype html>")
        and "LeNet-5" in page
        and "61,706" in page
        and "batches of 16" in page
    )
    for layer in built("lenet_5").layers:
        assert page.count(f"<code>{layer.name}</code>") == 1


def test_the_page_names_no_other_file_and_gives_every_header_a_scope():
    page = network_page.page(built("resnet101", (32, 32, 3)), "cpu", 8, "momentum")
    assert addresses(page) == []
    assert all(" scope=" in tag for tag in re.findall(r"<th\b[^>]*>", page))
    assert len(page.encode()) < 300_000 and "None" not in page


@pytest.mark.parametrize("rung", catalog.RUNGS)
def test_every_rung_can_be_drawn_on_any_machine(rung):
    network = built("lenet_5")
    context = network_page.context(network, rung, 8, "adam")
    kernels = [
        row["kernel"]
        for row in context["parts"][0]["drawings"][0]["rows"]
        if row["span"] and row["kernel"]
    ]
    assert (
        len(kernels) == context["kernels"]
        and len(context["parts"][0]["rows"]) == len(network.layers) + 1
    )
