"""What bounds a rung's step, and what would help next: by rule from what was counted of it
(benchmarks/counting.py, `limiting`).
"""

import math

from ladder.pages import templates

# What bounds a launch -> the series of its marks, and what that is.
BOUNDS = {
    "memory": (1, "the bytes that pass between the GPU’s memory and its chip"),
    "level 2": (2, "the cache that all multiprocessors share"),
    "level 1": (
        3,
        "the cache and shared memory of a multiprocessor, which serve one request a cycle",
    ),
    "issue": (4, "the instructions that a multiprocessor begins in a cycle"),
    "tensor cores": (5, "their products of matrices"),
    "latency": (
        6,
        "the time that warps wait for their loads, with too few others to work meanwhile",
    ),
    "launch": ("rest", "what any launch takes to begin, where its work takes less"),
}
# What is counted -> what its count means; {} is the count in percent.
MEANINGS = {
    "waves": "whose blocks fill {} of the GPU",
    "occupancy": "with {} of the warps that a multiprocessor can hold",
    "coalesced": "which uses {} of the bytes that it loads",
    "conflicts": "of whose accesses to shared memory {} wait for a bank",
    "products": "of whose instructions {} multiply",
}
ANY = 0, math.inf
# [bound, what is counted, which counts of it are the reason, what helps]: the first row of a bound
# that is the reason holds.
RULES = (
    ("latency", "waves", (0, 0.5), "more blocks, each with a part of the sums,"),
    (
        "latency",
        "occupancy",
        (0, 0.25),
        "smaller tiles, of which more fit, or more stages of copies under way",
    ),
    ("latency", "occupancy", ANY, "more loads under way in each thread"),
    ("level 1", "coalesced", (0, 0.5), "neighbouring addresses for the threads of a warp"),
    ("level 1", "conflicts", (0.1, 1), "a layout without conflicts of banks"),
    (
        "level 1",
        "products",
        ANY,
        "more results in the registers of a thread, which use what is loaded more often,",
    ),
    ("issue", "products", (0, 0.5), "wider loads, and more products for each,"),
    (
        "issue",
        "products",
        ANY,
        "tensor cores, of which one instruction multiplies matrices,",
    ),
    ("tensor cores", "products", ANY, "fewer products, or operands of fewer bits,"),
    (
        "level 2",
        "occupancy",
        ANY,
        "larger tiles, or tiles that blocks share, which bring each byte fewer times,",
    ),
    (
        "memory",
        "coalesced",
        ANY,
        "fused operations, whose results in between never leave the chip,",
    ),
    ("launch", "waves", ANY, "fewer launches, each with more work,"),
)


def sentences(bound, limiting, middle):
    """What bounds a step, what would help next, and how much it can at most; limiting, middle: of
    rungs/counted.py.
    """
    what, helps = next(
        (what, helps)
        for name, what, (least, most), helps in RULES
        if name == bound and least <= limiting[what] <= most
    )
    where = f"{limiting['place']} ({limiting['kernel'].partition(' ')[2]})"
    return (
        f"{share(limiting['share'])} of its time is bound by {bound}, most of it in {where}, "
        f"{MEANINGS[what].format(share(limiting[what]))}. "
        f"{helps[0].upper()}{helps[1:]} would help next: without this bound the step would take "
        f"{share(limiting['without'] / middle)} of the time, bound by {limiting['next']}."
    )


def share(part):
    """As whole percent."""
    return templates.percent(part, 0)
