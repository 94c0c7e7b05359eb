"""A network of a person's own: what a file may say, and the one line about what it may not."""

import pathlib
import re

import pytest
import yaml

import planned
from ladder.errors import UserError
from ladder.machine import runtime
from ladder.network import networks, weights
from ladder.pages import network_file, reproduce
from ladder.sources import ROOT
from ladder.workflow import chains, config, network_files, runs

MINE = """\
# A small network
loss: cross_entropy
features: hidden_relu
layers:
  - {layer: conv1, kind: conv2d, filters: 16}
  - {layer: conv1_relu, kind: relu}
  - {layer: pool1, kind: maxpool2d}
  - {layer: flat, kind: flatten}
  - {layer: hidden, kind: dense, units: 64}
  - {layer: hidden_relu, kind: relu}
  - {layer: scores, kind: dense, units: classes}
"""
LONG = "x" * 50


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text, image=(32, 32, 3), classes=10, path="mine.yaml"):
    pathlib.Path(path).write_text(text)
    params = network_files.params(path, image, classes)
    return networks.from_params({**params, "image": list(image), "classes": classes})


def changed(old, new):
    assert old in MINE
    return MINE.replace(old, new, 1)


def test_a_file_is_the_network_that_it_says(here):
    network = read(MINE)
    assert (network.name, network.loss, network.features) == (
        "mine.yaml",
        "cross_entropy",
        "hidden_relu",
    )
    assert network.layers == read(MINE + "# another comment\n").layers
    assert network.parameters == {
        "conv1.weight": (16, 3, 3, 3),
        "conv1.bias": (16,),
        "hidden.weight": (64, 1, 1, 4096),
        "hidden.bias": (64,),
        "scores.weight": (10, 1, 1, 64),
        "scores.bias": (10,),
    }
    assert read(MINE, (28, 28, 1), 7).layers[-1].output_shape == (1, 1, 7)


@pytest.mark.parametrize("name", sorted(set(networks.NETWORKS) - {"patch_net"}))
def test_each_network_of_ours_is_the_same_network_as_a_file(here, name):
    network = networks.build(name)
    again = read(network_file.text(network))
    assert (again.layers, again.features, again.loss) == (
        network.layers,
        network.features,
        network.loss,
    )


def test_a_network_that_is_only_fitted_is_no_file():
    assert network_file.text(networks.build("patch_net")) == ""


def test_names_that_yaml_reads_as_something_else_are_quoted(here):
    text = changed("layer: conv1,", "layer: 'on',").replace(
        "kind: relu}", "kind: relu, inputs: ['on']}", 1
    )
    assert (
        read(text).layers[0].name == "on"
        and read(network_file.text(read(text))).layers == read(text).layers
    )


