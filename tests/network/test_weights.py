"""Weights files, initial weights and the movement of layers."""

import math
import struct

import numpy as np
import pytest
import safetensors.numpy

import processes
import untrained
from ladder.errors import UserError
from ladder.network import networks, weights

NETWORK = networks.build("autoencoder")
SHAPES = {
    "enc1": (256, 3, 3, 3),
    "enc2": (128, 256, 3, 3),
    "dec1": (128, 128, 3, 3),
    "dec2": (256, 128, 3, 3),
    "dec3": (3, 256, 3, 3),
}


@pytest.fixture(scope="module")
def parameters():
    return weights.initialize(NETWORK, seed=5)


@pytest.fixture
def file(tmp_path, parameters):
    path = tmp_path / "weights.bin"
    weights.save(path, NETWORK, parameters)
    return path


def test_which_file_is_of_an_autoencoder(tmp_path):
    """A weights.bin always counts as one, so that the error for another size names the
    autoencoder.
    """
    lenet = networks.build("lenet_5")
    for network in (NETWORK, lenet):
        values = untrained.values(network)
        weights.save(tmp_path / f"{network.name}.weights", network, values)
    other = networks.build("autoencoder", filters=(3, 2))
    assert weights.is_of(tmp_path / f"{NETWORK.name}.weights", NETWORK)
    assert weights.is_of(tmp_path / f"{NETWORK.name}.weights", other)
    assert not weights.is_of(tmp_path / "lenet_5.weights", NETWORK) and weights.is_of(
        tmp_path / "lenet_5.weights", lenet
    )
    with pytest.raises(UserError, match="the weights of this autoencoder are"):
        weights.load(tmp_path / f"{NETWORK.name}.weights", other)


def test_the_file_is_read_by_struct_and_frombuffer_alone(file, parameters):
    data = file.read_bytes()
    assert len(data) == 3_007_508
    assert struct.unpack("<ii", data[:8]) == (0xAE2024, 1)
    values = np.frombuffer(data[8:], "<f4")
    position = 0
    for layer, shape in SHAPES.items():
        weight = values[position : position + math.prod(shape)].reshape(shape)
        position += weight.size
        bias = values[position : position + shape[0]]
        position += shape[0]
        assert np.array_equal(weight.transpose(0, 2, 3, 1), parameters[f"{layer}.weight"])
        assert np.array_equal(bias, parameters[f"{layer}.bias"])
    assert position == values.size == 751_875


def test_written_weights_are_read_back_unchanged(file, parameters):
    back = weights.load(file, NETWORK)
    assert list(back) == list(parameters)
    assert all(np.array_equal(back[name], parameters[name]) for name in parameters)


def test_initial_weights_have_the_deviation_of_he_and_zero_biases(parameters):
    for layer, shape in SHAPES.items():
        weight = parameters[f"{layer}.weight"].astype(np.float64)
        expected = math.sqrt(2 / math.prod(shape[1:]))
        # 4 standard errors
        assert weight.std() == pytest.approx(expected, rel=4 / math.sqrt(2 * weight.size))
        assert abs(weight.mean()) < 4 * expected / math.sqrt(weight.size)
        assert not parameters[f"{layer}.bias"].any()


def test_initial_weights_depend_on_the_seed_and_on_nothing_else(parameters):
    again, other = weights.initialize(NETWORK, seed=5), weights.initialize(NETWORK, seed=6)
    assert all(np.array_equal(again[name], parameters[name]) for name in parameters)
    assert not np.array_equal(other["enc1.weight"], parameters["enc1.weight"])


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-4],
        lambda data: data + b"\0",
        lambda data: b"\0" + data[1:],
        lambda data: data[:4] + b"\2" + data[5:],
        lambda data: b"",
    ],
    ids=["short", "long", "magic", "version", "empty"],
)
def test_a_file_that_is_no_weights_file_is_refused_with_its_name(file, damage):
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(UserError, match=r"weights\.bin"):
        weights.read(file, NETWORK)


@pytest.fixture(scope="module")
def resnet():
    network = networks.build("resnet50", (28, 28, 1), width=4)
    values = untrained.values(network, 3)
    return network, {name: value + np.float32(0.5) for name, value in values.items()}


def test_other_networks_are_safetensors_with_names_and_shapes_of_other_frameworks(tmp_path, resnet):
    network, values = resnet
    path = tmp_path / weights.file_name(network)
    weights.save(path, network, values)
    found = safetensors.numpy.load_file(path)
    assert found["stem.weight"].shape == (4, 1, 7, 7) and found["scores.weight"].shape == (10, 128)
    assert found["stage1_1_conv1.weight"].shape == (4, 4, 1, 1)
    assert {
        "stem_bn.weight",
        "stem_bn.bias",
        "stem_bn.running_mean",
        "stem_bn.running_var",
    } <= found.keys()
    assert np.array_equal(found["stem.weight"].transpose(0, 2, 3, 1), values["stem.weight"])
    back = weights.load(path, network)
    assert back.keys() == values.keys()
    assert all(np.array_equal(back[name], values[name]) for name in values)


