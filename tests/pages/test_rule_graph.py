"""The drawing of a rule graph: where dots lie, and which of them lines join."""

import re

import pytest

from ladder.pages import rule_graph

# A run with its two controls: what each stage was made from, in the order of the work.
RUN = {
    "data": [],
    "normalized": ["data"],
    "initial": [],
    "train": ["initial", "normalized"],
    "features": ["normalized", "train"],
    "svm": ["data", "features"],
    "features_random": ["normalized", "initial"],
    "svm_random": ["data", "features_random"],
    "features_pixels": ["normalized"],
    "svm_pixels": ["data", "features_pixels", "not shown"],
    "map": ["features"],
}


def drawn(stages):
    return rule_graph.graph(
        [{"stage": name, "version": name, "from": parents} for name, parents in stages.items()]
    )


def ends(line):
    """((x, y) where a path begins, (x, y) where it ends)."""
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", line)]
    return (numbers[0], numbers[1]), (numbers[-3] if "C" in line else numbers[0], numbers[-1])


def joined(graph):
    """Pairs of the stages that lines join."""
    names = {
        (dot["x"], dot["y"]): row["stage"]
        for dot, row in zip(graph["dots"], graph["rows"], strict=True)
    }
    return sorted(tuple(names[end] for end in ends(line)) for line in graph["lines"])


def test_lines_lead_from_a_stage_to_those_made_from_it_without_what_follows():
    assert joined(drawn(RUN)) == sorted(
        [
            ("data", "normalized"),
            ("initial", "train"),
            ("normalized", "train"),
            ("train", "features"),
            ("features", "svm"),
            ("normalized", "features_random"),
            ("initial", "features_random"),
            ("features_random", "svm_random"),
            ("normalized", "features_pixels"),
            ("features_pixels", "svm_pixels"),
            ("features", "map"),
        ]
    )


def test_every_stage_has_a_row_and_no_line_goes_through_the_dot_of_another():
    graph = drawn(RUN)
    assert [dot["y"] for dot in graph["dots"]] == [
        rule_graph.ROW * at + rule_graph.ROW / 2 for at in range(len(RUN))
    ]
    assert graph["height"] == rule_graph.ROW * len(RUN)
    for line in graph["lines"]:
        (x, top), (end, bottom) = ends(line)
        through = [dot for dot in graph["dots"] if dot["x"] == x and top < dot["y"] < bottom]
        assert through == [] and 0 < x < graph["width"] and 0 < end < graph["width"]


@pytest.mark.parametrize(
    "stages, lanes",
    [
        ({"a": [], "b": ["a"], "c": ["b"]}, 1),
        ({"a": [], "b": ["a"], "c": ["a"], "d": ["a"]}, 2),
        ({"a": [], "b": []}, 1),
        ({"a": [], "b": [], "c": ["a"], "d": ["b"]}, 2),
    ],
)
def test_lanes_are_as_few_as_needed(stages, lanes):
    assert len({dot["x"] for dot in drawn(stages)["dots"]}) == lanes
