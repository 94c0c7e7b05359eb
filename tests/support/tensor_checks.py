"""What the tests of the tensor-core rungs share: shapes, both models of their sums, the compiled kernels' resources."""

import dataclasses
import itertools
import re
import types

import numpy as np
import pytest

import cuda_emulator
from compiled import compiled
from emulated import KERNELS
from kernel_checks import normal, poisoned
from ladder.arithmetic.multipliers import FORMATS, MULTIPLIERS, kernel_defines
from ladder.executors.cuda import nvrtc
from ladder.network import networks
from ladder.rungs import gpu_3xtf32, gpu_gemm, gpu_opt_v1, tiles
from rung_checks import Convolution, convolution_launches, run_step, training_plan

NETWORK = networks.build("autoencoder")
NAMED = {**MULTIPLIERS, **FORMATS}
# (batch, height, width, channels, filters, kernel, padding), stride: every tile, ends of tiles within a fragment; not those
# of the tests of gpu_opt_v1 and gpu_gemm, which end elsewhere in their tiles and have fewer filters than tensor cores multiply
CONVOLUTIONS = [
    ((1, 1, 1, 1, 9, 1, 0), 1),
    ((2, 7, 9, 3, 10, 3, 1), 2),
    ((2, 8, 7, 4, 20, 3, 1), 2),
    ((1, 11, 10, 5, 33, 7, 3), 2),
    ((1, 9, 12, 12, 40, 1, 0), 2),
    ((1, 11, 8, 16, 70, 2, 0), 3),
    ((2, 6, 5, 12, 9, 5, 2), 1),
    ((1, 9, 8, 64, 64, 1, 0), 1),
    ((2, 11, 13, 16, 3, 3, 1), 1),
]
LARGE = [((1, 12, 11, 12, 132, 2, 1), 1), ((1, 4, 5, 132, 12, 2, 0), 1)]
FILES = sorted(f"gpu_opt_v1/{path.name}" for path in (KERNELS / "gpu_opt_v1").glob("conv2d_*.cu"))
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90")
A100 = 108   # multiprocessors


@pytest.fixture(params=cuda_emulator.TENSOR_SUMS)
def sums(request, monkeypatch):
    monkeypatch.setattr(cuda_emulator, "tensor_sums", request.param)


def in_large_tiles(operation):
    """The launch function of an operation in the large tile, whatever the shape."""
    return lambda step, build: getattr(gpu_opt_v1, operation)(step, build, lambda *_: gpu_3xtf32.LARGE)


def multiplied(launches, name):
    """The launches for a multiplier, with the definitions that a plan adds for it."""
    multiplier = NAMED[name]

    def launch(step, build):
        if name == "exact":
            return launches(step, build)
        made = launches(dataclasses.replace(step, attributes={**step.attributes, "multiplier": multiplier}), build)
        return tuple(dataclasses.replace(one, defines=(*one.defines, *kernel_defines(multiplier))) for one in made)

    return launch


def forward(launches, conv, name):
    """y of a convolution with a multiplier, without a ReLU."""
    y = poisoned(conv.output)
    run_step(multiplied(launches["conv2d_forward"], name), {"x": conv.x, "weight": conv.weight, "bias": conv.bias}, {"y": y},
             padding=conv.padding, stride=conv.stride, relu=False)
    return y


def directions(launches, conv, name):
    """(y, dx, dweight, dbias) of a convolution with a multiplier; launches: by operation."""
    dx, dweight, dbias = (poisoned(one.shape) for one in (conv.x, conv.weight, conv.bias))
    slide = {"padding": conv.padding, "stride": conv.stride}
    run_step(multiplied(launches["conv2d_input_grad"], name), {"dy": conv.dy, "weight": conv.weight}, {"dx": dx}, **slide)
    run_step(multiplied(launches["conv2d_weight_grad"], name), {"x": conv.x, "dy": conv.dy},
             {"dweight": dweight, "dbias": dbias}, **slide)
    return forward(launches, conv, name), dx, dweight, dbias


def check_rounded(launches, shape, stride, name, rounded):
    """The products are those of operands rounded by `rounded`, but for the order and the rounding of sums.

    These change a value by less than 1e-5 of the largest one, a hundredth of what another rounding would.
    """
    conv, exact = (Convolution(shape, normal, stride) for _ in range(2))
    exact.x, exact.weight, exact.dy = (rounded(value) for value in (conv.x, conv.weight, conv.dy))
    wanted = (exact.forward(exact.x, exact.weight, conv.bias), exact.input_grad(exact.dy, exact.weight),
              exact.weight_grad(exact.x, exact.dy), conv.dy.astype(float).sum(axis=(0, 1, 2)))   # a sum, no product
    for found, value in zip(directions(launches, conv, name), wanted, strict=True):
        assert np.abs(found - value).max() <= 1e-5 * np.abs(value).max()


