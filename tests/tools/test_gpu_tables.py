"""The tables that benchmarks/table.py makes from records."""

import dataclasses
import json
import re

import pytest

import cases
import ladder_picture
import prediction_tables
import results
import sections
import step_kernels
import table
from ladder.errors import UserError
from ladder.rungs import counted


def test_the_committed_tables_are_up_to_date():
    for path, wanted in table.wanted_texts(results.records()).items():
        assert path.read_text() == wanted, path


def test_missing_measurements_are_marked():
    rows = table.table({}).splitlines()
    assert all(row.count(table.NOT_MEASURED) == 7 for row in rows[2 : 2 + len(table.gpu_rungs())])
    assert table.cards({}).splitlines()[2].startswith("| not measured |")


def test_a_prediction_is_an_interval_of_the_card_that_the_driver_names():
    counts = {"predicted": {"H200": [211.8, 278.6], "RTX 3060": [2157.7, 2853.9], "T4": [9, 12]}}
    cards = "NVIDIA H200", "NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 3060 Ti", "Tesla T4"
    assert [table.predicted(counts, card) for card in cards] == [
        "210-280",
        "2200-2900",
        "",
        "9.0-12",
    ]
    assert table.predicted(counts, unit=1000) == "0.21-0.28" and table.predicted(None) == ""


def test_every_rung_has_its_interval():
    rows = list(prediction_tables.times(counted.read()["rungs"]))
    assert {row[0] for row in rows} == set(table.documented_rungs())
    for rung, span, *_ in rows:
        low, high = map(float, span.split("-"))
        assert low < high, rung


def raced(case, *rows):
    """The section of a race; rows: (name, precision, median, more fields)."""
    made = [
        {
            "name": name,
            "batch": case.batch,
            "precision": precision,
            "median_us": median,
            "low_us": 0.9 * median,
            "high_us": 1.1 * median,
            "turns_us": [median, 1.5 * median],
            "mhz": 1980,
            "launches": 30,
            "flop": 48e9,
            "tflop_per_second": 48e3 / median,
            "scaled_epoch_seconds": 1.5,
        }
        | more
        for name, precision, median, more in rows
    ]
    return {sections.race_name(case): {"result": {"rows": made, "failed": {}}}}


# The digests of today's kernels.
TODAY = {
    rung: {"kernels": step_kernels.digest(table.step_plan(rung, cases.HEADLINES[0].batch))}
    for rung in ("gpu_basic", "gpu_opt_v1")
}
HEADLINE = raced(
    cases.HEADLINES[0],
    ("gpu_basic", "fp32", 4000.0, TODAY["gpu_basic"]),
    ("gpu_opt_v1", "fp32", 2000.0, TODAY["gpu_opt_v1"]),
    ("PyTorch fp32 compiled channels_last graph", "fp32", 3000.0, {}),
    ("PyTorch fp32 eager contiguous", "fp32", 3500.0, {}),
    ("PyTorch bf16 eager channels_last", "bf16", 900.0, {}),
)
PARITY = {"passed": True, "parity": {"sgd": {"largest": 1e-4, "tolerance": 2e-3}}}
RECORD = {
    "kind": "gpu",
    "made": "2026-02-01T00:00:00Z",
    "machine": {"gpu": "NVIDIA H200", "device": "NVIDIA H200, driver 580"},
    "sections": {
        **HEADLINE,
        "ceilings": {"result": {"fp32_flop_per_second": 60e12, "copy_bytes_per_second": 4e12}},
        "parity: autoencoder, gpu_basic": {"result": PARITY},
        "epoch: gpu_opt_v1": {"result": {"seconds": 1.234}},
        "extraction: PyTorch fp32 compiled channels_last graph": {"result": {"seconds": 5}},
    },
}


def test_measured_columns_come_from_the_newest_record(tmp_path):
    (tmp_path / "old.json").write_text(
        json.dumps(RECORD | {"made": "2026-01-01T00:00:00Z", "sections": {}})
    )
    (tmp_path / "new.json").write_text(json.dumps(RECORD))
    found = results.records(tmp_path)
    assert [record["made"][:7] for record in found] == ["2026-02", "2026-01"]
    made = table.table(found[0])
    basic, better = (
        next(row for row in made.splitlines() if row.startswith(f"| {name} |"))
        for name in ("gpu_basic", "gpu_opt_v1")
    )
    assert basic.endswith("| 4000 (3600-4400) | 1980 | 16.5 | 28 | 75 |  | 1.0e-04 / 2e-03 |")
    assert "| 2000 (1800-2200) | 1980 |" in better and "| 150 | 2.00 | not measured |" in better
    assert "Measured 2026-02-01 on NVIDIA H200, driver 580." in made and "resnet18" not in made


