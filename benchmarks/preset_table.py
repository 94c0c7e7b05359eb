"""Write the tables of docs/results.md on what the presets reach, between their markers,
from benchmarks/presets/.

    python benchmarks/preset_table.py [--check]

--check writes nothing and exits with 1 if a table is out of date. What no record has is left empty.
"""

import argparse
import json
import math
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "workflow/scripts"))


import table  # noqa: E402
from ladder.pages import spread  # noqa: E402
from ladder.store import lineage  # noqa: E402
from ladder.workflow.settings import Settings  # noqa: E402

BEGIN = "<!-- table: made by benchmarks/preset_table.py -->"
CLASSIFIERS = {
    "svm": "SVM",
    "ridge": "kernel ridge",
    "linear": "logistic regression",
    "knn": "nearest neighbours",
    "evaluate": "network",
}
WHOLE = (
    "preset",
    "classifier",
    "test accuracy",
    "untrained",
    "difference",
    "raw pixels",
    "time",
    "its controls",
    "memory",
)
SEEDS = ("preset", "classifier", "seeds", "test accuracy", "untrained", "difference")
ABLATION = (
    "preset",
    "without, or instead",
    "training images",
    "classifier",
    "test accuracy",
    "difference",
)
CONTROLS = ("random", "pixels")
# settings in which the parts of a record differ
# (seeds, ablation: of records of earlier releases)
OF_A_PART = ("train_limit", "seeds", "ablation", "runs", "targets", "controls")
# on the result: of a copy of the archive, and of how often a run reports
WITHOUT_EFFECT = ("cifar10_sha256", "monitor")
NORMAL = 1.96  # standard deviations to each side of a 95 % interval


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="only say whether the tables are up to date"
    )
    check = parser.parse_args().check
    for path, wanted in wanted_texts(records()).items():
        if check and path.read_text("utf-8") != wanted:
            sys.exit(
                f"{path.relative_to(HERE.parent)} is out of date; run: python benchmarks/preset_table.py"
            )
        if not check:
            path.write_text(wanted, "utf-8")