class RoundedOperands:
    """Tests of a rung of gpu_opt_v1's convolution kernels on tensor cores with rounded operands; its test file has a subclass.

    rung: its module; name: the multiplier that its products are of; rounded: the operands of it; others: multipliers whose
    products are those of gpu_gemm; instruction, by_matrices: as check_compiled; network: one that it runs in these kernels.
    """

    others, by_matrices, network = (), False, NETWORK

    @pytest.mark.usefixtures("sums")
    @pytest.mark.parametrize("shape, stride", CONVOLUTIONS, ids=str)
    def test_products_are_those_of_rounded_operands(self, shape, stride):
        check_rounded(self.rung.LAUNCHES, shape, stride, self.name, self.rounded)

    @pytest.mark.parametrize("shape, stride", LARGE, ids=str)
    def test_products_in_large_tiles(self, shape, stride):
        check_rounded({operation: in_large_tiles(operation) for operation in gpu_3xtf32.TILES}, shape, stride, self.name,
                      self.rounded)

    def test_other_products_are_launched_as_gpu_gemm_does(self):
        shape = (2, 6, 6, 16, 16, 3, 1)
        for name in self.others:
            assert same_launches(self.rung, gpu_gemm, shape, name), name
        assert not same_launches(self.rung, gpu_gemm, shape, self.name)

    @pytest.mark.skipif(not nvrtc.installed(), reason="NVRTC is not installed (envs/kernels.txt)")
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    def test_every_gpu_from_sm_80_on_can_run_it_as_the_rung_claims(self, architecture):
        compiled = [one for one in self._compiled() if one[2] == architecture]
        assert compiled
        for source, defines, _ in compiled:
            check_compiled(source, defines, architecture, self.instruction, products=1, by_matrices=self.by_matrices)

    def test_every_file_is_launched(self):
        assert {source for source, _, _ in self._compiled()} == set(FILES)

    def _compiled(self):
        return compiled_launches(self.rung.__name__.rpartition(".")[2], self.rung.LAUNCHES, self.name, self.network)


def same_launches(one, other, shape, name):
    """Whether two rungs compile a forward convolution in the same way with a multiplier."""
    conv = Convolution(shape, lambda *size, seed=0: poisoned(size))
    arrays = {"x": conv.x, "weight": conv.weight, "bias": conv.bias}, {"y": poisoned(conv.output)}
    made = [run_step(multiplied(rung.LAUNCHES["conv2d_forward"], name), *arrays, ("forward",), padding=1, stride=1, relu=False)
            for rung in (one, other)]
    return [launch.defines for launch in made[0]] == [launch.defines for launch in made[1]]


def compiled_launches(rung, launches, name, network=NETWORK):
    """(source, defines, architecture) of what a rung compiles for tensor cores: all that the network launches for each
    architecture, and the other tiles of CONVOLUTIONS for the newest, where they take most registers.
    """
    named = {operation: multiplied(launches[operation], name) for operation in gpu_3xtf32.TILES}
    module = types.SimpleNamespace(LAUNCHES=named)
    trained = {(launch.source, launch.defines) for gpu in (tiles.H200, A100)
               for launch in training_plan(rung, network, multiprocessors=gpu).launches if launch.source in FILES}
    others = set().union(*(convolution_launches(module, *case) for case in CONVOLUTIONS)) - trained
    found = [*itertools.product(trained, ARCHITECTURES), *itertools.product(others, ARCHITECTURES[-1:])]
    return sorted((*launch, architecture) for launch, architecture in found
                  if any(define.startswith("WARP_M") for define in launch[1]))


def check_compiled(source, defines, architecture, instruction, products, by_matrices=False):
    """No spills, two blocks on a multiprocessor, and in a step the instructions that the tile needs.

    products: of a pair of fragments for the step's values of k; by_matrices: whether ldmatrix reads all fragments, in place of
    those whose values of k are neighbours.
    """
    made = compiled(source, defines, architecture)
    sizes = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", " ".join(defines))}
    down, across = sizes["WARP_M"] // 16, sizes["WARP_N"] // 8
    pairs = down * across
    for name, resources in made.kernels.items():
        assert resources.spill_bytes == resources.stack_bytes == 0, f"{source} {defines} {name}"
        assert resources.registers * resources.most_threads <= 32768, f"{name}: two blocks must fit"
    depth = 1 if by_matrices else gpu_3xtf32.STEPS["exact" if products == 3 else "tf32"] // 8
    assert made.ptx.count(f"mma.sync.aligned.{instruction}") == made.ptx.count("mma.sync") == pairs * products * depth
    fragments = {"forward": down + across // 2, "input_grad": down, "weight_grad": 0}
    (along_k,) = (count for direction, count in fragments.items() if direction in source)
    matrices = down + across // 2 if by_matrices else along_k * depth
    assert made.ptx.count("ldmatrix.sync.aligned.m8n8.x4") == matrices
    assert ("cp.async.c" in made.ptx) == (not by_matrices)
