"""The cpu rung against the plainest plan there is: one operation per layer, nothing fused, float64."""

import numpy as np
import pytest

from ladder import executors, networks, numpy_executor, parity
from ladder.rungs import cpu

NETWORK = networks.build("autoencoder")
CONVOLUTIONS = [layer.name for layer in NETWORK.layers if layer.kind == "conv2d"]


@pytest.fixture(scope="module", params=parity.PROTOCOLS)
def protocol(request):
    return parity.PROTOCOLS[request.param]


@pytest.fixture(scope="module")
def reference(protocol):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "PATTERNS", [pattern for pattern in cpu.PATTERNS if len(pattern.kinds) == 1])
        return parity.train(NETWORK, "cpu", executors.create("cpu", 2), protocol, "float64")


def test_the_cpu_rung_stays_within_the_tolerance(protocol, reference):
    trained = parity.train(NETWORK, "cpu", executors.create("cpu", 2), protocol)
    assert max(parity.deviations(NETWORK, trained, reference).values()) <= protocol.tolerance


@pytest.mark.parametrize("layer", CONVOLUTIONS)
def test_a_gradient_wrong_by_one_percent_in_one_layer_fails(protocol, reference, layer, monkeypatch):
    wrong = NETWORK.parameters[f"{layer}.weight"]
    for name in ("conv2d_backward", "upsample_conv2d_backward"):
        def scaled(executor, *, dweight, right=numpy_executor.OPERATIONS[name], **operands):
            right(executor, dweight=dweight, **operands)
            if dweight.shape == wrong:
                dweight *= np.float32(1.01)

        monkeypatch.setitem(numpy_executor.OPERATIONS, name, scaled)
    trained = parity.train(NETWORK, "cpu", executors.create("cpu", 2), protocol)
    assert parity.deviations(NETWORK, trained, reference)[f"{layer}.weight"] > protocol.tolerance
