"""The record of what right rungs and planted faults deviate by: every limit has right rungs below
it and faults above it.
"""

import pytest

import limits
from ladder.rungs import catalog

RECORD = limits.read()
CASES = [
    (rung, case, protocol)
    for rung, cases in RECORD["right"].items()
    for case, result in cases.items()
    for protocol in result
]


def test_rungs_of_every_precision_were_measured_with_both_sums_of_tensor_cores():
    assert {"gpu_tf32", "gpu_bf16", "gpu_bf16_sm90", "gpu_3xtf32", "gpu_opt_v2"} <= RECORD[
        "right"
    ].keys()
    for rung, cases in RECORD["right"].items():
        sums = {case.rpartition(" ")[2] for case in cases if case.startswith("autoencoder, ")}
        assert sums == (
            {"rounded", "truncated"} if catalog.RUNGS[rung].on_tensor_cores else {"rounded"}
        ), rung


@pytest.mark.parametrize("rung, case, protocol", CASES, ids=" ".join)
def test_a_limit_is_three_times_what_a_right_rung_deviates_by_and_more(rung, case, protocol):
    deviation, _, limit = RECORD["right"][rung][case][protocol]
    assert 3 * deviation <= limit


@pytest.mark.parametrize("rung", RECORD["faults"])
def test_the_hardest_faults_are_beyond_the_limit(rung):
    limit, hardest = limits.largest(RECORD, rung)[1], limits.hardest(RECORD, rung)
    assert len(hardest) >= 25 and limits.largest(RECORD, rung)[0] < limit
    own = [part for other, part in limits.OWN_TESTS if other == rung]
    below = [place for deviation, place in hardest if deviation <= limit]
    assert len(below) == len(own) and all(any(part in place for place in below) for part in own)


@pytest.mark.parametrize("rung, part", limits.OWN_TESTS)
def test_a_fault_below_the_limit_has_a_test_of_its_own(rung, part):
    text = (limits.ROOT / f"tests/kernels/test_{rung}.py").read_text("utf-8")
    assert f"def {limits.OWN_TESTS[rung, part]}(" in text


def test_a_rounding_that_cuts_its_operand_is_a_fault_of_a_lower_precision():
    for rung in ("gpu_bf16", "gpu_bf16_sm90"):
        assert any("truncated_" in place for _, place in limits.hardest(RECORD, rung)), rung


def test_the_table_is_that_of_the_record():
    page, again = limits.DOCUMENT.read_text("utf-8"), "run: python tests/campaigns/limits.py table"
    assert limits.table.with_table(page, limits.written(RECORD), limits.BEGIN) == page, again