def test_weights_of_another_network_are_refused_with_the_tensor_that_differs(tmp_path, resnet):
    network, values = resnet
    weights.save(tmp_path / "weights.safetensors", network, values)
    with pytest.raises(
        UserError,
        match=r"weights of this resnet50: stem.weight is \(4, 1, 7, 7\) there and \(8, 1, 7, 7\)",
    ):
        weights.load(
            tmp_path / "weights.safetensors", networks.build("resnet50", (28, 28, 1), width=8)
        )
    with pytest.raises(UserError, match="enc1.weight is missing there"):
        weights.load(tmp_path / "weights.safetensors", NETWORK)


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint8, np.bool_, np.complex64])
def test_a_file_of_other_numbers_than_floats_is_refused(tmp_path, file, kind):
    tensors = {name: values.astype(kind) for name, values in weights.read(file, NETWORK).items()}
    safetensors.numpy.save_file(tensors, tmp_path / "weights.safetensors")
    with pytest.raises(
        UserError, match=rf"is {np.dtype(kind).name}, but weights are float16, float32 or float64"
    ):
        weights.load(tmp_path / "weights.safetensors", NETWORK)


def test_half_and_double_precision_are_rounded_to_single(tmp_path, file):
    single = weights.read(file, NETWORK)
    for kind in (np.float16, np.float64):
        safetensors.numpy.save_file(
            {name: values.astype(kind) for name, values in single.items()}, tmp_path / "other"
        )
        back = weights.read(tmp_path / "other", NETWORK)
        assert all(
            np.array_equal(back[name], single[name].astype(kind).astype(np.float32))
            for name in single
        )


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e300])
def test_a_file_whose_numbers_are_not_finite_in_single_precision_is_refused(
    tmp_path, file, parameters, value
):
    tensors = {
        name: values.astype(np.float64) for name, values in weights.read(file, NETWORK).items()
    }
    tensors["dec1.bias"][7] = value
    safetensors.numpy.save_file(tensors, tmp_path / "weights.safetensors")
    with pytest.raises(UserError, match="dec1.bias has NaN, Inf, or numbers beyond float32"):
        weights.load(tmp_path / "weights.safetensors", NETWORK)
    changed = {name: values.copy() for name, values in parameters.items()}
    changed["dec1.bias"][7] = np.nan if np.isnan(value) else np.inf
    weights.save(tmp_path / "weights.bin", NETWORK, changed)
    with pytest.raises(UserError, match="dec1.bias has NaN, Inf, or numbers beyond float32"):
        weights.load(tmp_path / "weights.bin", NETWORK)


def test_an_autoencoder_starts_from_safetensors_too(tmp_path, parameters, file):
    tensors = weights.read(file, NETWORK)
    safetensors.numpy.save_file(tensors, tmp_path / "weights.safetensors")
    back = weights.load(tmp_path / "weights.safetensors", NETWORK)
    assert all(np.array_equal(back[name], parameters[name]) for name in parameters)


def test_batch_normalisation_starts_as_the_identity_or_at_zero_ending_a_branch():
    network = networks.build("resnet18", (28, 28, 1), width=4)
    initial, state = weights.initialize(network, 0), weights.initial_state(network)
    assert (initial["stem_bn.weight"] == 1).all() and not initial["stage1_1_bn2.weight"].any()
    assert (initial["stage2_1_shortcut_bn.weight"] == 1).all() and not initial["stem_bn.bias"].any()
    assert (state["stem_bn.running_var"] == 1).all() and not state["stem_bn.running_mean"].any()


def test_movement_is_relative_to_the_initial_weights_and_omits_biases():
    before = {"a.weight": np.array([3.0, 4.0]), "a.bias": np.zeros(2)}
    after = {"a.weight": np.array([3.0, 4.5]), "a.bias": np.ones(2)}
    assert weights.movement(before, after) == {"a": pytest.approx(0.1)}


def test_the_movement_to_large_weights_is_a_number():
    before, after = ({"a.weight": np.full((2, 2), value, np.float32)} for value in (1, 1e30))
    assert weights.movement(before, after) == {"a": pytest.approx(1e30)}


def compare(*arguments):
    return processes.python("workflow/scripts/tools/compare_weights.py", *map(str, arguments))


@pytest.mark.parametrize(
    "value, tolerance, status",
    [
        (0, 1e-4, 0),
        (5e-5, 1e-4, 0),
        (2e-4, 1e-4, 1),
        (2e-4, 1e-3, 0),
        (math.nan, 1e9, 1),
        (math.inf, 1e9, 1),
    ],
)
def test_compare_weights_ends_with_0_within_the_tolerance_and_1_beyond_it(
    file, tmp_path, parameters, value, tolerance, status
):
    changed = {name: array.copy() for name, array in parameters.items()}
    changed["dec1.bias"][7] += value
    weights.save(tmp_path / "other.bin", NETWORK, changed)
    result = compare(file, tmp_path / "other.bin", "--tolerance", tolerance)
    assert result.returncode == status, result.stderr
    (row,) = [line for line in result.stdout.splitlines() if line.startswith("dec1.bias")]
    assert ("[7]" in row) == (status == 1)


def test_compare_weights_takes_networks_of_any_kind_and_refuses_two_different_ones(
    tmp_path, resnet, file
):
    network, values = resnet
    for name in ("a", "b"):
        weights.save(tmp_path / f"{name}.safetensors", network, values)
    assert compare(tmp_path / "a.safetensors", tmp_path / "b.safetensors").returncode == 0
    result = compare(tmp_path / "a.safetensors", file)
    assert result.returncode == 2 and "weights of two networks" in result.stderr
