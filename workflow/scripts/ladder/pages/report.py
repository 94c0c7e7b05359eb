"""The report of one run: its numbers (summary.json) and its page (report.html), from its artifacts.

Inputs are artifacts by role: data and normalized; patches if layers are fitted to patches; train if
layers are trained; evaluate if the network classifies; features and svm if an SVM classifies
features, with their controls features_random, svm_random, features_pixels and svm_pixels; joined if
features are concatenated; linear, ridge and knn like svm; map; and the scores of other runs (see
sections/comparisons.py). Results that a stage has measured are not computed again.
"""

import collections
import math

from ladder import __version__, sources
from ladder.classifiers import metrics, scoring
from ladder.data import names as picture_names
from ladder.machine import program
from ladder.network import weights
from ladder.pages import (
    advice,
    changed,
    curves,
    facts,
    intervals,
    output,
    reproduce,
    summary_keys,
    templates,
    verdicts,
)
from ladder.pages.sections import (
    accuracy,
    alike,
    classes,
    comparisons,
    data,
    features,
    fit,
    labels,
    layers,
    pictures,
    provenance,
    targets,
    timing,
    training,
)
from ladder.store import lineage
from ladder.store import targets as bounds

IMAGES = "train", "test", "skipped", "copies"  # counts of the stage `data`
# key: of its variables in every template, and of its own template, report_<key>.html; anchor: of
# links to it; name: in the contents; variables: function of (inputs, summary) that gives them, or
# nothing for a run without it; heading: above it, where it is not the name.
Section = collections.namedtuple("Section", "key anchor name variables heading", defaults=[""])
SECTIONS = [
    Section(*row)
    for row in (
        ("result", "result", "Result", accuracy.result),
        ("alike", "alike", "Your pictures", alike.section),
        ("copied", "copies", "Copies", alike.copied),
        ("outliers", "outliers", "Outliers", alike.outliers, "Like no other"),
        ("clusters", "clusters", "Clusters", alike.clusters, "Clusters, as suggestions"),
        ("few_labels", "labels", "Few labels", labels.section, "With few labels"),
        ("comparisons", "beside", "In comparison", comparisons.section),
        ("targets", "targets", "Targets", targets.section),
        ("setup", "run", "The run", provenance.setup),
        ("data", "data", "Data", data.section, "The data"),
        ("fit", "fit", "Fit to patches", fit.section),
        ("training", "training", "Training", training.section),
        ("reconstructions", "reconstructions", "Reconstructions", pictures.reconstructions),
        ("samples", "samples", "Samples", pictures.samples, "Samples of the prior"),
        ("filters", "filters", "Filters", pictures.filters, "First-layer filters"),
        ("features", "features", "Features", features.section),
        ("classes", "classes", "Classes", classes.section, "Accuracy by class"),
        ("beside_network", "classifier", "{A} for comparison", accuracy.beside_the_network),
        ("time", "time", "Time and memory", timing.section),
        ("network", "network", "Network", layers.section, "The network"),
        ("reproduction", "reproduce", "Reproduce this", provenance.reproduction),
    )
]


