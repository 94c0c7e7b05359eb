"""The report of one run: its numbers (summary.json) and its page (report.html), from its artifacts.

Inputs are artifacts by role: data, normalized, train, features, svm and, where the controls are on, features_random,
svm_random, features_pixels, svm_pixels. Nothing here is computed anew that a stage has measured.
"""

import math
import pathlib

import numpy as np

from . import figures, pages, sources, weights

SAMPLES = 8        # training images shown of every class
MISTAKES = 16      # misclassified images shown
PICTURES = 16      # reconstructions shown
FILTER_LIMIT = 256
ROWS_AT_ONCE = 1000
TITLES = {"digits": "handwritten digits", "cifar10": "CIFAR-10"}   # of datasets, where the key is not what people say
ROLES = {
    "data": "data",
    "normalized": "normalized",
    "train": "train",
    "features": "features",
    "svm": "svm",
    "features_random": "features, untrained encoder",
    "svm_random": "svm, untrained encoder",
    "features_pixels": "features, raw pixels",
    "svm_pixels": "svm, raw pixels",
}


def summary(inputs, version):
    """The run's numbers, JSON-able; `version` is the report's own. What a run has no number for is None."""
    train = inputs["train"]
    settings = train.manifest["spec"]["params"]
    classifier = inputs.get("svm", train)
    return {
        "dataset": inputs["data"].manifest["spec"]["params"]["dataset"],
        "network": settings["network"],
        "variant": settings["variant"],
        "device": train.metrics["device"],
        "batch_size": settings["batch_size"],
        "epochs": settings["epochs"],
        "seed": settings["seed"],
        "versions": {**{role: one.version for role, one in _made(inputs)},
                     "initial": train.manifest["spec"]["parents"]["initial"], "report": version},
        "loss": train.metrics["loss"],
        "test_accuracy": classifier.metrics.get("accuracy"),
        "control_accuracy": _accuracy(inputs, "svm_random"),
        "raw_pixel_accuracy": _accuracy(inputs, "svm_pixels"),
        "per_class": classifier.metrics.get("per_class"),
        "confusion": classifier.metrics.get("confusion"),
        "layer_movement": train.metrics["layer_movement"],
        "seconds": {role: one.manifest["seconds"] for role, one in _made(inputs)},
        "images_per_second": train.metrics["images_per_second"],
        "peak_memory_bytes": {role: one.manifest["peak_memory_bytes"] for role, one in _made(inputs)},
        "svm": _svm(inputs),
        "weights": _from_root(train.folder / "weights.bin"),
    }


def page(inputs, numbers):
    """The report as one HTML text; `numbers` is its summary."""
    return pages.render("report.html", context(inputs, numbers))


def context(inputs, numbers):
    """Everything the template names, with pictures and charts."""
    metrics = inputs["data"].metrics
    baseline = _baseline(inputs)
    return {
        "run": numbers,
        "metrics": inputs["train"].metrics,
        "data": metrics,
        "longest_name": max(len(name) for name in metrics["classes"]),
        "title": TITLES.get(numbers["dataset"], numbers["dataset"]),
        "smoke_test": numbers["dataset"] == "digits",
        "features": inputs["features"].metrics if "features" in inputs else None,
        "normalization": inputs["normalized"].manifest["spec"]["params"]["normalization"],
        "threads": inputs["train"].manifest["threads"],
        "machines": _machines(inputs),
        "made": max(one.manifest["made"] for _, one in _made(inputs)),
        "accuracy": _accuracy_chart(numbers, metrics["test"]),
        "gain": _gain(inputs),
        "samples": _samples(inputs["data"]),
        "loss_chart": _loss_chart(inputs, baseline),
        "baseline": baseline,
        "movement": _bars(numbers["layer_movement"], pages.small_percent),
        "reconstructions": _reconstructions(inputs),
        "filters": _filters(inputs["train"], numbers["network"]),
        "classes": _classes(inputs),
        "confusion": _confusion(numbers["confusion"], metrics["classes"]),
        "confused": _most_confused(numbers["confusion"], metrics["classes"]),
        "mistakes": _mistakes(inputs),
        "stage_times": _bars({ROLES[role]: value for role, value in numbers["seconds"].items()}, pages.duration),
        "operation_times": _operation_times(inputs["train"]),
        "memory": _bars(inputs["train"].metrics["memory"], pages.size),
        "network": _network(inputs["train"].metrics),
        "artifacts": _artifacts(inputs),
        "settings": _settings(inputs),
    }


