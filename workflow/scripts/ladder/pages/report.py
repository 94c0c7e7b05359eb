"""The report of one run: its numbers (summary.json) and its page (report.html), from its artifacts.

Inputs are artifacts by role: data and normalized; patches if layers are fitted to patches; train if layers are trained;
evaluate if the network classifies; features and svm if an SVM classifies features, with their controls features_random,
svm_random, features_pixels and svm_pixels; joined if features are concatenated; linear, ridge and knn like svm; map; and the
scores of other runs (see evaluations.py). Results that a stage has measured are not computed again.
"""

import collections
import math
import pathlib
import re

from ladder import sources
from ladder.classifiers import metrics
from ladder.machine import program
from ladder.network import weights
from ladder.pages import (
    evaluations,
    feature_sections,
    intervals,
    paper,
    report_sections,
    reproduce,
    roles,
    rule_graph,
    templates,
    verdicts,
)
from ladder.store import lineage, targets
from ladder.store.roles import PIXELS, RANDOM, Role


def summary(inputs, version, params=None):
    """The run's numbers, JSON-able; None for a number that the run does not have.

    version: of the report; params: its parameters, with the entries of the ablation list, {"overrides", "reason"} each.
    start: the file whose weights the run started from, {"file", "sha256"}, None if they were random; features: where they come
    from (feature_sections.origins).
    loss, accuracy and divergence are the training's, by epoch; curves: the points of their charts; test_accuracy, per_class and
    confusion are the network's if it classifies, else the judge's (lineage.judge), as the accuracies of the controls always
    are; answered_by: the role of the artifact whose they are. If holdout is not 0, all test results are on a hold-out set of
    that many training images; held_out: see report_sections.held_out.
    loss_change, reconstruction_loss: see report_sections; seconds_by_pass: of the training, by epoch (Step.pass_).
    reference: see report_sections; targets: params["targets"], each with "reached" and "met" (store/targets.py).
    accuracy_interval: of test_accuracy; controls: see verdicts.numbers; verdict: both in one sentence.
    images_per_decision: the number of images over which a decision of a classifier of features is the mean.
    """
    train, network, params = report_sections.made_by(inputs), report_sections.network(inputs), params or {}
    settings = {**params, **train.manifest["spec"]["params"]}
    verdict, judge = report_sections.verdict(inputs), lineage.judge(inputs)
    found, against = verdict.metrics if verdict else {}, verdicts.numbers(inputs)
    features, dataset = feature_sections.origins(inputs), inputs["data"].manifest["spec"]["params"]["dataset"]
    networks, shifted = _networks(settings["network"], features), feature_sections.shifted(inputs)
    numbers = {
        "name": params.get("name"),
        "tags": params.get("tags", []),
        "verdict": verdicts.sentence(inputs, against, networks, templates.dataset_title(dataset)) if against else None,
        "dataset": dataset,
        "holdout": inputs["data"].manifest["spec"]["params"].get("holdout", 0),
        "network": settings["network"],
        "variant": settings["variant"],
        "device": train.metrics.get("device"),
        "training": settings.get("training", "gradient") if "train" in inputs else "patches" if "patches" in inputs else "none",
        "start": report_sections.start(inputs),
        "features": features,
        "batch_size": train.manifest["spec"]["params"].get("batch_size"),
        "epochs": train.metrics.get("epochs"),
        "steps": train.metrics.get("steps"),
        "seed": settings["seed"],
        "versions": {**{role: one.version for role, one in _made(inputs)}, "report": version},
        "loss": train.metrics.get("loss"),
        "accuracy": train.metrics.get("accuracy"),
        "divergence": report_sections.divergence(inputs),
        "curves": report_sections.curves(inputs),
        "held_out": report_sections.held_out(inputs),
        "loss_change": report_sections.loss_change(inputs),
        "reconstruction_loss": report_sections.reconstruction_loss(inputs),
        "seconds_by_pass": train.metrics.get("seconds_by_pass"),
        "answered_by": lineage.answering(inputs),
        "images_per_decision": shifted["images"] if shifted else 1,
        "test_loss": inputs["evaluate"].metrics["loss"] if "evaluate" in inputs else None,
        "test_accuracy": found.get("accuracy"),
        "accuracy_interval": against and against["interval"],
        "controls": against and against["controls"],
        "control_accuracy": _accuracy(inputs, str(Role(judge, RANDOM))),
        "raw_pixel_accuracy": _accuracy(inputs, str(Role(judge, PIXELS))),
        "per_class": found.get("per_class"),
        "confusion": found.get("confusion"),
        "reference": report_sections.reference(inputs),
        "layer_movement": train.metrics.get("layer_movement"),
        "seconds": {role: one.manifest["seconds"] for role, one in _made(inputs)},
        "seconds_compiling": sum(one.manifest.get("seconds_compiling", 0.0) for _, one in _made(inputs)),
        "images_per_second": train.metrics.get("images_per_second"),
        "peak_memory_bytes": {role: one.manifest["peak_memory_bytes"] for role, one in _made(inputs)},
        "svm": _svm(inputs),
        "weights": _from_root(train.folder / weights.file_name(network)),
        "evaluations": evaluations.accuracies(inputs),
        "seeds": evaluations.seeds(inputs, settings["seed"]),
        "ablation": evaluations.ablation(inputs, params.get("ablation", ())),
        "test_scores": evaluations.test_scores(inputs),
        "program": program.state(sources.ROOT),
        "reproduce": {"settings": reproduce.settings(inputs, params), "not_in_settings": reproduce.unwritten(inputs),
                      "data": reproduce.checksums(inputs), "stages": reproduce.stages(inputs),
                      "network_file": reproduce.network_file(params)},
    }
    return numbers | {"targets": targets.judged(params.get("targets", []), numbers)}


