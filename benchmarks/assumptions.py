"""What prediction.py assumes of a GPU: for each quantity an optimistic value and a pessimistic one,
where they come from, and which measurement decides between them.

    python benchmarks/assumptions.py

prints them. The values are what others measured on this GPU, or on the nearest that somebody did
measure.
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
    "Jia": "Jia et al., [Dissecting the NVidia Turing T4 GPU via Microbenchmarking](https://arxiv.org/abs/1903.07486), 2019",
    "NVIDIA": "data sheets, as [that of the H200](https://www.nvidia.com/en-us/data-center/h200/)",
    "the H200 of 2026-11-26": "its measurement (docs/prediction.md): ncu's times of the launches of gpu_tf32 and gpu_opt_v2, "
    "and the steps of all rungs; other cards as this one, where nothing else is said",
    "bounds": "no less and no more is possible",
    "judged": "by us, between published values",
}


@dataclasses.dataclass(frozen=True)
class Assumption:
    """what, unit: for people, with `scale` of what prediction.py uses in one of the unit.

    values: {name of a GPU: (optimistic, pessimistic)}.
    """

    what: str
    unit: str
    scale: float
    values: dict[str, tuple[float, float]]
    source: str
    decided_by: str


def _same(optimistic, pessimistic):
    return dict.fromkeys(NAMES, (optimistic, pessimistic))


ASSUMPTIONS = {
    "memory": Assumption(
        "memory",
        "TB/s",
        1e12,
        {
            H200: (4.3e12, 3.2e12),
            A100: (1.45e12, 1.36e12),
            RTX_4090: (0.99e12, 0.91e12),
            RTX_3060: (0.35e12, 0.34e12),
            T4: (0.24e12, 0.22e12),
        },
        "An H200 reads 3.9 and copies 3.2 (RRZE) of 4.8 (NVIDIA), of which nine tenths is the most that is judged possible. "
        "Others: reading and copying (RRZE), of an L40 and an A40 as a share of the peak; T4: 0.236 (Jia)",
        "`make profile`: DRAM, of a launch that copies",
    ),
    "cached": Assumption(
        "found in level 2 from the launch before",
        "MB",
        1e6,
        {H200: (30e6, 0), A100: (20e6, 0), RTX_4090: (20e6, 0), RTX_3060: (2.3e6, 0), T4: (3e6, 0)},
        "what level 2 reads at its full rate (RRZE; T4: three quarters of it, judged), or nothing (bounds). RTX 4090: 60 MB, of "
        "which 20 are taken: the most that a launch found on an H200 (ncu, 2026-11-28)",
        "ncu: `dram__bytes.sum` of a launch beside its counted bytes",
    ),
    "level_2": Assumption(
        "level 2",
        "TB/s",
        1e12,
        {
            H200: (9.8e12, 5.5e12),
            A100: (5.4e12, 3.6e12),
            RTX_4090: (4.9e12, 3.9e12),
            RTX_3060: (1.25e12, 0.83e12),
            T4: (1.25e12, 0.8e12),
        },
        "An H200 reads 9.8, an H100 PCIe 7 (RRZE) or 5.5 (Chips and Cheese), an A100 5.4 (RRZE) or, by plain loads, 3.6, an "
        "RTX 4090 4.9 or, by plain loads, 3.9 (smallscientist1). RTX 3060: no measurement known, a half or a third of an A40's "
        "2.5 (RRZE). T4: as an RTX 3060 (judged)",
        "`make profile`: L2, of gpu_tf32's weight gradients",
    ),
    "mma": Assumption(
        "share of the tensor cores' peak that mma.sync reaches",
        "%",
        0.01,
        {
            H200: (0.65, 0.6),
            A100: (1, 0.95),
            RTX_4090: (1, 0.95),
            RTX_3060: (1, 0.95),
            T4: (1, 0.95),
        },
        "62 to 63 % on Hopper (Luo, Hazy Research), nearly all elsewhere (Luo; RTX 3060, T4: judged)",
        "`make profile`: tensor, of gpu_bf16; more than 65 % refutes it",
    ),
    "launch": Assumption(
        "a launch in a graph that does nothing",
        "us",
        1e-6,
        {
            H200: (0.4e-6, 0.7e-6),
            A100: (0.4e-6, 0.9e-6),
            RTX_4090: (0.3e-6, 0.6e-6),
            RTX_3060: (0.35e-6, 0.7e-6),
            T4: (0.35e-6, 0.7e-6),
        },
        "the H200 of 2026-11-26: a step of 32 launches takes 42 to 46 us less than ncu's times of them, in which a launch that "
        "does nothing has 1.9. Others: as their copies of 70 KB to an H200's (RRZE)",
        "the time of a step less ncu's times of its launches",
    ),
    "apart": Assumption(
        "of a multiprocessor's work beside its longest part, what one warp on a scheduler does not overlap; n warps: an nth",
        "%",
        0.01,
        _same(0.85, 1.15),
        "the H200 of 2026-11-26: launches with one, two and four warps on a scheduler; over 100 %: what barriers add",
        "the time of a launch with one warp on a scheduler",
    ),
    "wait": Assumption(
        "a load that a warp waits for, under load",
        "us",
        1e-6,
        {
            H200: (0.57e-6, 0.73e-6),
            A100: (0.66e-6, 0.84e-6),
            RTX_4090: (0.43e-6, 0.55e-6),
            RTX_3060: (0.62e-6, 0.8e-6),
            T4: (0.74e-6, 0.95e-6),
        },
        "the H200 of 2026-11-26: adam_update, sums of parts, launches with short steps. Others: as memory's latency without "
        "load is to an H200's (RRZE, Luo; T4: judged)",
        "the time of adam_update, by its longest chain",
    ),
    "formula": Assumption(
        "what the formula leaves out, of the time that follows",
        "%",
        0.01,
        _same(0.86, 1.08),
        "the H200 of 2026-11-26: the nine steps, of which gpu_opt_v1's took 14 % less and gpu_f16's 6 % more than without it",
        "the steps of all rungs",
    ),
}


def main():
    for assumption in ASSUMPTIONS.values():
        print(f"{assumption.what}, {assumption.unit}")
        for name, ends in assumption.values.items():
            optimistic, pessimistic = (f"{value / assumption.scale:.3g}" for value in ends)
            print(f"    {name}: {optimistic} to {pessimistic}")
        print(f"  from: {assumption.source}\n  decided by: {assumption.decided_by}\n")
    for name, cited in SOURCES.items():
        print(f"{name}: {cited}")


if __name__ == "__main__":
    main()