@pytest.mark.parametrize(
    "kernels", [{"kernels": "0123456789abcdef"}, {}], ids=["of others", "nobody knows of which"]
)
def test_a_measurement_of_other_kernels_stands_beside_no_prediction_of_todays(kernels):
    other = raced(
        cases.HEADLINES[0],
        ("gpu_basic", "fp32", 4000.0, TODAY["gpu_basic"]),
        ("gpu_opt_v1", "fp32", 2000.0, kernels),
    )
    made = table.table(RECORD | {"sections": other})
    basic, better = (
        next(row for row in made.splitlines() if row.startswith(f"| {name} |"))
        for name in ("gpu_basic", "gpu_opt_v1")
    )
    assert "| 4000 (3600-4400) |" in basic and better.count(table.NOT_MEASURED) == 7
    rows = {row.rung: row for row in table.ladder(RECORD | {"sections": other})}
    assert rows["gpu_basic"].measured == 4 and rows["gpu_opt_v1"].measured is None


def test_a_kernel_that_changes_moves_its_measurement_out_of_the_column(monkeypatch):
    """The committed record, as if its kernels were today's, and then with one line more in one of
    them.
    """
    record, today = (
        results.measured_then(results.records()),
        step_kernels.digest(table.step_plan("gpu_opt_v1", 64)),
    )
    then = {**results.then(), "rungs": {"gpu_opt_v1": {"kernels": today}}}
    monkeypatch.setattr(results, "then", lambda: then)
    assert table.measured_row(record, "gpu_opt_v1")["median_us"] == pytest.approx(2399, abs=1)
    text = step_kernels.text
    monkeypatch.setattr(
        step_kernels,
        "text",
        lambda source: text(source) + "int x;" * (source == "gpu_opt_v1/update.cu"),
    )
    assert table.measured_row(record, "gpu_opt_v1") is None


def test_a_comment_changes_no_kernel(monkeypatch, tmp_path):
    (tmp_path / "a.cu").write_text("// one\nint x;\n")
    (tmp_path / "b.cu").write_text("int x;  /* two */\n")
    monkeypatch.setattr(step_kernels.nvrtc, "KERNELS", tmp_path)
    assert step_kernels.text("a.cu") == step_kernels.text("b.cu")


def test_what_was_measured_of_earlier_kernels_lies_in_their_prediction():
    record, rungs = results.measured_then(results.records()), results.then()["rungs"]
    for rung in rungs:
        interval, measured = (
            prediction_tables.interval_of_then(rung),
            results.row(record, cases.HEADLINES[0], rung),
        )
        assert 1e6 * interval.low <= measured["median_us"] <= 1e6 * interval.high, rung
        assert interval.high / interval.low <= 1.4, rung
    assert len(rungs) == 9
    for rung, row in counted.read()["rungs"].items():
        for least, most in row["predicted"].values():
            assert most / least <= 1.4, rung


def test_the_picture_of_the_ladder_has_each_rungs_prediction_measurement_and_pytorch():
    record = results.records()[0]
    rows = {row.rung: row for row in table.ladder(record)}
    assert list(rows) == table.documented_rungs()
    best = rows["gpu_bf16_sm90"]
    assert best.predicted[0] < best.measured < best.predicted[1] and best.torch > 3 * best.measured
    drawn = "".join(ladder_picture.marks(best, 0))
    places = [
        float(re.search(rf'class="{mark}"[^>]* c?x1?="([\d.]+)"', drawn)[1])
        for mark in ("band", "measured", "torch")
    ]
    times = best.predicted[0], best.measured, best.torch
    assert places == [ladder_picture.place(time) for time in times] == sorted(places)


