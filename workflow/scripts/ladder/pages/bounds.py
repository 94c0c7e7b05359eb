"""What bounds a rung's step, and what would help next: by rule from what was counted of it
(benchmarks/counting.py, `limiting`).
"""

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
# [bound, what is counted, whether a count of it is the reason, what that count means, what helps]:
# the first row of a bound that is the reason holds. {} is the count in percent.
RULES = (
    (
        "latency",
        "waves",
        lambda count: count < 0.5,
        "whose blocks fill {} of the GPU",
        "more blocks, each with a part of the sums,",
    ),
    (
        "latency",
        "occupancy",
        lambda count: count < 0.25,
        "with {} of the warps that a multiprocessor can hold",
        "smaller tiles, of which more fit, or more stages of copies under way",
    ),
    (
        "latency",
        "occupancy",
        lambda _: True,
        "with {} of the warps that a multiprocessor can hold",
        "more loads under way in each thread",
    ),
    (
        "level 1",
        "coalesced",
        lambda count: count < 0.5,
        "which uses {} of the bytes that it loads",
        "neighbouring addresses for the threads of a warp",
    ),
    (
        "level 1",
        "conflicts",
        lambda count: count > 0.1,
        "of whose accesses to shared memory {} wait for a bank",
        "a layout without conflicts of banks",
    ),
    (
        "level 1",
        "products",
        lambda _: True,
        "of whose instructions {} multiply",
        "more results in the registers of a thread, which use what is loaded more often,",
    ),
    (
        "issue",
        "products",
        lambda count: count < 0.5,
        "of whose instructions {} multiply",
        "wider loads, and more products for each,",
    ),
    (
        "issue",
        "products",
        lambda _: True,
        "of whose instructions {} multiply",
        "tensor cores, of which one instruction multiplies matrices,",
    ),
    (
        "tensor cores",
        "products",
        lambda _: True,
        "of whose instructions {} multiply",
        "fewer products, or operands of fewer bits,",
    ),
    (
        "level 2",
        "occupancy",
        lambda _: True,
        "with {} of the warps that a multiprocessor can hold",
        "larger tiles, or tiles that blocks share, which bring each byte fewer times,",
    ),
    (
        "memory",
        "coalesced",
        lambda _: True,
        "which uses {} of the bytes that it loads",
        "fused operations, whose results in between never leave the chip,",
    ),
    (
        "launch",
        "waves",
        lambda _: True,
        "whose blocks fill {} of the GPU",
        "fewer launches, each with more work,",
    ),
)


def sentences(bound, limiting, middle):
    """What bounds a step, what would help next, and how much it can at most; limiting, middle: of
    rungs/counted.py.
    """
    means, helps = next(
        (means.format(share(limiting[what])), helps)
        for name, what, is_reason, means, helps in RULES
        if name == bound and is_reason(limiting[what])
    )
    where = f"{limiting['place']} ({limiting['kernel'].partition(' ')[2]})"
    return (
        f"{share(limiting['share'])} of its time is bound by {bound}, most of it in {where}, "
        f"{means}. {helps[0].upper()}{helps[1:]} would help next: without this bound the step would take "
        f"{share(limiting['without'] / middle)} of the time, bound by {limiting['next']}."
    )


def share(part):
    """As whole percent."""
    return templates.percent(part, 0)
