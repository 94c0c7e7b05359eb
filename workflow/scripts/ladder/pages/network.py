"""The page that draws a network: its layers as a graph beside a table of their costs, and the
memory of a training step.

A network with stages (templates.in_stages) is drawn stage by stage, and identical blocks of a stage
are drawn once.
"""

import dataclasses
import itertools
import math

from ladder.network import networks
from ladder.network.layers import KINDS
from ladder.pages import network_file, templates
from ladder.plan import plan

ROW, LANE, NODE, CORNER, MARGIN = 34, 66, 52, 12, 6  # of a drawing, in 1/16 rem
# cost -> function that writes it
COSTS = {"parameters": templates.count, "macs": templates.large, "memory": templates.size}


def page(network, rung, batch, optimizer):
    """The page of a networks.Network as one HTML text.

    rung: whose kernels and memory are shown; optimizer: its name. Raises UserError if the batch is
    too large for the rung.
    """
    return templates.render("network.html", context(network, rung, batch, optimizer))


def context(network, rung, batch, optimizer):
    """All variables of the template."""
    step = plan_of(network, rung, batch, optimizer)
    rows = layer_rows(network, step)
    parts = [
        _part(stage, [row for row in rows if row["name"] in names])
        for stage, names in templates.in_stages([row["name"] for row in rows])
    ]
    templates.add_cells(rows, COSTS)
    templates.add_cells(parts, COSTS)
    for part in parts:
        part["drawings"] = drawings(part["rows"], {row["name"]: row for row in rows})
    memory = step.bytes_by_purpose()
    return {
        "network": network,
        "title": templates.network_title(network.name, bool(network.draws)),
        "rung": rung,
        "batch": batch,
        "optimizer": optimizer,
        "image": templates.shape(network.input_shape),
        "classes": network.layers[-1].output_shape[2],
        "flop": step.flop,
        "kernels": len(step.kernels),
        "parts": parts,
        "total": {cost: sum(row[cost] for row in rows) for cost in COSTS},
        "file": network_file.text(network),
        "memory": sum(memory.values()),
        "memory_bars": templates.bars(memory, templates.size),
    }


def plan_of(network, rung, batch, optimizer):
    """The plan of a training step or, for a network that can only be fitted, of the forward pass of
    a batch.
    """
    if not network.trains:
        return plan.inference_plan(network, rung, batch, plan.Dataset(batch, "uint8"))
    return plan.one_step(network, rung, batch, optimizer)


def layer_rows(network, step):
    """A row for the input and for each layer, in order.

    memory: bytes of the layer's output and of what it keeps for the backward pass, 0 if its kernel
    does not write them; group: the first of the layers that its kernel computes together; kernel:
    '' if there is nothing to compute.
    """
    memory, groups = {}, {}
    for buffer in step.buffers.values():
        if buffer.kind in ("activation", "mask"):
            layer = buffer.name.partition(".")[0]
            memory[layer] = memory.get(layer, 0) + buffer.bytes
    for names, operation in step.kernels:
        groups |= {name: (names[0], operation) for name in names}
    first = {
        "name": networks.INPUT,
        "node": "in",
        "family": "shape",
        "what": "batch of images",
        "inputs": (),
        "shape": templates.shape(network.input_shape),
        "parameters": 0,
        "macs": 0,
        "memory": memory[networks.INPUT],
        "group": networks.INPUT,
        "kernel": "",
    }
    rows = [first]
    for layer in network.layers:
        node, family = KINDS[layer.kind].node
        group, kernel = groups.get(layer.name, (layer.name, ""))
        rows.append(
            {
                "name": layer.name,
                "node": node,
                "family": family,
                "what": described(layer),
                "inputs": layer.inputs,
                "shape": templates.shape(layer.output_shape),
                "parameters": sum(map(_size, layer.parameters.values())),
                "macs": layer.macs,
                "memory": memory.get(layer.name, 0),
                "group": group,
                "kernel": kernel,
            }
        )
    return rows


def described(layer):
    """The layer's attributes in words: '5 × 5, 16 filters, stride 2, padding 1'."""
    attributes = layer.attributes
    usual = {"stride": attributes.get("window", 1), "padding": 0}
    return KINDS[layer.kind].words(attributes) + "".join(
        f", {name} {attributes[name]}"
        for name in usual
        if attributes.get(name, usual[name]) != usual[name]
    )


def _size(weight):
    return math.prod(weight)


# Parts and their drawings.


def _part(stage, rows):
    """The rows of a stage, or of layers outside the stages, and their sums."""
    names = [row["name"] for row in rows]
    layers = [row for row in rows if row["name"] != networks.INPUT]
    return {**templates.part(stage, names, rows, COSTS), "layers": len(layers)}


