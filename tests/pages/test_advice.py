"""Which command a report that is not better than its controls ends with."""

import pytest

from ladder.pages import advice

GOOD, LUCK = {"difference_interval": [0.01, 0.2]}, {"difference_interval": [-0.01, 0.2]}
RECIPE = [{"keys": {"network": "patch_net", "training": "patches"}, "reason": ""}]
FLIP = [{"keys": {"features_flip": True}, "reason": "pictures look like their mirror images"}]
SIZE = [{"keys": {"image_size": [64, 64]}, "reason": "the median shorter side is 90 pixels"}]


def summary(**keys):
    usual = {"controls": [LUCK], "dataset": "folder", "choices": [], "training": "gradient"}
    usual |= {"steps": 40, "changed_copies": None, "images": {"test": 99}}
    return usual | {"reproduce": {"settings": {}}} | keys


def share_of(value):
    return {
        "choices": RECIPE,
        "training": "patches",
        "reproduce": {"settings": {"test_share": value}},
    }


@pytest.mark.parametrize(
    "keys, declined, command",
    [
        ({"controls": [GOOD, GOOD]}, FLIP, None),
        ({"controls": None}, FLIP, None),
        # pictures without labels
        ({"controls": None, "changed_copies": {"controls": [GOOD]}}, FLIP, None),
        ({"controls": None, "changed_copies": {"controls": [LUCK]}}, FLIP, "features_pool=auto"),
        ({}, FLIP, "dataset=folder folder=PATH network=auto normalization=auto features_pool=auto"),
        (
            {"choices": RECIPE},
            FLIP,
            "--configfile run.yaml --config folder=PATH features_flip=true",
        ),
        ({"choices": RECIPE}, SIZE + FLIP, "folder=PATH image_size=[64,64]"),
        ({"choices": RECIPE, "training": "patches", "steps": None}, [], None),
        (share_of(0.2), [], "run.yaml --config folder=PATH test_share=0.5"),
        (share_of(0.2) | {"images": {"test": 100}}, [], None),
        (share_of(0.5), [], None),
        ({"dataset": "mnist"}, [], "report --configfile run.yaml --config steps=2000"),
        ({"dataset": "mnist", "steps": 1000}, [], None),
        ({"dataset": "mnist", "controls": [GOOD, LUCK]}, [], "run.yaml --config steps=2000"),
    ],
)
def test_the_first_rule_that_applies_names_the_command(keys, declined, command):
    advised = advice.command(summary(**keys), declined)
    if command is None:
        assert advised is None
    else:
        assert advised["command"].endswith(command) and advised["reason"]
