"""What prediction.py assumes of a GPU: for each quantity an optimistic value and a pessimistic one, where they come from,
and which measurement decides between them.

The values are what others measured on this GPU, or on the nearest that somebody did measure. docs/prediction.md shows them.
"""

import dataclasses

H200, A100, RTX_4090, RTX_3060, T4 = NAMES = ("H200", "A100", "RTX 4090", "RTX 3060", "T4")

# Short name in Assumption.source -> what it stands for.
SOURCES = {
    "RRZE": "[gpu-benches](https://github.com/RRZE-HPC/gpu-benches): its records of an H200, a GH200, an A100, an L40 (the "
            "RTX 4090's chip) and an A40 (the RTX 3060's generation)",
    "Luo": "Luo et al., [Benchmarking and Dissecting the Nvidia Hopper GPU Architecture]"
           "(https://arxiv.org/abs/2402.13499), 2024",
    "Chips and Cheese": "[Nvidia's H100: Funny L2, and Tons of Bandwidth]"
                        "(https://chipsandcheese.com/p/nvidias-h100-funny-l2-and-tons-of-bandwidth), 2023",
    "Hazy Research": "[GPUs Go Brrr](https://hazyresearch.stanford.edu/blog/2024-05-12-tk), 2024",
    "smallscientist1": "[cuda_microbenchmark](https://github.com/smallscientist1/cuda_microbenchmark): an A100, an RTX 4090",
    "waynehacking8": "[blackwell-tensorcore-kernels](https://github.com/waynehacking8/blackwell-tensorcore-kernels), products "
                     "of 8192x8192 matrices on an H100 SXM",
    "OpenCL-Benchmark": "[of a GH200](https://github.com/mredenti/PowerCapping/blob/main/configuration/OpenCL_benchmark.md)",
    "TileOPs": "[pull request 1588](https://github.com/tile-ai/TileOPs/pull/1588), on locked clocks of H200s",
    "Jia": "Jia et al., [Dissecting the NVidia Turing T4 GPU via Microbenchmarking](https://arxiv.org/abs/1903.07486), 2019",
    "L40": "[Non-Uniform L2 Cache Latency of an NVIDIA L40](https://arxiv.org/abs/2606.22588)",
    "NVIDIA": "data sheets, as [that of the H200](https://www.nvidia.com/en-us/data-center/h200/)",
    "bounds": "no less and no more is possible",
    "judged": "by us, between published values",
}


@dataclasses.dataclass(frozen=True)
class Assumption:
    """what, unit: for people, with `scale` of what prediction.py uses in one of the unit.

    first: the H200's value in the first model, which had no intervals; values: {name of a GPU: (optimistic, pessimistic)}.
    """

    what: str
    unit: str
    scale: float
    first: float
    values: dict[str, tuple[float, float]]
    source: str
    decided_by: str


def _same(optimistic, pessimistic):
    return dict.fromkeys(NAMES, (optimistic, pessimistic))


