"""Kernels that add parts in order, as NVRTC compiles them: in no loop a load waits for the sum of
those before it.
"""

import pytest

import needs
from compiled import disassembly, without_spills

UPDATES = "sgd_update", "momentum_update", "rmsprop_update", "adam_update"
# (file, macros): {kernel that adds parts: how many loads it is to have under way at least}
KERNELS = {
    ("packed/weight_update.cu", ()): dict.fromkeys(UPDATES, 8),
    ("gpu_opt_v2/weight_update.cu", ()): dict.fromkeys((*UPDATES, "add_parts"), 8),
    ("packed/add_parts.cu", ()): {"conv2d_add_parts": 8},
    ("gpu_opt_v1/conv2d_weight_grad.cu", ()): {"conv2d_add_splits": 16},
    ("gpu_split_k/weight_grad.cu", ()): {"conv2d_add_splits": 8},
    ("gpu_opt_v1/mse.cu", ()): {"mse_total": 8},
    ("gpu_opt_v1/cross_entropy.cu", ()): {"cross_entropy_totals": 8},
    ("gpu_basic/batchnorm.cu", ()): dict.fromkeys(
        ("batchnorm_mean", "batchnorm_statistics", "batchnorm_parameter_grads"), 16
    ),
    ("gpu_basic/sample.cu", ()): {"divergence_total": 32},
}


@needs.DISASSEMBLER
@pytest.mark.parametrize("source, defines", KERNELS, ids=str)
def test_every_load_of_a_part_is_under_way_with_others(source, defines):
    made = without_spills(source, defines, "sm_90")
    found = disassembly.loads_together(made.cubin)
    for kernel, least in KERNELS[source, defines].items():
        assert found[kernel] and min(found[kernel]) >= least, (kernel, found[kernel])