def page(inputs, numbers, figures=()):
    """The report as one HTML text; `numbers` is its summary; figures: names of the files of paper.py beside it."""
    shown = context(inputs, numbers)
    told = {name: title for name, title in paper.titles(shown).items() if name in figures}
    return templates.render("report.html", {**shown, "figures": told})


def context(inputs, numbers):
    """All variables of the template, with pictures and charts."""
    data, train = inputs["data"], report_sections.made_by(inputs)
    names = data.metrics["classes"]
    average_image = report_sections.average_image_loss(inputs)
    return {
        "run": numbers,
        "metrics": train.metrics,
        "data": data.metrics,
        "scored_on": metrics.scored_on(data.manifest["spec"]["params"]),
        "image": templates.shape(data.array("train_images.npy").shape[1:3]),
        "longest_name": max(len(name) for name in names),
        "title": templates.dataset_title(numbers["dataset"]),
        "networks": _networks(numbers["network"], numbers["features"]),
        "verdict": _verdict(inputs, numbers),
        "how": report_sections.how(inputs),
        "head": report_sections.head(inputs),
        "without_labels": report_sections.without_labels(inputs),
        "judge": roles.JUDGES.get(lineage.judge(inputs)),
        "judge_accuracy": _accuracy(inputs, lineage.judge(inputs)),
        "labelled": [] if "evaluate" in inputs else [
            {**one, "network": templates.network_title(one["network"])}
            for one in feature_sections.with_labels(numbers["features"])],
        "smoke_test": numbers["dataset"] == "digits",
        "features": {"odd_dimensions": 0, **inputs["features"].metrics, **inputs.get("joined", inputs["features"]).metrics}
        if "features" in inputs else None,
        "features_layer": inputs["features"].manifest["spec"]["params"].get("features_layer") if "features" in inputs else None,
        "checks": report_sections.first_uses(inputs),
        "threads": train.manifest["threads"],
        "machines": _machines(inputs),
        "gpus": _gpus(inputs),
        "made": max(one.manifest["made"] for _, one in _made(inputs)),
        "guess_loss": math.log(len(names)),
        "passes": report_sections.passes(train, data.metrics["train"]),
        "headline": report_sections.headline(inputs),
        "accuracies": report_sections.accuracies(inputs),
        "gain": report_sections.gain(inputs),
        "gain_of_labels": report_sections.gain_of_labels(inputs),
        "samples": report_sections.samples(data),
        "skipped": report_sections.skipped(data),
        "few_classes": report_sections.FEW_CLASSES,
        "loss_curve": report_sections.loss_curve(inputs, average_image),
        "accuracy_curve": report_sections.accuracy_curve(inputs),
        "divergence_curve": report_sections.divergence_curve(inputs),
        "average_image": average_image,
        "movement": report_sections.movement(numbers["layer_movement"]) if "train" in inputs else [],
        "fit": report_sections.fit(inputs),
        "went_on": train.manifest["notes"] if "goes_on_from" in train.manifest["notes"] else None,
        "reconstructions": report_sections.reconstructions(inputs),
        "code": report_sections.network(inputs).code,
        "image_values": math.prod(report_sections.network(inputs).input_shape),
        "drawn": report_sections.drawn(inputs),
        "draws": report_sections.network(inputs).draws,
        "filters": report_sections.filters(train, report_sections.network(inputs), report_sections.atoms(inputs)),
        "classes": report_sections.classes(inputs),
        "confusion": report_sections.confusion(numbers["confusion"], names),
        "most_mistaken": report_sections.most_mistaken(numbers["confusion"] or []),
        "confused": report_sections.most_confused(inputs),
        "mistakes": report_sections.mistakes(inputs),
        "classifiers": evaluations.classifier_table(numbers["evaluations"], report_sections.how(inputs)),
        "knn": inputs["knn"].manifest["spec"]["params"] if "knn" in inputs else None,
        "seeds": evaluations.seed_table(numbers["seeds"], report_sections.how(inputs)),
        "ablation": evaluations.ablation_table(numbers["ablation"], data.metrics["test"]),
        "feature_parts": feature_sections.parts(inputs),
        "shifted": feature_sections.shifted(inputs),
        "pixels": feature_sections.pixels(inputs),
        "feature_map": feature_sections.feature_map(inputs),
        "stage_times": templates.bars({roles.title(role): value for role, value in numbers["seconds"].items()},
                                      templates.duration),
        "passes_by_epoch": report_sections.passes_by_epoch(train),
        "operation_times": report_sections.operation_times(train),
        "recomputing": report_sections.recomputing(train),
        "memory": templates.bars(train.metrics["memory"], templates.size) if "memory" in train.metrics else [],
        "network": report_sections.layers(train.metrics),
        "artifacts": _artifacts(inputs),
        "settings": _settings(inputs),
        "targets": report_sections.target_rows(numbers["targets"]),
        "yaml": reproduce.text(numbers["reproduce"]["settings"]),
        "rule_graph": rule_graph.graph(numbers["reproduce"]["stages"]),
    }


