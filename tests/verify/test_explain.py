"""The tables of a plan have every step with its launches, and every buffer, as the plan has
them.
"""

import re

import pytest

from ladder.arithmetic.multipliers import PRECISIONS
from ladder.network.optimizers import Optimizer
from ladder.verify import explain
from small_plans import NETWORK, training_plan


def tables(plan):
    """(the two lines of sums, rows of steps, rows of buffers) of the text; a row: {column:
    cell}.
    """
    sums, steps, of_buffers, buffers = explain.text(plan).split("\n\n")
    return (sums, of_buffers), rows(steps), rows(buffers)


def rows(table):
    head, rule, *lines = table.splitlines()
    columns = [(found.start(), found.end()) for found in re.finditer("-+", rule)]
    names = [head[start:end].strip() for start, end in columns]
    return [
        {name: line[start:end].strip() for name, (start, end) in zip(names, columns, strict=True)}
        for line in lines
    ]


@pytest.mark.parametrize("rung", ["gpu_basic", "gpu_opt_v2"])
def test_each_launch_has_a_row_with_the_rung_whose_kernel_it_is(rung):
    made = training_plan(rung=rung, optimizer=Optimizer("adam"))
    (sums, _), steps, _ = tables(made)
    assert sums.startswith(
        f"autoencoder by {rung}, 4 images: {len(made.steps)} steps, {len(made.launches)} launches, "
    )
    assert [row["computed by"] for row in steps] == [
        f"{launch.source} {launch.entry}" for launch in made.launches
    ]
    assert [row["grid"] for row in steps] == [
        "x".join(map(str, launch.grid)) for launch in made.launches
    ]
    heads = [row for row in steps if row["operation"]]
    assert [(row["pass"], row["layer"], row["operation"]) for row in heads] == [
        (step.pass_, step.layer, step.operation) for step in made.steps
    ]


def test_a_step_of_gpu_opt_v2_names_what_it_reads_and_writes():
    _, steps, _ = tables(training_plan(rung="gpu_opt_v2"))
    (row,) = [
        row for row in steps if (row["layer"], row["operation"]) == ("enc1", "conv2d_forward")
    ]
    assert row == {
        "pass": "forward",
        "layer": "enc1",
        "operation": "conv2d_forward",
        "MFLOP": f"{4 * 2 * NETWORK.layer('enc1').macs / 1e6:.1f}",
        "reads": "input, enc1.weight, enc1.bias",
        "writes": "enc1_pool, enc1_pool.index",
        "computed by": "gpu_opt_v2/conv2d.cu conv2d_pool_forward",
        "grid": row["grid"],
        "block": row["block"],
    }


def test_a_cpu_rung_computes_by_functions_and_its_update_names_as_many_as_fit():
    made = training_plan(optimizer=Optimizer("adam"))
    _, steps, _ = tables(made)
    assert [row["computed by"] for row in steps] == [f"cpu {step.operation}" for step in made.steps]
    together = [
        row
        for row in tables(training_plan(rung="gpu_opt_v2"))[1]
        if row["operation"] == "sgd_update"
    ]
    # of 10 parameters
    assert [row["writes"].endswith(" and 4 more") for row in together] == [True]


def test_steps_before_a_sequence_of_runs_come_first():
    made = training_plan(rung="gpu_bf16", multipliers=PRECISIONS["bfloat16"])
    _, steps, _ = tables(made)
    assert (steps[0]["pass"], steps[0]["operation"]) == ("prologue", "copy_weights")
    assert len(steps) == sum(len(step.launches) for step in (*made.prologue, *made.steps))


def test_each_buffer_has_its_bytes():
    plain = training_plan()
    _, _, buffers = tables(plain)
    assert {row["buffer"]: int(row["bytes"].replace(",", "")) for row in buffers} == {
        name: buffer.bytes for name, buffer in plain.buffers.items()
    }
