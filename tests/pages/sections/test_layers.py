"""The section on the network has a row for each layer, and a kernel for one or several."""

from ladder.pages.sections import layers


def test_a_kernel_that_ran_several_layers_spans_them(digits):
    (part,) = layers.layers(digits["train"].metrics)["parts"]
    assert [layer["rows"] for layer in part["rows"]] == [3, 0, 0, 3, 0, 0, 2, 0, 3, 0, 0, 2, 0]


def test_a_layer_without_a_kernel_has_a_cell_of_its_own():
    four = [
        {"layer": name, "kind": "relu", "output": [1, 1, 1], "parameters": 0, "macs": 0}
        for name in "abcd"
    ]
    (part,) = layers.layers({"network": four, "kernels": [{"layer": "b + c", "kernel": "k"}]})[
        "parts"
    ]
    assert [layer["rows"] for layer in part["rows"]] == [1, 2, 0, 1]