@pytest.mark.parametrize(
    "old, new, line, words",
    [
        (
            "filters: 16",
            "filters: 0",
            5,
            "filters is 0, but must be a whole number at least 1 and at most 65,536 or classes",
        ),
        ("filters: 16", "filter: 16", 5, "a layer has no key 'filter'; did you mean filters?"),
        ("kind: conv2d", "kind: conv3d", 5, "that docs/networks.md has; did you mean conv2d?"),
        (
            "kind: maxpool2d",
            "kind: maxpool2d, window: 40",
            7,
            "window is 40, but must be a whole number at least 1 and at most 15",
        ),
        ("kind: relu}", "kind: relu, filters: 3}", 6, "a layer of kind relu has no key filters"),
        ("loss: cross_entropy", "loss: crossentropy", 2, "did you mean cross_entropy?"),
        (
            "hidden_relu\nlayers",
            "hiden_relu\nlayers",
            3,
            "no layer is called that; did you mean hidden_relu?",
        ),
        (
            "  - {layer: flat, kind: flatten}\n",
            "",
            8,
            "layer hidden, for images of 32x32x3: a dense layer reads a vector",
        ),
        (
            "units: classes",
            "units: 5",
            11,
            "layer scores, the last, puts out 1x1x5, but loss cross_entropy needs 1x1x10",
        ),
        ("loss: cross_entropy", "loss: mse", 11, "needs 32x32x3, the shape of the image"),
        (
            "layer: conv1_relu",
            "layer: conv1",
            6,
            "layer is 'conv1', as the layer in line 5 is called; conv1_2 is free",
        ),
        ("layer: conv1,", "layer: scale,", 5, "layer is 'scale', as something else is called"),
        ("layer: conv1,", "layer: a b,", 5, "layer is 'a b', but must be a letter"),
        (
            "kind: maxpool2d}",
            "kind: maxpool2d, inputs: conv1}",
            6,
            "nothing reads layer conv1_relu",
        ),
        (
            "kind: maxpool2d}",
            "kind: maxpool2d, inputs: con1}",
            7,
            "no layer above is called that; did you mean conv1?",
        ),
        (
            "kind: maxpool2d}",
            "kind: maxpool2d, inputs: scores}",
            7,
            "inputs has 'scores', but no layer above is called that",
        ),
        (
            "conv1_relu, kind: relu",
            "conv1_relu, kind: add",
            6,
            "kind add has 2 inputs, not 1; set inputs to [input, conv1]",
        ),
        (
            "conv1_relu, kind: relu",
            "conv1_relu, kind: soft_threshold, threshold: 0.5",
            6,
            "soft_threshold has no gradient",
        ),
        ("filters: 16}", "kernel: 3}", 5, "a layer of kind conv2d needs the key filters"),
        (
            "filters: 16}",
            "filters: 16, kernel: 2024-99-99}",
            5,
            "kernel is '2024-99-99', which is not a number",
        ),
        ("filters: 16}", "filters: 16, filters: 17}", 5, "a layer has the key filters twice"),
        ("units: 64", "units: !!python/object:os.system 3", 9, "units is '3', which is not a"),
        ("units: 64", "units: {a: 1}", 9, "units must be a single value"),
        ("units: 64}", "units: 64", 10, "it is not YAML"),
        ("features: hidden_relu\n", "", 2, "the key features is missing"),
        ("layers:", "layers: 3\nx:", 5, "the file has no key 'x'; it has loss, features, layers"),
    ],
)
def test_a_fault_is_one_line_with_the_files_line_the_key_and_the_nearest_right_value(
    here, old, new, line, words
):
    with pytest.raises(UserError) as error:
        read(changed(old, new))
    assert str(error.value).startswith(f"mine.yaml line {line}: ") and words in str(error.value)


@pytest.mark.parametrize(
    "text, words",
    [
        ("[" * 3000, "it is not YAML"),
        ("", "it is empty"),
        ("\0", "it is not YAML"),
        ("a: &a [*a]", "has no key 'a'"),
        ("layers: &a [*a]\nloss: mse\nfeatures: x", "a layer is no mapping"),
        ("3", "the file is no mapping"),
        ("layers: 3\nloss: mse\nfeatures: x", "layers must be a list of 1 to 1,000 rows"),
        (
            MINE.split("  -")[0].replace("hidden_relu", LONG + "1")
            + "".join(f"  - {{layer: {LONG}{n}, kind: relu}}\n" for n in range(999)),
            "at most 60,000",
        ),
    ],
)
def test_a_file_that_is_something_else_is_one_line(here, text, words):
    with pytest.raises(UserError, match="^mine.yaml") as error:
        read(text)
    assert words in str(error.value)


DRAWN = """\
loss: mse
features: mean
layers:
  - {layer: mean, kind: conv2d, filters: 4}
  - {layer: spread, kind: conv2d, filters: 4, inputs: [input]}
  - {layer: latent, kind: sample, inputs: [mean, spread], beta: 0.5}
  - {layer: last, kind: conv2d, filters: channels}
"""


def test_a_file_may_draw_latent_values_once(here):
    assert read(DRAWN).draws.attributes == {"beta": 0.5}
    last = "  - {layer: last"
    again = DRAWN.replace(
        last, "  - {layer: more, kind: sample, inputs: [mean, latent], beta: 1}\n" + last
    )
    with pytest.raises(
        UserError,
        match="mine.yaml line 7: layer more of kind sample is one too many: a network draws",
    ):
        read(again)
    with pytest.raises(
        UserError,
        match=r"mine.yaml line 6: layer latent, .*a mean of shape \(32, 32, 4\) has no log-variance",
    ):
        read(DRAWN.replace("spread, kind: conv2d, filters: 4", "spread, kind: conv2d, filters: 5"))
    with pytest.raises(
        UserError,
        match=r"line 6: a layer of kind sample has 2 inputs, not 1; set inputs to \[mean, spread\]",
    ):
        read(DRAWN.replace("inputs: [mean, spread], ", "inputs: [mean], "))
    with pytest.raises(UserError, match="line 6: beta is 0, but must be a number above 0"):
        read(DRAWN.replace("0.5", "0"))