def standard_error(accuracy, n):
    """Binomial standard error sqrt(p(1-p)/n) of an accuracy over n images; None at 0 and 1, where it says nothing."""
    return math.sqrt(accuracy * (1 - accuracy) / n) if 0 < accuracy < 1 else None


def _made(inputs):
    """(role, artifact) in the order of the chain."""
    return [(role, inputs[role]) for role in ROLES if role in inputs]


def _accuracy(inputs, role):
    return inputs[role].metrics["accuracy"] if role in inputs else None


def _svm(inputs):
    if "svm" not in inputs:
        return None
    return {key: inputs["svm"].metrics[key] for key in ("backend", "kernel", "C", "gamma", "support_vectors")}


def _from_root(path):
    """`path` relative to the repository root where it lies below it."""
    path = pathlib.Path(path)
    return (path.relative_to(sources.ROOT) if path.is_relative_to(sources.ROOT) else path).as_posix()


def _bars(values, text):
    """Rows for a bar chart: lengths in percent of the largest value."""
    largest = max(values.values(), default=0) or 1
    return [{"name": name, "length": round(100 * value / largest, 2), "text": text(value)}
            for name, value in values.items()]


def _machines(inputs):
    """The distinct machines (and thread counts) the artifacts were made on, each with the roles made there."""
    machines = {}
    for role, one in _made(inputs):
        facts = {**one.manifest["machine"], "threads": one.manifest["threads"]}
        del facts["host"]
        libraries = facts.pop("blas")   # grows with what a stage imports
        _, roles, blas = machines.setdefault(tuple(facts.items()), (facts, [], set()))
        roles.append(ROLES[role])
        blas.update(libraries.split(", ") if libraries else [])
    return [{**facts, "roles": roles, "blas": ", ".join(sorted(blas))} for facts, roles, blas in machines.values()]


# Accuracy and its controls.

def _accuracy_chart(numbers, n):
    """The test accuracy and its controls on one scale; None where nothing was classified."""
    rows = [("trained", "Trained encoder", "this run", numbers["test_accuracy"]),
            ("random", "Untrained encoder", "control 1", numbers["control_accuracy"]),
            ("pixels", "Raw pixels", "control 2", numbers["raw_pixel_accuracy"])]
    rows = [{"key": key, "name": name, "note": note, "value": value, "error": standard_error(value, n),
             "text": pages.percent(value), "error_text": _points(standard_error(value, n))}
            for key, name, note, value in rows if value is not None]
    return figures.interval_chart(rows) if rows else None


def _points(error):
    return "" if error is None else f"± {100 * error:.{1 if error >= 0.001 else 2}f}"


def _gain(inputs):
    """What training the encoder bought, image by image; None without the control.

    won: images only the trained encoder's SVM names correctly, lost: only the untrained one's. By chance alone
    won - lost is 0 with standard deviation sqrt(won + lost) (McNemar's test); `beyond_chance` asks for more than two.
    """
    if "svm_random" not in inputs:
        return None
    labels = inputs["data"].array("test_labels.npy")
    right, right_random = (inputs[role].array("predictions.npy") == labels for role in ("svm", "svm_random"))
    won, lost = int((right & ~right_random).sum()), int((right_random & ~right).sum())
    return {"won": won, "lost": lost, "points": 100 * (won - lost) / len(labels),
            "beyond_chance": abs(won - lost) > 2 * math.sqrt(won + lost)}


# Pictures.

