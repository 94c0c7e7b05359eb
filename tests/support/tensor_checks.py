"""What the tests of the tensor-core rungs share: shapes, both models of their sums, the compiled
kernels' resources.
"""

import functools
import re

import pytest

import backends
import cuda_emulator
import emulator_executor
import needs
import operation_cases
from compiled import without_spills
from emulated import KERNELS
from kernel_checks import integers
from ladder.arithmetic.multipliers import FORMATS, MULTIPLIERS
from ladder.executors.cuda import nvrtc
from ladder.network import networks
from ladder.rungs import gpu_3xtf32, gpu_gemm, gpu_opt_v1, tiles
from rung_checks import (
    completed_launches,
    run_forward,
    training_plan,
)

NETWORK = networks.build("autoencoder")
NAMED = {**MULTIPLIERS, **FORMATS}
LARGE = [((1, 12, 11, 12, 132, 2, 1), 1), ((1, 4, 5, 132, 12, 2, 0), 1)]
FILES = sorted(f"gpu_opt_v1/{path.name}" for path in (KERNELS / "gpu_opt_v1").glob("conv2d_*.cu"))
A100 = 108  # multiprocessors


@pytest.fixture(params=cuda_emulator.TENSOR_SUMS)
def sums(request, monkeypatch):
    monkeypatch.setattr(cuda_emulator, "tensor_sums", request.param)


def in_large_tiles(operation):
    """The launch function of an operation in the large tile, whatever the shape."""
    return functools.partial(
        gpu_opt_v1.RUNG.launches[operation], tile_for=lambda *_: gpu_3xtf32.LARGE
    )


def multiplier(name):
    """The attribute of a step with this multiplier."""
    return {} if name == "exact" else {"multiplier": NAMED[name]}


def forward(launches, conv, name):
    """y of a convolution with a multiplier, without a ReLU."""
    return run_forward(
        launches["conv2d_forward"],
        {"x": conv.x, "weight": conv.weight, "bias": conv.bias},
        conv,
        padding=conv.padding,
        stride=conv.stride,
        relu=False,
        **multiplier(name),
    )


def counted(made, layer, operation):
    """(launch, counts of its first block) of a step of a plan, which has that layer and ends in
    that operation.
    """
    step = next(
        step for step in made.steps if step.layer == layer and step.operation.endswith(operation)
    )
    (launch,) = step.launches
    arrays = {name: emulator_executor.zeros(made.buffers[name]) for name in launch.buffers}
    arguments = [
        arrays.get(argument, argument) if isinstance(argument, str) else argument
        for argument in launch.arguments
    ]
    return launch, emulator_executor.function(launch).count(
        launch.grid, launch.block, arguments, launch.shared_bytes, [0], 64, 50_000
    )


class RoundedOperands:
    """Tests of a rung of gpu_opt_v1's convolution kernels on tensor cores with rounded operands;
    its test file has a subclass.

    rung: its module; name: the multiplier that its products are of; others: multipliers whose
    products are those of gpu_gemm; instruction, by_matrices: as check_compiled; network: one that
    it runs in these kernels.
    """

    others, by_matrices, network = (), False, NETWORK

    @pytest.mark.parametrize("shape, stride", LARGE, ids=str)
    def test_products_in_large_tiles(self, shape, stride):
        launches = {operation: in_large_tiles(operation) for operation in gpu_3xtf32.TILES}
        backends.check_convolution(backends.Rung(self._name(), launches=launches), shape, stride)

    def test_other_products_are_launched_as_gpu_gemm_does(self):
        shape = (2, 6, 6, 16, 16, 3, 1)
        for name in self.others:
            assert same_launches(self.rung, gpu_gemm, shape, name), name
        assert not same_launches(self.rung, gpu_gemm, shape, self.name)

    @needs.NVRTC
    def test_a_gpu_can_run_it_as_the_rung_claims(self):
        compiled = self._compiled()
        assert compiled
        for source, defines in compiled:
            check_compiled(
                source, defines, self.instruction, products=1, by_matrices=self.by_matrices
            )

    def test_every_file_is_launched(self):
        assert {source for source, _ in self._compiled()} == set(FILES)

    def _name(self):
        return self.rung.__name__.rpartition(".")[2]

    def _compiled(self):
        return compiled_launches(self._name(), self.rung.RUNG.launches, self.name, self.network)


def same_launches(one, other, shape, name):
    """Whether two rungs compile a forward convolution in the same way with a multiplier."""
    found = [
        [launch.defines for launch in _launches(rung.RUNG.launches, "conv2d_forward", name, shape)]
        for rung in (one, other)
    ]
    return found[0] == found[1]


def _launches(launches, operation, name, shape, stride=1):
    """Those of an operation with a multiplier."""
    (case, *_) = [
        case
        for case in operation_cases.conv2d(integers, shape, stride)
        if case.operation == operation
    ]
    arrays = case.reads, case.writes
    return completed_launches(
        launches[operation], arrays[0] | arrays[1], *arrays, **case.attributes, **multiplier(name)
    )


def compiled_launches(rung, launches, name, network=NETWORK):
    """(source, defines) of what a rung compiles for tensor cores: for the network, and
    operation_cases.CONVOLUTIONS.
    """
    trained = {
        (launch.source, launch.defines)
        for gpu in (tiles.H200, A100)
        for launch in training_plan(rung, network, multiprocessors=gpu).launches
        if launch.source in FILES
    }
    others = {
        (launch.source, launch.defines)
        for case in operation_cases.CONVOLUTIONS
        for operation in gpu_3xtf32.TILES
        for launch in _launches(launches, operation, name, *case)
    }
    return sorted(
        launch
        for launch in trained | others
        if any(define.startswith("WARP_M") for define in launch[1])
    )


def check_compiled(source, defines, instruction, products, by_matrices=False):
    """No spills, two blocks on a multiprocessor, and in a step the instructions that the tile
    needs.

    products: of a pair of fragments for the step's values of k; by_matrices: whether ldmatrix reads
    all fragments, in place of those whose values of k are neighbours.
    """
    made = without_spills(source, defines, nvrtc.ARCHITECTURES[-1], 32768)
    sizes = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", " ".join(defines))}
    down, across = sizes["WARP_M"] // 16, sizes["WARP_N"] // 8
    pairs = down * across
    depth = 1 if by_matrices else gpu_3xtf32.STEPS["exact" if products == 3 else "tf32"] // 8
    assert (
        made.ptx.count(f"mma.sync.aligned.{instruction}")
        == made.ptx.count("mma.sync")
        == pairs * products * depth
    )
    fragments = {"forward": down + across // 2, "input_grad": down, "weight_grad": 0}
    (along_k,) = (count for direction, count in fragments.items() if direction in source)
    matrices = down + across // 2 if by_matrices else along_k * depth
    assert made.ptx.count("ldmatrix.sync.aligned.m8n8.x4") == matrices
    assert ("cp.async.c" in made.ptx) == (not by_matrices)
