"""The gradients that the definitions of tests/support/references.py write out, which are not
differences, are gradients.

Those of layers that are not linear are differences; tests/executors/test_sequential.py has all
kinds of layers in one network.
"""

import numpy as np
import pytest

import operation_cases
import references
from kernel_checks import integers, normal
from operation_cases import Near

LINEAR = (
    operation_cases.conv2d,
    operation_cases.dense,
    operation_cases.maxpool2d,
    operation_cases.avgpool2d,
    operation_cases.resized,
    operation_cases.pad,
)


def product(one, other):
    value = one.value if isinstance(one, Near) else one
    return float((np.asarray(value, float) * other).sum())


@pytest.mark.parametrize("definition", LINEAR, ids=lambda definition: definition.__name__)
def test_a_linear_layer_times_dy_is_its_input_times_the_gradient(definition):
    """Of random integers, which would hardly be so by chance; forward each layer is tested by what
    it is.
    """
    rows = [
        row
        for made, draws, rows in operation_cases.TABLE
        if made is definition and integers in draws
        for row in rows
    ]
    for row in rows:
        forward, *gradients = [
            case for case in definition(integers, *row) if not case.attributes.get("relu")
        ]
        dy = gradients[0].reads["dy"]
        total = product(forward.results()["y"], dy) - product(
            forward.reads.get("bias", 0), dy.sum(axis=(0, 1, 2))
        )
        for case in gradients:
            for role, gradient in case.results().items():
                if role == "dbias":
                    assert np.array_equal(gradient, dy.sum(axis=(0, 1, 2)))
                else:
                    assert product(gradient, forward.reads[role[1:]]) == pytest.approx(
                        total, rel=1e-12, abs=1e-9
                    ), row


def test_the_gradient_of_a_sample_has_that_of_its_divergence():
    mean, log_variance, drawn, dy = (
        normal(2, 3, 2, 3, seed=seed).astype(float) for seed in range(4)
    )

    def total():
        y, divergences = (
            references.sample(mean, log_variance, drawn)[0],
            references.divergences(mean, log_variance),
        )
        return np.sum(dy * y) + 0.3 * divergences.sum()

    found = references.sample_gradients(
        mean, log_variance, references.sample(mean, log_variance, drawn)[1], dy, 0.3
    )
    for gradient, values in zip(found, (mean, log_variance), strict=True):
        np.testing.assert_allclose(
            gradient, references.numerical_gradient(total, values), rtol=1e-7, atol=1e-8
        )