ASSUMPTIONS = {
    "hertz": Assumption(
        "clock under load", "GHz", 1e9, 1.98e9,
        {H200: (1.98e9, 1.7e9), A100: (1.41e9, 1.41e9), RTX_4090: (2.52e9, 2.23e9), RTX_3060: (1.78e9, 1.32e9),
         T4: (1.59e9, 0.9e9)},
        "An H200 holds 1.98 at 675 W (RRZE), but not 1.83 with all tensor cores busy (TileOPs), which this step uses for a "
        "third of the time: 1.7 is judged. An A100 holds 1.41 (Chips and Cheese). GeForce: boost and base clock (NVIDIA). T4: "
        "its most (Jia), and what 70 W may leave of it (judged)",
        "the column MHz of `make gpu-check`"),
    "memory": Assumption(
        "memory", "TB/s", 1e12, 4.3e12,
        {H200: (4.3e12, 3.2e12), A100: (1.45e12, 1.36e12), RTX_4090: (0.99e12, 0.91e12), RTX_3060: (0.35e12, 0.34e12),
         T4: (0.24e12, 0.22e12)},
        "An H200 reads 3.9 and copies 3.2 (RRZE) of 4.8 (NVIDIA), of which nine tenths is the most that is judged possible. "
        "Others: reading and copying (RRZE), of an L40 and an A40 as a share of the peak; T4: 0.236 (Jia)",
        "`make profile`: DRAM, of a launch that copies"),
    "cached": Assumption(
        "found in level 2 from the launch before", "MB", 1e6, 0,
        {H200: (30e6, 0), A100: (20e6, 0), RTX_4090: (60e6, 0), RTX_3060: (2.3e6, 0), T4: (3e6, 0)},
        "what level 2 reads at its full rate (RRZE; T4: three quarters of it, judged), or nothing (bounds)",
        "ncu: `dram__bytes.sum` of a launch beside its counted bytes"),
    "level_2": Assumption(
        "level 2", "TB/s", 1e12, 5120 * 1.98e9,
        {H200: (9.8e12, 5.5e12), A100: (5.4e12, 3.6e12), RTX_4090: (4.9e12, 2.6e12), RTX_3060: (1.25e12, 0.83e12),
         T4: (1.25e12, 0.8e12)},
        "An H200 reads 9.8, an H100 PCIe 7 (RRZE) or 5.5 (Chips and Cheese), an A100 5.4 (RRZE) or, by plain loads, 3.6, an "
        "RTX 4090 4.9 or 2.6 (smallscientist1). RTX 3060: no measurement known, a half or a third of an A40's 2.5 (RRZE). "
        "T4: as an RTX 3060 (judged)",
        "`make profile`: L2, of gpu_tf32's weight gradients"),
    "sustained": Assumption(
        "share of its rates that a multiprocessor sustains", "%", 0.01, 1, _same(0.94, 0.75),
        "multiply-adds alone 94 % (OpenCL-Benchmark), requests to level 1 98 % (RRZE); cuBLAS 75 % in float32 and 77 % in "
        "float16, at the clock that it had (waynehacking8). Other cards: as Hopper (judged)",
        "`make profile`: fma, shared and tensor, of the second layer"),
    "mma": Assumption(
        "share of the tensor cores' peak that mma.sync reaches", "%", 0.01, 1,
        {H200: (0.65, 0.6), A100: (1, 0.95), RTX_4090: (1, 0.95), RTX_3060: (1, 0.95), T4: (1, 0.95)},
        "62 to 63 % on Hopper (Luo, Hazy Research), nearly all elsewhere (Luo; RTX 3060, T4: judged)",
        "`make profile`: tensor, of gpu_bf16; more than 65 % refutes it"),
    "launch": Assumption(
        "a launch that does nothing, with the gap before it", "us", 1e-6, 0,
        {H200: (1.3e-6, 2.6e-6), A100: (1.3e-6, 2.6e-6), RTX_4090: (0.95e-6, 1.6e-6), RTX_3060: (1.1e-6, 2.1e-6),
         T4: (1.1e-6, 2.1e-6)},
        "copies of 70 KB, in a graph and launched one by one, of an L40 and an A40 for GeForce and a T4 (RRZE)",
        "the time of a step less ncu's times of its launches"),
    "alone": Assumption(
        "first loads and last stores that nothing hides, of the only block on a multiprocessor", "%", 0.01, 0, _same(1, 1),
        "bounds", "the same"),
    "among": Assumption(
        "those of blocks that begin together on a multiprocessor", "%", 0.01, 0, _same(0, 1), "bounds",
        "`benchmarks/kernel.py` with half and with twice the channels: what is left at none"),
    "shared_cycles": Assumption(
        "load from shared memory", "cycles", 1, 30, {**_same(29, 33), T4: (19, 19)}, "Luo; T4: Jia", "`gpu-latency` of RRZE"),
    "level_1_cycles": Assumption(
        "load from level 1", "cycles", 1, 40, {**_same(32, 40), T4: (32, 32)}, "RRZE, Luo, Jia", "`gpu-latency` of RRZE"),
    "level_2_cycles": Assumption(
        "load from level 2", "cycles", 1, 260,
        {H200: (205, 280), A100: (205, 400), RTX_4090: (222, 339), RTX_3060: (250, 250), T4: (188, 188)},
        "its near and its far half (RRZE), of an A40 all of it; RTX 4090: L40; T4: Jia", "`gpu-latency` of RRZE"),
    "memory_cycles": Assumption(
        "load from memory", "cycles", 1, 600,
        {H200: (600, 690), A100: (510, 552), RTX_4090: (543, 625), RTX_3060: (546, 557), T4: (450, 600)},
        "RRZE, Luo; T4: judged",
        "`gpu-latency` of RRZE"),
}