def _verdict(inputs, numbers):
    """The first screen's sentence with its chart and formulas; None if nothing was classified."""
    if numbers["verdict"] is None:
        return None
    found = {"controls": numbers["controls"]}
    sentence, _, concluded = numbers["verdict"].partition("; ")
    return {"sentence": sentence, "conclusion": concluded, "chart": verdicts.chart(inputs, found),
            "formula": intervals.FORMULAS[True], "majority": _majority(inputs, found)}


def _majority(inputs, found):
    """The name of the most frequent class if it is a control."""
    named = any(control["control"] == "majority" for control in found["controls"])
    return inputs["data"].metrics["classes"][verdicts.majority(inputs)] if named else None


def _networks(network, features):
    """The titles of the run's network and of those whose features are joined to it: '2 patch networks', 'an autoencoder'."""
    names = [one["network"] for one in features] or [network]
    counts = collections.Counter(map(templates.network_title, names))
    first, *others = (re.sub(r"^An? (.*)", rf"{count} \1s", title) if count > 1 else title for title, count in counts.items())
    return [first, *(re.sub(r"^A(?=n? )", "a", title) for title in others)]


def _made(inputs):
    """(role, artifact) in the order of the work."""
    return [(role, inputs[role]) for role in roles.in_order(inputs)]


def _accuracy(inputs, role):
    return inputs[role].metrics["accuracy"] if role in inputs else None


def _svm(inputs):
    if "svm" not in inputs:
        return None
    return {key: inputs["svm"].metrics[key] for key in ("backend", "kernel", "C", "gamma", "support_vectors", "accuracy")}


def _from_root(path):
    """`path`, relative to the repository root if it is below it."""
    path = pathlib.Path(path)
    return (path.relative_to(sources.ROOT) if path.is_relative_to(sources.ROOT) else path).as_posix()


def _machines(inputs):
    """The distinct machines (with thread counts) of the artifacts, each with the roles made there."""
    machines = {}
    for role, one in _made(inputs):
        facts = {**one.manifest["machine"], "threads": one.manifest["threads"]}
        del facts["host"]
        blas = facts.pop("blas")   # like the libraries, it depends on the imports of a stage
        _, made_here, libraries = machines.setdefault(tuple(facts.items()), (facts, [], set()))
        made_here.append(roles.title(role))
        libraries.update(f"{name} {version}" for name, version in one.manifest["libraries"].items())
        libraries.update(blas.split(", ") if blas else [])
    return [{**facts, "roles": made_here, "libraries": sorted(libraries)} for facts, made_here, libraries in machines.values()]


def _gpus(inputs):
    """GPU, with its driver and array library -> the titles of the roles whose classifiers or components it computed."""
    found = {}
    for role, one in _made(inputs):
        if gpu := one.metrics.get("gpu"):
            found.setdefault(gpu, []).append(roles.title(role))
    return found


def _artifacts(inputs):
    return [{"role": roles.title(role), "version": one.version, "folder": _from_root(one.folder),
             "bytes": sum(file["bytes"] for file in one.manifest["files"].values()),
             "made": one.manifest["made"], "seconds": one.manifest["seconds"],
             "peak_memory_bytes": one.manifest["peak_memory_bytes"]} for role, one in _made(inputs)]


def _settings(inputs):
    """All parameters by stage; for a control only those that differ from the run's."""
    groups = []
    for role, one in _made(inputs):
        params = {key: value for key, value in one.manifest["spec"]["params"].items() if key != "table"}
        main = Role.parse(role).stage
        if main != role and main in inputs:
            usual = inputs[main].manifest["spec"]["params"]
            params = {key: value for key, value in params.items() if key not in usual or usual[key] != value}
        groups.append({"stage": roles.title(role), "control": main != role, "params": params})
    return groups