def drawings(rows, every):
    """Drawings of rows: one for each sequence of identical blocks of a stage, else a single one.

    every: name -> row of the whole network, for the inputs of `rows` from outside.
    """
    named = {row["name"]: row for row in rows}
    blocks = [[named[name] for name in names] for _, names in templates.in_blocks(named)]
    drawn = []
    for _, alike in itertools.groupby(blocks, _signature):
        alike = list(alike)
        first, last = (
            templates.in_blocks([block[0]["name"]])[0][0] for block in (alike[0], alike[-1])
        )
        drawn.append(
            {
                "title": templates.span([first, last]),
                "times": len(alike),
                **drawing(alike[0], every),
            }
        )
    return drawn


def _signature(block):
    """Equal for two blocks whose drawings are the same."""
    names = [row["name"] for row in block]
    at = {name: place for place, name in enumerate(names)}
    return [
        (
            *(row[key] for key in ("node", "what", "shape", "kernel", *COSTS)),
            at.get(row["group"]),
            *(at.get(name) for name in row["inputs"]),
        )
        for row in block
    ]


def drawing(rows, every):
    """{"rows", "lines", "groups", "width", "height"} of a graph with one node per row.

    rows: inputs from outside, then the given rows, each with its `lane` and the `span` of its
    kernel in rows (0 within a group); lines: SVG paths; groups: {"x", "y", "width", "height"} of
    frames around the layers that a kernel computes together.
    """
    inside = {row["name"] for row in rows}
    outside = dict.fromkeys(name for row in rows for name in row["inputs"] if name not in inside)
    shown = [
        {**every[name], "inputs": (), "group": name, "kernel": "", "elsewhere": True}
        for name in outside
    ]
    shown += [{**row, "elsewhere": False} for row in rows]
    lanes, edges = arrange({row["name"]: row["inputs"] for row in shown})
    groups = []
    for _, members in itertools.groupby(range(len(shown)), lambda at: shown[at]["group"]):
        members = list(members)
        for at in members:
            shown[at] |= {
                "lane": lanes[shown[at]["name"]],
                "span": len(members) if at == members[0] else 0,
            }
        if len(members) > 1:
            groups.append(_frame(members, [shown[at]["lane"] for at in members]))
    return {
        "rows": shown,
        "groups": groups,
        "lines": [_line(edge) for edge in edges],
        "height": ROW * len(shown),
        "width": 2 * MARGIN + NODE + LANE * max((edge.along for edge in edges), default=0),
    }


@dataclasses.dataclass(frozen=True)
class Edge:
    """From the node in row `top` of lane `source` along lane `along` to the node in row `bottom` of
    lane `target`.
    """

    source: int
    top: int
    along: int
    bottom: int
    target: int


def arrange(inputs):
    """(name -> lane, [Edge]) of a graph with one node per row, in order.

    inputs: name -> names of its inputs, in the order of the rows. The path from the last node back
    along first inputs is lane 0; paths that join it get the lowest free lane.
    """
    rows, lanes, ways, busy = {name: row for row, name in enumerate(inputs)}, {}, [], []
    for last in reversed(inputs):
        todo = [] if last in lanes else [(last, None)]
        for end, reader in todo:
            way = [] if reader is None else [reader]
            begin = end
            while begin not in lanes:
                way.append(begin)
                if not inputs[begin]:
                    break
                begin = inputs[begin][0]
            else:
                way.append(begin)
            lane = _free_lane(rows[way[-1]], rows[way[0]], busy)
            new = [name for name in way if name not in lanes]
            lanes |= dict.fromkeys(new, lane)
            ways.append((lane, way))
            todo += [(other, name) for name in new for other in inputs[name][1:]]
    return lanes, [
        Edge(lanes[above], rows[above], lane, rows[below], lanes[below])
        for lane, way in ways
        for below, above in itertools.pairwise(way)
    ]


def _free_lane(top, bottom, busy):
    """The lowest lane that is free between rows top and bottom; adds it to `busy`: [(lane, top,
    bottom)].
    """
    lane = next(
        lane
        for lane in itertools.count()
        if not any(taken == lane and top < lower and bottom > upper for taken, upper, lower in busy)
    )
    busy.append((lane, top, bottom))
    return lane


def _x(lane):
    return MARGIN + NODE // 2 + LANE * lane


def _y(row):
    return ROW * row + ROW // 2


def _line(edge):
    """An SVG path: horizontally from the node to the lane, down, and horizontally to the other
    node.
    """
    start, along, end = _x(edge.source), _x(edge.along), _x(edge.target)
    top, bottom = _y(edge.top), _y(edge.bottom)
    path = f"M{start} {top}"
    if along != start:
        path += f"H{along - math.copysign(CORNER, along - start):g}Q{along} {top} {along} {top + CORNER}"
    if along == end:
        return f"{path}V{bottom}"
    return f"{path}V{bottom - CORNER}Q{along} {bottom} {along + math.copysign(CORNER, end - along):g} {bottom}H{end}"


def _frame(rows, lanes):
    """The frame around the nodes of these rows."""
    x, y = _x(min(lanes)) - NODE // 2 - MARGIN + 1, ROW * rows[0] + 2
    return {
        "x": x,
        "y": y,
        "width": _x(max(lanes)) + NODE // 2 + MARGIN - 1 - x,
        "height": ROW * (rows[-1] + 1) - 2 - y,
    }
