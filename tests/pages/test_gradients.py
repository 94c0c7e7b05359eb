"""The page of the check of a backward pass: the verdict comes first, and a wrong layer is named."""

import pytest

import browser
from browser import FAINT_TEXTS, TOO_WIDE
from ladder.pages import gradients as page


def summary(**wrong):
    tensors = [
        {
            "layer": "conv",
            "tensor": "conv.weight",
            "elements": 432,
            "norm": 0.5,
            "difference": 0.25,
            "product": 0.25,
            "deviation": 3e-9,
            "passed": True,
        },
        {
            "layer": "scores",
            "tensor": "scores.weight",
            "elements": 10,
            "norm": 2.0,
            "difference": -1.0,
            "product": -1.0,
            "deviation": 1e-10,
            "passed": True,
        },
    ]
    tensors[0] |= wrong
    layers = [
        {"layer": "noise", "kind": "dropout", "own": [], "through": [], "passed": None},
        {
            "layer": "conv",
            "kind": "conv2d",
            "own": ["conv.weight"],
            "through": [],
            "passed": tensors[0]["passed"],
        },
        {
            "layer": "conv_relu",
            "kind": "relu",
            "own": [],
            "through": ["conv.weight"],
            "passed": tensors[0]["passed"],
        },
        {
            "layer": "scores",
            "kind": "dense",
            "own": ["scores.weight"],
            "through": [],
            "passed": True,
        },
    ]
    return {
        "network": "mine.yaml",
        "rung": "cpu",
        "precision": "float64",
        "images": 3,
        "tolerance": 1e-5,
        "losses": [2.3, 2.3],
        "tensors": tensors,
        "layers": layers,
        "passed": not wrong,
    }


WRONG = {"product": 0.3, "deviation": 0.2, "passed": False}


def test_the_verdict_is_the_first_sentence():
    text = page.page(summary())
    assert "The backward pass of all 3 trained layers agrees with finite differences." in text
    assert '<td class="right">0.5</td>' in text and "e-01" not in text, (
        "a length is written as people write it"
    )
    assert (
        'The largest deviation is <strong class="num">3.0e-09</strong>; the' in text
        and "deviates" not in text
    )


def test_a_wrong_gradient_is_said_first_with_the_layers_to_look_at():
    found = summary(**WRONG)
    assert page.verdict(found) == (
        "The backward pass is wrong: the gradient of conv.weight deviates from finite differences. "
        "The fault is in the layer conv or conv_relu."
    )
    text = page.page(found)
    assert (
        text.index("The backward pass is wrong") < text.index("<h2")
        and text.count("<strong>deviates</strong>") == 3
    )


@pytest.mark.skipif(browser.find() is None, reason="no Chromium found (Debian package: chromium)")
class TestEveryPage(browser.EveryPage):
    @pytest.fixture(params=[{}, WRONG], ids=["right", "wrong"])
    def page(self, request, tmp_path):
        path = tmp_path / "gradients.html"
        path.write_text(page.page(summary(**request.param)))
        return path

    def test_it_is_readable_in_a_browser(self, chromium, page):
        browser.check_self_contained(chromium, page)
        assert browser.check_contents(chromium, page) == 3
        for width in (360, 1280):
            for scheme in ("light", "dark"):
                chromium.open(page, width, scheme=scheme)
                assert chromium.value("document.documentElement.scrollWidth") == width
                assert chromium.value(TOO_WIDE) == [] and chromium.value(FAINT_TEXTS) == []