def _samples(data):
    """The first SAMPLES training images of every class, one strip each."""
    images, labels = data.array("train_images.npy"), np.asarray(data.array("train_labels.npy"))
    strips = []
    for label, name in enumerate(data.metrics["classes"]):
        rows = np.flatnonzero(labels == label)[:SAMPLES]
        if len(rows):
            strip = figures.tiles(images[rows], SAMPLES, gap=2)
            strips.append({"name": name, "count": len(rows), "image": figures.png_uri(strip)})
    return strips


def _reconstructions(inputs):
    """Originals, reconstructions and differences as single pictures; None for a network that rebuilds nothing."""
    if "reconstructions.npy" not in inputs["train"].manifest["files"]:
        return None
    rebuilt = np.asarray(inputs["train"].array("reconstructions.npy"))[:PICTURES]
    originals = np.asarray(inputs["data"].array("test_images.npy")[:len(rebuilt)])
    classes, labels = inputs["data"].metrics["classes"], inputs["data"].array("test_labels.npy")
    shown, gain = figures.differences(originals, rebuilt)
    off = np.abs(rebuilt.astype(np.int16) - originals)
    return {
        "gain": gain,
        "off": float(off.mean()),
        "columns": [{"name": classes[labels[index]], "off": float(off[index].mean()),
                     "original": figures.png_uri(originals[index]), "rebuilt": figures.png_uri(rebuilt[index]),
                     "difference": figures.png_uri(shown[index])} for index in range(len(rebuilt))],
    }


def _filters(train, network):
    """The first convolution's filters in one picture; None where they do not read one or three colour channels."""
    tensors = weights.read_weights(train.path("weights.bin"), network)
    name, first = next((name, tensor) for name, tensor in tensors.items() if tensor.ndim == 4)
    if first.shape[1] not in (1, 3):
        return None
    pictures = figures.filters(np.asarray(first))[:FILTER_LIMIT]
    return {"layer": name.split(".")[0], "count": len(first), "shown": len(pictures), "shape": list(first.shape[1:]),
            # Enlarged here: a browser that scales 3 pixels to 20 and some makes some of them wider than others.
            "image": figures.png_uri(figures.tiles(np.kron(pictures, np.ones((1, 8, 8, 1), np.uint8)), 16, gap=8))}


def _mistakes(inputs):
    """The first MISTAKES test images the SVM misnames; None without an SVM."""
    if "svm" not in inputs:
        return None
    data = inputs["data"]
    labels, predictions = data.array("test_labels.npy"), inputs["svm"].array("predictions.npy")
    images, classes = data.array("test_images.npy"), data.metrics["classes"]
    wrong = np.flatnonzero(labels != predictions)
    return {"count": len(wrong),
            "shown": [{"image": figures.png_uri(images[index]), "true": classes[labels[index]],
                       "named": classes[predictions[index]]} for index in wrong[:MISTAKES]]}


# Training.

def _loss_chart(inputs, baseline):
    references = [{"name": "the average image", "value": baseline}] if baseline else []
    return figures.line_chart([{"name": "training loss", "values": inputs["train"].metrics["loss"]}], references)


def _baseline(inputs):
    """Mean-square error of answering every training image with their average one, in the loss's units.

    None for a network that does not rebuild its input.
    """
    if "reconstructions.npy" not in inputs["train"].manifest["files"]:
        return None
    images = inputs["normalized"].array("train.npy")
    total, squares = (np.zeros(images.shape[1:]) for _ in range(2))
    for start in range(0, len(images), ROWS_AT_ONCE):
        block = images[start:start + ROWS_AT_ONCE].astype(np.float64)
        total += block.sum(axis=0)
        squares += np.square(block).sum(axis=0)
    variance = squares / len(images) - np.square(total / len(images))
    scale = inputs["normalized"].tensors("statistics.safetensors")["scale"]
    return float((variance * np.square(scale)).mean())


# Classes.

