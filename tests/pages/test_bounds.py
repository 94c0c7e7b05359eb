"""What a page says of the bound of a rung's step."""

import pytest

from ladder.pages import bounds
from ladder.rungs import counted

COUNTS = {
    "share": 0.71,
    "place": "dec3 backward",
    "kernel": "gpu_basic/conv2d.cu conv2d_weight_grad",
    "occupancy": 0.75,
    "waves": 0.034,
    "coalesced": 0.9,
    "conflicts": 0.0,
    "products": 0.6,
    "without": 28_000.0,
    "next": "level 1",
}


def test_a_step_is_explained_by_its_counts():
    text = bounds.sentences("latency", COUNTS, 50_000.0).replace("\u202f", " ")
    assert text == (
        "71 % of its time is bound by latency, most of it in dec3 backward (conv2d_weight_grad), whose blocks fill "
        "3 % of the GPU. More blocks, each with a part of the sums, would help next: without this bound the step "
        "would take 56 % of the time, bound by level 1."
    )


@pytest.mark.parametrize(
    "bound, changed, words",
    [
        (
            "latency",
            {"waves": 2.0, "occupancy": 0.12},
            "12 % of the warps that a multiprocessor can hold. Smaller",
        ),
        ("latency", {"waves": 2.0}, "More loads under way"),
        ("level 1", {"coalesced": 0.3, "conflicts": 0.5}, "Neighbouring addresses"),
        ("level 1", {"conflicts": 0.2}, "20 % wait for a bank. A layout"),
        ("level 1", {}, "More results in the registers"),
        ("issue", {"products": 0.01}, "1 % multiply. Wider loads"),
        ("issue", {}, "60 % multiply. Tensor cores"),
        ("tensor cores", {}, "Fewer products"),
        ("level 2", {}, "Larger tiles"),
        ("memory", {}, "Fused operations"),
        ("launch", {}, "Fewer launches"),
    ],
)
def test_the_counts_choose_what_would_help(bound, changed, words):
    text = bounds.sentences(bound, COUNTS | changed, 50_000.0).replace("\u202f", " ")
    assert words in text


def test_every_predicted_rung_and_every_bound_has_a_rule():
    assert {rule[0] for rule in bounds.RULES} == bounds.BOUNDS.keys()
    for rung in counted.predictions():
        text = bounds.sentences(rung["bound_by"], rung["limiting"], rung["middle"])
        assert rung["limiting"]["place"] in text and rung["limiting"]["without"] < rung["middle"]
        shares = {}
        for *_, time, bound in rung["timeline"]:
            shares[bound] = shares.get(bound, 0) + time / rung["middle"]
        assert rung["bound_by"] == max(shares, key=shares.get)
        assert rung["limiting"]["share"] == pytest.approx(shares[rung["bound_by"]], abs=0.002)