def test_the_launches_of_a_log_of_ncu_are_read_in_their_order():
    record = results.measured_then(results.records())
    times = results.launch_times(table.log(record))
    assert {rung: len(of_rung) for rung, of_rung in times.items()} == {
        "gpu_tf32": 32,
        "gpu_opt_v2": 22,
        "gpu_3xtf32": 32,
    }
    assert sum(times["gpu_tf32"]) == pytest.approx(1126.6) and times["gpu_opt_v2"][-2:] == [
        48.0,
        1.9,
    ]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", json.dumps(RECORD | {"kind": "cpu"}), json.dumps(RECORD | {"machine": 3})],
)
def test_a_file_that_is_no_record_is_named(tmp_path, text):
    (tmp_path / "mine.json").write_text(text)
    with pytest.raises(
        UserError, match="^mine.json in .* is no record of benchmarks/gpu_check.py$"
    ):
        results.records(tmp_path)


def test_each_card_has_its_newest_record_in_one_table():
    records = [
        RECORD,
        RECORD | {"made": "2026-01-01T00:00:00Z", "sections": {}},
        RECORD
        | {
            "machine": {"gpu": "NVIDIA A100", "device": "NVIDIA A100"},
            "sections": HEADLINE
            | {
                "svm": {
                    "result": {
                        "solver": "cuML",
                        "rows": 50000,
                        "test_rows": 10000,
                        "fit_seconds": 38.3,
                        "predict_seconds": 0.5,
                    }
                }
            },
        },
    ]
    rows = table.cards(results.by_card(records)).splitlines()[2:]
    assert rows[0].startswith("| NVIDIA A100 | 64 | fp32 | gpu_opt_v1 |") and len(rows) == 8
    assert rows[2] == (
        "| NVIDIA H200 | 64 | fp32 | gpu_opt_v1 | 2000 (1800-2200) | fp32 compiled channels_last graph | "
        "3000 (2700-3300) | 1.50 x (1.50-1.50) | 1.23 s, not measured | not measured, 5.00 s |"
    )
    assert rows[3].startswith(
        "| NVIDIA H200 | 64 | bf16 | not measured |  | bf16 eager channels_last | 900 (810-990) | not"
    )
    assert (
        "NVIDIA A100, 2026-02-01: SVM of 50,000 rows by cuML: fit 38.3 s, prediction of 10,000 0.5 s."
        in rows
    )
    assert "NVIDIA H200, driver 580, 2026-02-01: SVM not measured." in rows


def test_other_networks_of_a_record_have_a_table_of_their_own():
    case = cases.OTHERS[1]
    record = {
        "sections": raced(
            case,
            ("gpu_opt_v2", "fp32", 8000.0, {"launches": 300}),
            ("gpu_basic", "fp32", 60000.0, {}),
            ("PyTorch fp32 eager channels_last graph", "fp32", 6000.0, {}),
        )
        | {"parity: resnet18, gpu_opt_v2": {"result": PARITY}}
    }
    assert table.other_networks(record)[2:] == [
        "| resnet18 | 128 | gpu_basic | 30 | 48.0 | 60000 (54000-66000) | 0.8 | 1.50 | 10 | not measured |",
        "| resnet18 | 128 | gpu_opt_v2 | 300 | 48.0 | 8000 (7200-8800) | 6.0 | 1.50 | 75 | 1.0e-04 / 2e-03 |",
        "",
    ]
    assert table.other_networks({}) == []


def test_multipliers_of_a_record_have_a_table_with_ratios_to_the_fastest_exact_rung():
    am32 = dataclasses.replace(cases.MULTIPLIED, multiplier="am32")
    rows = raced(am32, ("gpu_gemm", "fp32", 30000.0, {}))
    exact = raced(
        cases.MULTIPLIED, ("gpu_gemm", "fp32", 10000.0, {}), ("gpu_opt_v2", "fp32", 12000.0, {})
    )
    assert table.multiplied({"sections": rows | exact})[2:] == [
        "| exact | gpu_opt_v2 | 12000 (10800-13200) | 1.20 |",
        "| exact | gpu_gemm | 10000 (9000-11000) | 1.00 |",
        "| am32 | gpu_gemm | 30000 (27000-33000) | 3.00 |",
        "",
    ]
    assert table.multiplied({"sections": rows})[2].endswith("| not measured |")
    assert table.multiplied({}) == []


def test_a_text_without_markers_is_refused():
    with pytest.raises(ValueError, match="there are no lines"):
        table.with_table("nothing", "")