def _classes(inputs):
    """Accuracy by class, best first, with the untrained encoder's beside it where there is one."""
    if "svm" not in inputs:
        return None
    metrics = inputs["svm"].metrics
    totals = [sum(row) for row in metrics["confusion"]]
    control = inputs["svm_random"].metrics["per_class"] if "svm_random" in inputs else {}
    rows = [{"name": name, "length": round(100 * value, 2), "text": pages.percent(value), "note": f"of {total:,}",
             "mark": round(100 * control[name], 2) if name in control else None,
             "mark_text": pages.percent(control[name]) if name in control else None}
            for (name, value), total in zip(metrics["per_class"].items(), totals, strict=True)]
    return sorted(rows, key=lambda row: -row["length"])


def _confusion(matrix, classes):
    """Rows of cells with their strength of colour in percent: the share of the row if right, stronger if wrong."""
    if matrix is None:
        return None
    rows = []
    for true, counts in enumerate(matrix):
        total = sum(counts) or 1
        cells = [{"count": number, "right": true == named, "named": classes[named],
                  "strength": round(100 * number / total if true == named else _mistake_strength(number / total))}
                 for named, number in enumerate(counts)]
        rows.append({"name": classes[true], "cells": cells, "total": sum(counts)})
    return rows


def _mistake_strength(share):
    """Colour in percent that makes a few mistakes visible and still tells few from many."""
    return 15 + 85 * math.sqrt(share) if share else 0


def _most_confused(matrix, classes):
    """The largest number off the diagonal as {"true", "named", "count"}; None where no confusion happened twice."""
    if matrix is None:
        return None
    pairs = [(number, true, named) for true, row in enumerate(matrix) for named, number in enumerate(row)
             if true != named and number > 1]
    if not pairs:
        return None
    number, true, named = max(pairs, key=lambda pair: pair[0])
    return {"true": classes[true], "named": classes[named], "count": number}


# Work and memory.

# Layers beside the convolutions, and the name their time is booked under where they have an operation of their own.
LAYER_WORK = {"relu": "ReLU", "maxpool2d": "pooling", "upsample2d": "upsampling"}


def _operation_times(train):
    values = {name: value for name, value in train.metrics["seconds_by_operation"].items() if value > 0}
    total = sum(values.values())
    rows = _bars(dict(sorted(values.items(), key=lambda item: -item[1])), pages.duration)
    for row in rows:
        row["note"] = pages.percent(values[row["name"]] / total)
    kinds = {layer["kind"] for layer in train.metrics["network"]}
    fused = [name for kind, name in LAYER_WORK.items() if kind in kinds and name not in values]
    return {"rows": rows, "total": total, "fused": fused}


def _network(metrics):
    """The network's layers; `rows`: how many, from this one on, its kernel ran at once (0 inside such a group)."""
    groups = {}
    for one in metrics["kernels"]:
        names = one["layer"].split(" + ")
        groups[names[0]] = one["kernel"], len(names)
    layers, left = [], 0   # left: layers of the current group still to come
    for layer in metrics["network"]:
        kernel, rows = groups.get(layer["layer"], ("", 0 if left else 1))
        left = rows - 1 if rows else left - 1
        layers.append({**layer, "kernel": kernel, "rows": rows, "shape": " × ".join(str(n) for n in layer["output"])})
    return {"layers": layers, "parameters": sum(layer["parameters"] for layer in layers),
            "macs": sum(layer["macs"] for layer in layers)}


# Provenance.

def _artifacts(inputs):
    return [{"role": ROLES[role], "version": one.version, "folder": _from_root(one.folder),
             "bytes": sum(file["bytes"] for file in one.manifest["files"].values()),
             "made": one.manifest["made"], "seconds": one.manifest["seconds"],
             "peak_memory_bytes": one.manifest["peak_memory_bytes"]} for role, one in _made(inputs)]


def _settings(inputs):
    """Every parameter by stage; of a control only those in which it differs from the run."""
    groups = []
    for role, one in _made(inputs):
        params = one.manifest["spec"]["params"]
        main = role.partition("_")[0]
        if main != role:
            usual = inputs[main].manifest["spec"]["params"]
            params = {key: value for key, value in params.items() if key not in usual or usual[key] != value}
        groups.append({"stage": ROLES[role], "control": main != role, "params": params})
    return groups