def records(folder=HERE / "presets"):
    """The records, by data set and from the most accurate to the least."""
    records = [json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")]
    return sorted(
        records,
        key=lambda record: (
            record["whole"]["summary"]["dataset"],
            -answer(record["whole"])[1],
            record["preset"],
        ),
    )


def wanted_texts(records):
    """{document: its text with the tables of these records}."""
    rows = {
        head: [row for record in records for row in make(record)] for head, make in LONG.items()
    }
    page = HERE.parent / "docs/results.md"
    lines = [(head, *lines) for head, lines in rows.items() if lines]
    return {page: table.with_table(page.read_text("utf-8"), markdown(lines), BEGIN)}


def markdown(tables):
    return (
        "\n\n".join(
            "\n".join(table.markdown([head, tuple("---" for _ in head), *rows]))
            for head, *rows in tables
        )
        + "\n"
    )


def whole_rows(record):
    """A row for each classifier that was fitted to all rows."""
    whole = record["whole"]
    for classifier, accuracy in classifiers(whole).items():
        first = classifier == next(iter(classifiers(whole)))
        yield (
            named(record) if first else "",
            CLASSIFIERS[classifier],
            percent(accuracy),
            percent(control(whole, classifier, "random")),
            difference(whole, classifier, "random"),
            percent(control(whole, classifier, "pixels")),
            *((*times(whole), memory(whole)) if first else ("", "", "")),
        )


def seed_rows(record):
    """A row for each classifier that was fitted with several seeds: mean and 95 % interval
    (Student's t). None where the preset has changed since.
    """
    if not record["seeds"] or changed(record):
        return
    seeds = record["seeds"]["summary"]["seeds"]
    for classifier, shown in CLASSIFIERS.items():
        if classifier not in seeds["scores"]:
            continue
        own = seeds["scores"][classifier]["each"]
        other = seeds["scores"].get(f"{classifier}_random", {"each": []})["each"]
        paired = [trained - untrained for trained, untrained in zip(own, other, strict=False)]
        yield (
            f"`{record['preset']}`",
            shown,
            str(len(own)),
            over_seeds(own, spread.SHARES),
            over_seeds(other, spread.SHARES),
            over_seeds(paired, spread.DIFFERENCES, "+"),
        )


def ablation_rows(record):
    """A row for each run of the preset's list but its repetitions, of both parts of the record."""
    for part in (scored for scored in (record["whole"], record["seeds"]) if scored):
        summary, images = part["summary"], str(settings_of(part).get("train_limit", ""))
        for entry in (*(summary.get("ablation") or ()), *map(as_entry, summary.get("runs") or ())):
            if entry["accuracy"] is not None:
                yield (
                    f"`{record['preset']}`",
                    f"`{json.dumps(shortened(entry['overrides']))}`",
                    images,
                    CLASSIFIERS[summary.get("answered_by", "svm")],
                    percent(entry["accuracy"]),
                    matched(entry["lost"], entry["won"], sum(map(sum, summary["confusion"]))),
                )


def as_entry(row):
    """A row of `runs` in a summary as `ablation` had it in earlier releases."""
    against = row["against"] or {"won": None, "lost": None}
    compared = against["won"] is not None
    return {
        "overrides": row["settings"],
        "accuracy": row["mean"] if compared else None,
        "won": against["lost"],
        "lost": against["won"],
    }


def shortened(overrides):
    """The settings, with the networks alone of further parts of the features."""
    return {
        key: [part["network"] for part in value] if key == "features_concatenate" else value
        for key, value in overrides.items()
    }


def named(record):
    """The preset, and the settings that its whole run had instead of the preset's."""
    command = record["whole"].get("command", [])
    added = command[command.index("--config") + 1 :] if "--config" in command else []
    others = [
        setting for setting in added if setting.split("=")[0] not in (*OF_A_PART, *WITHOUT_EFFECT)
    ]
    return f"`{record['preset']}`" + (f" with `{' '.join(others)}`" if others else "")


def settings_of(part):
    """The settings of a part; {} of the oldest records, which do not name them."""
    return part["summary"].get("reproduce", {}).get("settings", {})


def changed(record):
    """Whether the preset had other settings when its seeds were run than in the whole run."""
    whole, seeds = settings_of(record["whole"]), settings_of(record["seeds"])
    if not whole or not seeds:
        return False
    keys = {*whole, *seeds}.difference(OF_A_PART, WITHOUT_EFFECT)
    # of a key that is younger than a record, or older than this program
    default = Settings().by_key() | {"control_settings": {}}
    # no setting tells the parts of the features
    parts = (len(record[part]["summary"]["features"]) for part in ("whole", "seeds"))
    return len({*parts}) > 1 or any(
        seeds.get(key, default.get(key)) != whole.get(key, default.get(key)) for key in keys
    )


def classifiers(part):
    """{classifier: accuracy} of the run itself, without those of its controls."""
    summary = part["summary"]
    # the oldest record has one classifier
    evaluations = summary.get("evaluations") or {"svm": summary["test_accuracy"]}
    return {name: accuracy for name, accuracy in evaluations.items() if name in CLASSIFIERS}


def answer(part):
    """(classifier, accuracy) of the one that answers for the run, which no test image chose."""
    evaluations = classifiers(part)
    name = lineage.answering(evaluations)
    return name, evaluations[name]


def control(part, classifier, name):
    """The accuracy of a classifier's control; None without one."""
    summary = part["summary"]
    if "evaluations" not in summary:  # the oldest record, which has one classifier
        return summary[{"random": "control_accuracy", "pixels": "raw_pixel_accuracy"}[name]]
    if (classifier, name) == ("evaluate", "pixels"):  # a network's control is logistic regression
        return summary["evaluations"].get("linear_pixels")
    return summary["evaluations"].get(f"{classifier}_{name}")


def difference(part, classifier, name):
    """Accuracy minus the control's in points; with its 95 % interval where the record has the
    matched pairs.
    """
    other = control(part, classifier, name)
    if other is None:
        return ""
    points = 100 * (classifiers(part)[classifier] - other)
    if name not in part["paired"].get(classifier, {}):
        return f"{points:+.1f}"
    return matched(*part["paired"][classifier][name], sum(map(sum, part["summary"]["confusion"])))


def matched(won, lost, rows):
    """Points between two classifications of the same images, with the reach of the 95 % interval.

    won images only the first names correctly, lost only the second: (won - lost) / n, whose
    variance is estimated by (won + lost - (won - lost)^2 / n) / n^2 (A. Agresti, "Categorical Data
    Analysis", section 10.1, on matched pairs).
    """
    reach = NORMAL * math.sqrt(won + lost - (won - lost) ** 2 / rows)
    return f"{100 * (won - lost) / rows:+.1f} ± {100 * reach / rows:.1f}"


def over_seeds(values, within, sign=""):
    """Mean and reach of the interval, in points; '' for no values."""
    over = spread.spread(values, within)
    if over is None:
        return ""
    return f"{100 * over.mean:{sign}.1f}" + (
        f" ± {50 * (over.interval[1] - over.interval[0]):.1f}" if over.interval else ""
    )


def percent(share):
    return "" if share is None else f"{100 * share:.1f} %"


def times(part):
    """(time of the run's own stages, time of its controls' stages or ""): the latter have a
    control's name in theirs.
    """
    seconds = part["summary"]["seconds"]
    own = {
        stage: taken
        for stage, taken in seconds.items()
        if not set(stage.split("_")) & set(CONTROLS)
    }
    return minutes(sum(own.values())), minutes(sum(seconds.values()) - sum(own.values())) if len(
        own
    ) < len(seconds) else ""


def minutes(seconds):
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def memory(part):
    return f"{max(part['summary']['peak_memory_bytes'].values()) / 1e9:.1f} GB"


# the tables of docs/results.md
LONG = {WHOLE: whole_rows, SEEDS: seed_rows, ABLATION: ablation_rows}


if __name__ == "__main__":
    main()