def summary(inputs, version, params=None):
    """The run's numbers, JSON-able, with the keys of summary_keys.py; None for a number that the
    run does not have.

    version: of the report; params: its parameters, with the runs of the list (comparisons.runs).
    """
    final, params = facts.final(inputs), params or {}
    trained = final.metrics
    settings = {**params, **final.manifest["spec"]["params"]}
    score, classifier = facts.predictions(inputs), lineage.primary_classifier(inputs)
    classified, against = score.metrics if score else {}, verdicts.numbers(inputs) or {}
    confusion = classified.get("confusion")
    origins, shifted = features.origins(inputs), features.shifted(inputs)
    dataset = facts.params(inputs, "data")["dataset"]
    names, in_order = features.networks(inputs), facts.in_order(inputs)
    copies = changed.numbers(inputs)
    evaluated = comparisons.accuracies(inputs)
    listed = comparisons.runs(inputs, params.get("runs", ()), settings["seed"])
    numbers = {
        "schema_version": summary_keys.SCHEMA,
        "name": params.get("name"),
        "tags": params.get("tags", []),
        "verdict": verdicts.sentence(inputs, against, names, params, listed)
        if against
        else changed.sentence(inputs, copies, names)
        if copies
        else None,
        "dataset": dataset,
        "classes": inputs["data"].metrics["classes"],
        "images": {
            "skipped": 0,
            "copies": None,
            **{key: count for key, count in inputs["data"].metrics.items() if key in IMAGES},
        },
        "image": list(facts.network(inputs).input_shape),
        "validation": facts.params(inputs, "data").get("validation", 0),
        "network": settings["network"],
        "parameters": trained["parameters"],
        "layers": layers.numbers(trained),
        "variant": settings["variant"],
        "device": trained.get("device"),
        "training": settings.get("training", "gradient")
        if "train" in inputs
        else "patches"
        if "patches" in inputs
        else "none",
        "start": facts.start(inputs),
        "features": origins,
        "extraction": features.extraction(inputs),
        "batch_size": curves.batch_size(inputs["train"]) if "train" in inputs else None,
        "epochs": trained.get("epochs"),
        "passes": training.passes(inputs),
        "steps": trained.get("steps"),
        "seed": settings["seed"],
        "versions": {**{role: artifact.version for role, artifact in in_order}, "report": version},
        "loss": trained.get("loss"),
        "accuracy": trained.get("accuracy"),
        "divergence": training.divergence(inputs),
        "curves": training.curve_points(inputs),
        "validation_curve": training.validation_curve(inputs),
        "loss_change": training.loss_change(inputs),
        "reconstruction_loss": training.reconstruction_loss(inputs),
        "average_image_loss": training.average_image_loss(inputs),
        "guess_loss": math.log(len(inputs["data"].metrics["classes"])) if score else None,
        "fit": inputs["patches"].metrics["layers"] if "patches" in inputs else None,
        "seconds_by_pass": trained.get("seconds_by_pass"),
        "seconds_by_operation": trained.get("seconds_by_operation"),
        "memory_by_purpose": trained.get("memory"),
        "answered_by": lineage.answering(inputs),
        "images_per_decision": shifted["images"] if shifted else 1,
        "test_loss": inputs["evaluate"].metrics["loss"] if "evaluate" in inputs else None,
        "test_accuracy": classified.get("accuracy"),
        "accuracy_interval": against.get("interval"),
        "balanced_accuracy": confusion and metrics.balanced_accuracy(confusion),
        "wrong": score and accuracy.wrong(inputs, score),
        "controls": against.get("controls"),
        "gains": accuracy.gains(inputs),
        "control_accuracy": facts.accuracy(inputs, f"{classifier}_random"),
        "raw_pixel_accuracy": facts.accuracy(inputs, f"{classifier}_pixels"),
        "per_class": classified.get("per_class"),
        "per_class_intervals": classes.per_class_intervals(classified) if score else None,
        "confusion": confusion,
        "changed_copies": copies,
        "likeness": alike.numbers(inputs),
        "share": params.get("share", True),
        "reference": training.reference(inputs),
        "layer_movement": trained.get("layer_movement"),
        "seconds": {role: artifact.manifest["seconds"] for role, artifact in in_order},
        "seconds_compiling": sum(
            artifact.manifest.get("seconds_compiling", 0.0) for _, artifact in in_order
        ),
        "images_per_second": trained.get("images_per_second"),
        "peak_memory_bytes": {
            role: artifact.manifest["peak_memory_bytes"] for role, artifact in in_order
        },
        "bytes": {role: provenance.size(artifact) for role, artifact in in_order},
        "machines": provenance.machines(inputs),
        "checks": provenance.first_uses(inputs),
        "went_on": final.manifest["notes"] if "goes_on_from" in final.manifest["notes"] else None,
        "svm": _svm(inputs),
        "weights": facts.from_root(final.folder / weights.file_name(facts.network(inputs))),
        "evaluations": evaluated,
        "evaluation_intervals": {
            role: list(intervals.wilson(value, inputs["data"].metrics["test"]))
            for role, value in evaluated.items()
        },
        "few_labels": labels.numbers(inputs),
        "seeds": comparisons.seeds(inputs, settings["seed"]),
        "runs": listed,
        "control_settings": params.get("control_settings"),
        "choices": params.get("choices", []),
        "warnings": params.get("warnings", []),
        "test_scores": comparisons.test_scores(inputs),
        "program": {"version": __version__, **(program.state(sources.ROOT) or {})},
        "reproduce": {
            "settings": reproduce.settings(inputs, params),
            "not_in_settings": reproduce.unwritten(inputs),
            "data": reproduce.checksums(inputs),
            "stages": reproduce.stages(inputs),
            "network_file": reproduce.network_file(params),
        },
    }
    return numbers | {
        "targets": bounds.judged(params.get("targets", []), numbers),
        "next": advice.command(numbers, params.get("declined", [])),
    }


def _svm(inputs):
    if "svm" not in inputs:
        return None
    return {
        key: inputs["svm"].metrics[key]
        for key in ("backend", "kernel", "C", "gamma", "support_vectors", "accuracy")
    }


# The page.


def page(inputs, numbers):
    """The report as one HTML text; `numbers` is its summary."""
    return templates.render("report.html", context(inputs, numbers))


def csv_text(inputs):
    """A line for each image that the run is scored on: its row, the file of a picture of one's own,
    classes and decision.
    """
    heads = "row", "file", "label", "prediction", "decision"
    score, data = facts.predictions(inputs), inputs["data"]
    if score is None:
        return output.csv_text(heads, [])
    classes, files = data.metrics["classes"], picture_names.read(data, "test")
    columns = (
        data.array("test_labels.npy"),
        score.array("predictions.npy"),
        scoring.decisions(score),
    )
    return output.csv_text(
        heads,
        (
            {
                "row": row,
                "file": files[row] if files else "",
                "label": classes[label],
                "prediction": classes[prediction],
                "decision": f"{decision:.9g}",
            }
            for row, (label, prediction, decision) in enumerate(zip(*columns, strict=True))
        ),
    )


def context(inputs, numbers):
    """All variables of the templates, with pictures and charts: those of each section under its
    key, and what several read.
    """
    sections = {section.key: section.variables(inputs, numbers) for section in SECTIONS}
    return {
        "run": numbers,
        "title": templates.dataset_title(numbers["dataset"]),
        "networks": [title for titles in features.networks(inputs) for title in titles],
        "made": max(artifact.manifest["made"] for _, artifact in facts.in_order(inputs)),
        "verdict": changed.verdict(inputs, numbers) or verdicts.first_screen(inputs, numbers),
        "scored_on": facts.scored_on(inputs),
        "how": facts.how(inputs),
        "head": facts.head(inputs),
        "without_labels": facts.without_labels(inputs),
        "classifier": accuracy.of_features(inputs),
        "labelled": []
        if "evaluate" in inputs
        else [
            {**origin, "network": templates.network_title(origin["network"])}
            for origin in features.with_labels(numbers["features"])
        ],
        "sections": [section for section in SECTIONS if sections[section.key]],
        **sections,
    }