def test_the_content_of_the_file_is_part_of_versions_and_its_place_is_not(here):
    def version(text, folder="."):
        path = here / folder / "mine.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return chains.chain(runs.resolve(config.load(planned.RAW | {"network": str(path)})))[
            "train"
        ].version

    assert version(MINE) == version(MINE, "other") == version("# words\n" + MINE)
    assert version(MINE) != version(changed("units: 64", "units: 65"))


def test_the_layers_are_what_other_keys_are_checked_against(here):
    (here / "mine.yaml").write_text(MINE)
    raw = planned.RAW | {"network": "mine.yaml", "variant": "cpu"}
    assert runs.resolve(config.load(raw | {"features_layer": "pool1"})).features_layer == "pool1"
    with pytest.raises(UserError, match="mine.yaml has no such layer; did you mean hidden"):
        runs.resolve(config.load(raw | {"features_layer": "hiden"}))


@pytest.mark.parametrize(
    "memory, words",
    [(10**6, "not even 1 fits, with 263,306 parameters"), (6 * 10**6, "or less fits")],
)
def test_a_network_that_does_not_fit_the_memory_is_refused_before_anything_runs(
    here, monkeypatch, memory, words
):
    (here / "mine.yaml").write_text(MINE)
    monkeypatch.setattr(runtime, "memory_bytes", lambda: memory)
    raw = planned.RAW | {"network": "mine.yaml", "variant": "cpu", "batch_size": 64}
    with pytest.raises(
        UserError, match="^config: a training step of mine.yaml with batch_size 64 takes .* has"
    ) as error:
        runs.resolve(config.load(raw))
    assert words in str(error.value)
    if memory > 10**6:
        fits = int(str(error.value).rpartition("batch_size ")[2].split()[0])
        runs.resolve(config.load(raw | {"batch_size": fits}))
        with pytest.raises(UserError, match="takes"):
            runs.resolve(config.load(raw | {"batch_size": fits + 1}))


def test_the_examples_of_the_documentation_are_networks(here):
    example, attended = re.findall(
        r"```yaml\n(.*?)```", (ROOT / "docs/networks.md").read_text(), flags=re.S
    )
    assert read(example).layers == read(MINE).layers
    rows = "  - {layer: map, kind: conv2d, filters: 16}\n" + attended
    network = read(
        "loss: mse\nfeatures: sum\nlayers:\n"
        + rows
        + "  - {layer: last, kind: conv2d, filters: channels}\n"
    )
    assert (
        network.layer("attended").output_shape == network.layer("sum").output_shape == (32, 32, 16)
    )


def test_what_attention_cannot_part_is_one_line(here):
    rows = "  - {layer: parts, kind: conv2d, filters: 10}\n  - {layer: attended, kind: attention}\n"
    with pytest.raises(
        UserError,
        match="^mine.yaml line 5: layer attended, for images of 32x32x3: attention reads queries, "
        "keys and values, a third of the channels each, not of 10; 12 can be parted$",
    ):
        read("loss: mse\nfeatures: parts\nlayers:\n" + rows)


def test_a_reports_settings_and_file_plan_the_very_same_run(here):
    (here / "first").mkdir()
    (here / "first/mine.yaml").write_text(MINE)
    first = chains.chain(
        runs.resolve(
            config.load(planned.RAW | {"network": str(here / "first/mine.yaml"), "batch_size": 16})
        )
    )
    params = first["report"].spec["params"]
    manifests = {role: Planned(artifact.spec) for role, artifact in first["report"].parents.items()}
    (here / "mine.yaml").write_text(reproduce.network_file(params))
    written = yaml.safe_load(reproduce.text(reproduce.settings(manifests, params)))
    assert written["network"] == "mine.yaml"
    again = chains.chain(runs.resolve(config.load(planned.RAW | written)))
    assert {role: artifact.version for role, artifact in again.items()} == {
        role: artifact.version for role, artifact in first.items()
    }


class Planned:
    """An artifact of a chain that was not made."""

    def __init__(self, spec):
        self.manifest = {"spec": spec}


def test_weights_with_running_statistics_are_safetensors_also_of_an_autoencoder(here):
    first, norm, last = (
        {"layer": "conv", "kind": "conv2d", "filters": 4},
        {"layer": "norm", "kind": "batchnorm"},
        {"layer": "out", "kind": "conv2d", "filters": "channels"},
    )
    normed = {"loss": "mse", "features": "norm", "layers": [first, norm, last]}
    assert weights.file_name(read(yaml.safe_dump(normed))) == "weights.safetensors"
    plain = {"loss": "mse", "features": "conv", "layers": [first, last]}
    assert weights.file_name(read(yaml.safe_dump(plain))) == "weights.bin"
