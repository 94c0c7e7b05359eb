"""The formats of numbers, and the error for an unknown variable in a template."""

import jinja2
import pytest

from ladder.network import networks
from ladder.pages import templates


@pytest.mark.parametrize(
    "fraction, text",
    [
        (0.98611, "98.6 %"),
        (1.0, "100.0 %"),
        (0.0, "0.0 %"),
        (0.00017, "0.017 %"),
        (0.018, "1.8 %"),
        (0.0042, "0.42 %"),
    ],
)
def test_small_percentages_have_digits_that_say_something(fraction, text):
    assert templates.small_percent(fraction).replace(templates.NARROW_SPACE, " ") == text


@pytest.mark.parametrize(
    "value, text",
    [
        (174_612_480, "174.6 M"),
        (7_077_888, "7.1 M"),
        (1500, "1.5 k"),
        (12, "12"),
        (4.1e9, "4.1 G"),
    ],
)
def test_large_numbers_get_a_unit(value, text):
    assert templates.large(value).replace(templates.NARROW_SPACE, " ") == text


@pytest.mark.parametrize(
    "value, noun, text",
    [
        (1, "image", "1 image"),
        (0, "image", "0 images"),
        (1437, "test image", "1,437 test images"),
        (1, "class", "1 class"),
        (2, "class", "2 classes"),
        (3, "epoch", "3 epochs"),
    ],
)
def test_what_is_counted_is_plural_but_for_one(value, noun, text):
    assert templates.counted(value, noun) == text


@pytest.mark.parametrize("seconds, text", [(0.004, "4 ms"), (0.4, "0.4 s"), (84, "1 min 24 s")])
def test_durations_are_words(seconds, text):
    assert templates.duration(seconds).replace(templates.NARROW_SPACE, " ") == text


@pytest.mark.parametrize(
    "value, text",
    [
        (True, "true"),
        (None, "none"),
        (0.001, "0.001"),
        (["random", "pixels"], "random, pixels"),
        ([], "none"),
    ],
)
def test_settings_read_as_in_the_configuration(value, text):
    assert templates.setting(value) == text


@pytest.mark.parametrize(
    "value, text",
    [("0.0031508626964036387", "0.003151"), ("1.5", "1.5"), ("cifar10_2024.5", "cifar10_2024.5")],
)
def test_a_number_of_many_digits_is_brief(value, text):
    assert templates.brief(value) == text


def test_an_unknown_name_in_a_template_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        templates.render("report.html", {})


@pytest.mark.parametrize(
    "name, title",
    [
        ("lenet_5", "LeNet-5"),
        ("resnet101", "ResNet-101"),
        ("autoencoder", "An autoencoder"),
        ("alexnet", "AlexNet"),
        ("vgg16", "VGG-16"),
        ("something", "something"),
    ],
)
def test_networks_are_called_what_people_call_them(name, title):
    assert templates.network_title(name) == title


def test_every_network_has_a_title_to_read():
    for name in networks.NETWORKS:
        assert (
            "_" not in templates.network_title(name) and templates.network_title(name)[0].isupper()
        )


def test_layers_fold_by_stage_and_by_block_and_none_is_lost():
    names = [layer.name for layer in networks.build("resnet50", (28, 28, 1)).layers]
    stages, blocks = templates.in_stages(names), templates.in_blocks(names)
    assert [stage for stage, _ in stages] == ["", "stage1", "stage2", "stage3", "stage4", ""]
    assert [block for block, _ in blocks][1:4] == ["stage1_1", "stage1_2", "stage1_3"] and len(
        blocks
    ) == 2 + 16
    for folded in (stages, blocks):
        assert [name for _, some in folded for name in some] == names


def test_a_layer_that_only_sounds_like_a_stage_is_none():
    assert templates.in_stages(["stage1_pool", "stages", "stage2_10_bn1", "stage2_10"]) == [
        ("", ["stage1_pool", "stages"]),
        ("stage2", ["stage2_10_bn1", "stage2_10"]),
    ]


def test_cells_say_amount_share_and_length():
    items = [{"macs": 3000}, {"macs": 0}, {"macs": 1000}]
    templates.add_cells(items, {"macs": str})
    assert [item["cells"][0]["text"] for item in items] == ["3000", "", "1000"]
    assert [item["cells"][0]["length"] for item in items] == [100, 0, 33.33]
    assert items[2]["cells"][0]["share"] == templates.percent(0.25)


def test_a_vectors_shape_is_its_length():
    assert (templates.shape((28, 28, 6)), templates.shape([1, 1, 84])) == ("28 × 28 × 6", "84")
