"""The ladder on one axis: predicted, measured and PyTorch's times side by side."""

import pytest

from ladder.pages import ladder
from ladder.rungs import counted

PREDICTIONS = [
    {"name": rung, "predicted": ends, "dated": "2026-02-02", "kernels": f"{rung[-5:]}0123456789a"}
    for rung, ends in (("gpu_basic", [90.0, 130.0]), ("gpu_shared", [20.0, 30.0]))
]
TODAY = {
    "us": 110.0,
    "kernels": "basic0123456789a",
    "today": True,
    "predicted": [90.0, 130.0],
    "dated": "2026-02-02",
    "torch": 55.0,
}
EARLIER = TODAY | {
    "us": 60.0,
    "kernels": "f00d012345678901",
    "today": False,
    "predicted": [40.0, 50.0],
    "dated": "2026-01-01",
}
MEASURED = {
    "card": "NVIDIA H200",
    "made": "2026-02-03",
    "pytorch": "2.11.0+cu130",
    "rungs": {"gpu_basic": TODAY, "gpu_shared": EARLIER},
}


def test_a_measurement_stands_beside_the_prediction_of_its_own_kernels():
    cpu, basic, shared, earlier = ladder.steps(PREDICTIONS, MEASURED, {"cpu": 7.0})
    assert (cpu.name, cpu.here, cpu.predicted) == ("cpu", 7.0, None)
    assert (basic.predicted, basic.measured, basic.torch) == ((0.09, 0.13), 0.11, 0.055)
    assert (basic.dated, basic.measured_on) == ("2026-02-02", "2026-02-03")
    # today's kernels were not measured
    assert (shared.predicted, shared.measured) == ((0.02, 0.03), None)
    assert (earlier.predicted, earlier.measured) == ((0.04, 0.05), 0.06)
    assert (earlier.earlier, earlier.kernels, earlier.dated) == (
        True,
        "f00d012345678901",
        "2026-01-01",
    )
    nobody_knows = {"gpu_shared": EARLIER | {"predicted": None, "dated": "", "kernels": None}}
    listed = ladder.steps(PREDICTIONS, MEASURED | {"rungs": nobody_knows}, {})
    assert (listed[-1].predicted, listed[-1].measured, listed[-1].kernels) == (None, 0.06, "")


def test_all_marks_are_on_one_logarithmic_axis():
    listed = ladder.steps(PREDICTIONS, MEASURED, {"cpu": 7.0, "gpu_basic": 0.12})
    made = ladder.context(listed, "A step", MEASURED)
    chart = made["chart"]
    predicted, torch, measured, here = chart["series"]
    assert chart["x"]["scale"] == "log" and len(chart["y"]["rows"]) == 4
    assert (predicted["low"], predicted["high"]) == ([0.09, 0.02, 0.04], [0.13, 0.03, 0.05])
    assert (predicted["y"], set(predicted["look"])) == ([1, 2, 3], {"span"})
    assert (torch["x"], torch["look"]) == ([0.055, 0.055], ["tick", "tick"])
    assert (measured["x"], measured["y"]) == ([0.11, 0.06], [1, 3])
    assert (here["x"], here["y"]) == ([7.0, 0.12], [0, 1])
    row = made["rows"][1]
    assert (row["predicted"], row["measured"], row["torch"], row["here"], row["against"]) == (
        "0.090-0.13",
        "0.11",
        "0.055",
        "0.12",
        "2 times PyTorch’s time",
    )
    assert chart["y"]["rows"][1]["small"] == row["against"]
    faster = ladder.Step("gpu_basic", measured=0.5, torch=1.31)
    assert ladder.context([faster], "", {})["rows"][0]["against"] == "2.6 times as fast as PyTorch"
    assert (row["kernels"], made["pytorch"]) == ("basic012", "2.11.0")


def test_the_committed_measurements_are_of_all_rungs():
    listed = ladder.steps(counted.predictions(), counted.measured(), {})
    today = [step for step in listed if not step.earlier]
    assert [step.name for step in today] == [row["name"] for row in counted.predictions()]
    assert all(step.torch and step.measured_on and step.dated for step in today)
    assert any(step.measured for step in listed)


@pytest.mark.parametrize(
    "value, text",
    [(0.01234, "0.0123"), (1.234, "1.23"), (45.67, "45.7"), (1234.5, "1,234"), (None, "")],
)
def test_numbers_have_the_digits_that_matter(value, text):
    assert ladder.text(value) == text
