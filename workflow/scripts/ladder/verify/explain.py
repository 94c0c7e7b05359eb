"""A plan in words: a table of its steps, with the kernel of every launch, and one of its
buffers.
"""

from ladder.progress import size

STEPS = "pass", "layer", "operation", "MFLOP", "computed by", "grid", "block", "reads", "writes"
BUFFERS = "kind", "buffer", "shape", "dtype", "bytes"
MOST_NAMED = 6  # buffers of a step; an update of all parameters has hundreds


def text(plan):
    """The tables of a Plan, in columns, and above them its sums.

    Each launch has a row with its kernel, as rung/file and entry; the rung is the one whose kernel
    it is. The steps of the prologue come first; their pass is called so. A rung of the CPU computes
    a step by the function of this name in its executor.
    """
    steps = [row for step in plan.prologue for row in _rows(plan, step, "prologue")]
    steps += [row for step in plan.steps for row in _rows(plan, step, step.pass_)]
    buffers = [
        (
            buffer.kind,
            buffer.name,
            _sizes(buffer.shape),
            buffer.dtype,
            f"{buffer.bytes:,}",
        )
        for buffer in plan.buffers.values()
    ]
    return "\n\n".join(
        [
            f"{plan.network.name} by {plan.rung}, {plan.batch} images: {len(plan.steps)} steps, {len(plan.launches)} launches, "
            f"{plan.flop / 1e6:,.1f} MFLOP",
            _table(STEPS, steps),
            f"{len(buffers)} buffers, {size(plan.bytes)} without the data set and the counters",
            _table(BUFFERS, buffers),
        ]
    )


def _rows(plan, step, pass_):
    """The row of a step, and one for each launch after the first."""
    launches = [
        (f"{launch.source} {launch.entry}", _sizes(launch.grid), _sizes(launch.block))
        for launch in step.launches
    ]
    first, *others = launches or [(f"{plan.rung} {step.operation}", "", "")]
    head = pass_, step.layer, step.operation, f"{step.flop / 1e6:.1f}" if step.flop else ""
    return [
        (*head, *first, _named(step.reads), _named(step.writes)),
        *(("", "", "", "", *other, "", "") for other in others),
    ]


def _named(operands):
    names = list(dict.fromkeys(operands.values()))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _sizes(sizes):
    return "x".join(map(str, sizes))


def _table(head, rows):
    """Lines of cells in columns, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, tuple("-" * width for width in widths), *rows)
    )
