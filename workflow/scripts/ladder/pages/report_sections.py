"""The parts of a report: pictures, curves, bars and tables of a run, as the template takes them.

inputs are artifacts by role, as in report.py. A part that the run does not have is None.
"""

import math

import numpy as np

from ladder.classifiers import metrics
from ladder.executors.create import COPIES, WAITING
from ladder.network import networks, weights
from ladder.pages import charts, figures, intervals, roles, templates
from ladder.store import first_use, lineage, targets
from ladder.store.roles import RANDOM, START, Role

SAMPLES = 8        # training images shown per class
FEW_CLASSES = 20   # more classes are folded, and only the worst of them are in the confusion matrix
SKIPPED = 50       # pictures that could not be read, listed
MISTAKES = 16      # misclassified images shown
PAIRS, PAIR_IMAGES = 6, 6   # most confused pairs of classes shown, and images of each
PICTURES = 16      # reconstructions shown
DRAWN_COLUMNS = 8
FILTER_LIMIT, UNIT_LIMIT = 256, 64   # filters of a first layer shown, or units if it is dense
ROWS_AT_ONCE = 1000
POINTS, POINT_STEPS = 100, 10        # maximum points of a curve, and steps averaged in each
NEARLY = 0.9       # the bars of the classes begin further right than 0 % if every one is above this
LONG = 24          # longer lists of layers are folded by stage


def verdict(inputs):
    """The artifact with the run's predictions (lineage.answering)."""
    return inputs.get(lineage.answering(inputs))


def made_by(inputs):
    """The artifact with the run's final weights: of the training, of the fit if nothing is trained, or the initial ones."""
    return next(inputs[role] for role in ("train", "patches", "initial") if role in inputs)


def how(inputs):
    """How the run got its weights, before 'encoder' or 'network': 'fitted', 'trained', 'given' by a file, or 'untrained'."""
    if "patches" in inputs:
        return "fitted"
    if "train" in inputs:
        return "trained"
    return "given" if start(inputs) else "untrained"


def first_uses(inputs):
    """What was checked before its first use on a GPU, each once: the notes of store/first_use.py."""
    notes = [inputs[role].manifest["notes"].get(first_use.NOTE) for role in roles.in_order(inputs)]
    return list({(note["name"], note["made"]): note for note in notes if note}.values())


def start(inputs):
    """The file whose weights the run started from, {"file", "sha256"}; None if they were random."""
    return lineage.start_file(inputs["initial"].manifest)


def head(inputs):
    """How labels trained a network with a head (networks.HEADED): {"start", "frozen"}; None for another or no training.

    start: how its encoder was made before, 'fitted', 'given' by a file, or 'untrained'; frozen: whether it stayed as it was.
    """
    params = inputs["train"].manifest["spec"]["params"] if "train" in inputs else {}
    if params.get("network") not in networks.HEADED:
        return None
    return {"start": "fitted" if "patches" in inputs else "given" if start(inputs) else "untrained",
            "frozen": params["freeze_encoder"] or params["training"] == "patches"}


def without_labels(inputs):
    """Whether the encoder of a network with a head had seen no labels before: it was fitted, or is an autoencoder's."""
    return "patches" in inputs or inputs["initial"].metrics.get("part") is not None


def network(inputs):
    """The run's networks.Network."""
    return networks.from_params(made_by(inputs).manifest["spec"]["params"])


# Accuracy and its controls.

def headline(inputs):
    """The run's accuracy with its interval (intervals.share), and the number of errors; None if nothing was classified."""
    if verdict(inputs) is None:
        return None
    accuracy, n = verdict(inputs).metrics["accuracy"], inputs["data"].metrics["test"]
    return {**intervals.share(accuracy, n), "wrong": n - round(accuracy * n)}


def accuracies(inputs):
    """The accuracies of the judge of the features, its controls and, if it classifies, the network on one axis.

    None without features.
    """
    judge = lineage.judge(inputs)
    if judge is None:
        return None
    classifies, n = "evaluate" in inputs, inputs["data"].metrics["test"]
    names = {"made": how(inputs) if classifies else how(inputs).capitalize(), "judge": roles.JUDGES[judge].name}
    rows = {"evaluate": ("The network itself", f"no {names['judge']}")} if classifies else {}
    rows |= {str(Role(judge, kind)): row for kind, row in (roles.CLASSIFYING if classifies else roles.AUTOENCODER).items()}
    return intervals.chart([{"key": "own" if role == lineage.answering(inputs) else "", "name": name.format(**names),
                             "note": note, **intervals.share(inputs[role].metrics["accuracy"], n)}
                            for role, (name, note) in rows.items() if role in inputs])


def gain(inputs):
    """A paired comparison of the judge with the one of the untrained network's features; None without that control.

    won: number of images that only the trained network's features classify correctly; lost: that only the control does.
    """
    return _gain(inputs, RANDOM)


def gain_of_labels(inputs):
    """As `gain`, with the features of the encoder before labels trained it; None where they did not."""
    return _gain(inputs, START) if head(inputs) and not head(inputs)["frozen"] else None


def _gain(inputs, kind):
    judge = lineage.judge(inputs)
    control = str(Role(judge, kind))
    if control not in inputs:
        return None
    labels = inputs["data"].array("test_labels.npy")
    won, lost = metrics.won_and_lost(labels, *(inputs[role].array("predictions.npy") for role in (judge, control)))
    return {"won": won, "lost": lost, **intervals.told(intervals.paired(won, lost, len(labels)))}


# Pictures.

def samples(data):
    """A strip of the first SAMPLES training images for each class."""
    images, labels = data.array("train_images.npy"), np.asarray(data.array("train_labels.npy"))
    strips = []
    for label, name in enumerate(data.metrics["classes"]):
        rows = np.flatnonzero(labels == label)[:SAMPLES]
        if len(rows):
            strip = figures.tiles(images[rows], SAMPLES, gap=2)
            strips.append({"name": name, "count": len(rows), "image": figures.png_uri(strip)})
    return strips


def skipped(data):
    """{"count", "files": the first SKIPPED as {"file", "reason"}} of pictures that were skipped; None without any."""
    if not data.metrics.get("skipped"):
        return None
    return {"count": data.metrics["skipped"], "files": data.json("skipped.json")[:SKIPPED]}


def reconstructions(inputs):
    """Originals, reconstructions and differences as separate pictures; None if the network does not reconstruct."""
    if "reconstructions.npy" not in made_by(inputs).manifest["files"]:
        return None
    rebuilt = np.asarray(inputs["train"].array("reconstructions.npy"))[:PICTURES]
    originals = np.asarray(inputs["data"].array("test_images.npy")[:len(rebuilt)])
    classes, labels = inputs["data"].metrics["classes"], inputs["data"].array("test_labels.npy")
    shown, amplified = figures.differences(originals, rebuilt)
    off = np.abs(rebuilt.astype(np.int16) - originals)
    return {
        "gain": amplified,
        "off": float(off.mean()),
        "columns": [{"name": classes[labels[index]], "off": float(off[index].mean()),
                     "original": figures.png_uri(originals[index]), "rebuilt": figures.png_uri(rebuilt[index]),
                     "difference": figures.png_uri(shown[index])} for index in range(len(rebuilt))],
    }


def drawn(inputs):
    """The pictures decoded from draws of the prior, in one picture: {"count", "columns", "image"}; None without any."""
    if "train" not in inputs or "drawn.npy" not in inputs["train"].manifest["files"]:
        return None
    pictures = np.asarray(inputs["train"].array("drawn.npy"))
    return {"count": len(pictures), "columns": DRAWN_COLUMNS,
            "image": figures.png_uri(figures.tiles(pictures, DRAWN_COLUMNS, gap=2))}


def filters(made, of, atoms=None):
    """The filters of the first layer with weights in one picture; None if its input does not have the images' channels.

    made: the artifact with the weights; of: the networks.Network; atoms: the result of `atoms`. The units of a dense layer have
    a weight for every pixel and are shown as images.
    """
    layer = next(layer for layer in of.layers if layer.parameters)
    first = weights.read(made.path(weights.file_name(of)), of)[f"{layer.name}.weight"] if atoms is None else atoms
    height, width, channels = of.input_shape
    if layer.kind == "dense" and first.shape[1] == height * width * channels:
        first = first.reshape(-1, channels, height, width)
    if first.ndim != 4 or first.shape[1] not in (1, 3):
        return None
    shown = figures.filters(first)[:UNIT_LIMIT if layer.kind == "dense" else FILTER_LIMIT]
    size = shown.shape[1]
    columns = min(len(shown), 16 if len(shown) > UNIT_LIMIT else 8)
    # Enlarged by an integer factor here: a browser would draw some pixels of a scaled image wider than others.
    enlarged = np.kron(shown, np.ones((1, max(2, 24 // size), max(2, 24 // size), 1), np.uint8))
    return {"layer": layer.name, "dense": layer.kind == "dense", "fitted": atoms is not None, "colour": first.shape[1] == 3,
            "count": len(first), "shown": len(shown), "columns": columns, "size": " × ".join(map(str, shown.shape[1:3])),
            "image": figures.png_uri(figures.tiles(enlarged, columns, gap=8))}


def atoms(inputs):
    """The patches (filters, channels, kernel, kernel) to which the filters of a fitted first layer respond most.

    None if the layer was not fitted, or was trained afterwards.
    """
    if "patches" not in inputs or ("train" in inputs and not inputs["train"].metrics["parts"][-1]["frozen"]):
        return None
    return np.asarray(inputs["patches"].array("atoms.npy")).transpose(0, 3, 1, 2)


def mistakes(inputs):
    """Misclassified test images: {"count", "surest": whether ordered by probability, "shown"}; None if nothing was classified.

    Shown are those with the largest probability of the wrong class if the network classifies, else the first ones.
    """
    if verdict(inputs) is None:
        return None
    data, predictions = inputs["data"], np.asarray(verdict(inputs).array("predictions.npy"))
    images, labels, classes = data.array("test_images.npy"), data.array("test_labels.npy"), data.metrics["classes"]
    wrong, probability = np.flatnonzero(labels != predictions), None
    if "evaluate" in inputs:
        probability = np.asarray(inputs["evaluate"].array("probabilities.npy"))[np.arange(len(predictions)), predictions]
        wrong = wrong[np.argsort(-probability[wrong], kind="stable")]
    return {"count": len(wrong), "surest": probability is not None,
            "shown": [{"image": figures.png_uri(images[index]), "true": classes[labels[index]],
                       "named": classes[predictions[index]],
                       "sure": None if probability is None else _sure(probability[index])} for index in wrong[:MISTAKES]]}


def _sure(probability):
    return templates.percent(probability) if probability < 0.9995 else f"> {templates.percent(0.999)}"


# Training.

def passes(train, images):
    """The number of epochs, which may be fractional, over `images` training images; None if `train` is not a training."""
    if "steps" not in train.metrics:
        return None
    return train.metrics["steps"] / _steps_per_epoch(train, images)


BY = ("step", "epoch", "seconds")   # what the curves of a training can be drawn over


def loss_curve(inputs, average_image):
    """The training loss by step with that on the hold-out images after each epoch, if there are any, and a reference line.

    That is the loss of the average image, or without hold-out images the network's loss on test images. None if nothing was
    trained.
    """
    if "train" not in inputs:
        return None
    train = inputs["train"]
    level = None if average_image is None else ("average image", average_image)
    if "evaluate" in inputs:
        level = (_scored_images(inputs), inputs["evaluate"].metrics["loss"])
    sums = train.tensors("history.safetensors")["losses"] * batch_sizes(train, inputs["data"].metrics["train"])
    what = "cross-entropy" if "evaluate" in inputs else "mean squared error"
    return _curve(inputs, f"Loss, {what}", sums, charts.loss_axis, level, "{:.4g}".format, "held_out_losses")


def accuracy_curve(inputs):
    """The training accuracy by step, as in loss_curve; None if the network does not classify."""
    if "evaluate" not in inputs or "train" not in inputs:
        return None
    hits, tested = inputs["train"].tensors("history.safetensors")["hits"], headline(inputs)
    return _curve(inputs, "Accuracy", hits, charts.share_axis, (_scored_images(inputs), tested["value"]), templates.percent,
                  "held_out_hits")


def divergence_curve(inputs):
    """The divergence of the latent distributions from the prior by step; None if nothing was drawn."""
    if divergence(inputs) is None:
        return None
    train = inputs["train"]
    sums = train.tensors("history.safetensors")["divergences"] * batch_sizes(train, inputs["data"].metrics["train"])
    return _curve(inputs, "KL divergence, nats per image", sums, charts.loss_axis, None, "{:.4g}".format, None)


def divergence(inputs):
    """The mean divergence in each epoch, nats per image; None if nothing was drawn."""
    return inputs["train"].metrics.get("divergence") if "train" in inputs else None


def curves(inputs):
    """The points of the curves of the training, JSON-able: {"step", "loss"}, and "accuracy" or "divergence" if it has them.

    Values are means over the steps around each `step`, as the page draws them. None without any.
    """
    loss = loss_curve(inputs, None)
    if loss is None:
        return None
    shown = {"loss": loss, "accuracy": accuracy_curve(inputs), "divergence": divergence_curve(inputs)}
    return {"step": loss["data"]["series"][0]["x"],
            **{name: chart["data"]["series"][0]["y"] for name, chart in shown.items() if chart}}


def held_out(inputs):
    """What the training measured on hold-out images after each epoch, JSON-able; None without any.

    {"step": steps made, "loss", "accuracy": None if the network does not classify, "best_epoch": with the smallest loss, the
    first of equals, "patience", "stopped": whether the training ended early, "epochs_at_most", "seconds": of measuring}.
    """
    found = inputs["train"].metrics.get("held_out") if "train" in inputs else None
    if found is None:
        return None
    metrics, params = inputs["train"].metrics, inputs["train"].manifest["spec"]["params"]
    steps = inputs["train"].tensors("history.safetensors")["held_out_steps"]
    return {"step": steps.tolist(), **found, "patience": params["patience"],
            "epochs_at_most": metrics["epochs_at_most"], "stopped": metrics["epochs"] < metrics["epochs_at_most"]}


def loss_change(inputs):
    """The training loss of the first and of the last epoch, and by which share of the first it fell (less than 0: it rose).

    {"first", "last", "fell"}; None if nothing was trained or the first one is 0.
    """
    losses = inputs["train"].metrics["loss"] if "train" in inputs else [0]
    return {"first": losses[0], "last": losses[-1], "fell": 1 - losses[-1] / losses[0]} if losses[0] else None


def reconstruction_loss(inputs):
    """Mean squared error of the reconstructions, of normalised values: {"training": in the last epoch, "test": afterwards}.

    `training` is None for weights of a file that were not trained. None if nothing was reconstructed.
    """
    measured = next((inputs[role].metrics for role in ("train", "features") if role in inputs), {})
    if "reconstruction_loss" not in measured:
        return None
    return {"training": measured["loss"][-1] if "train" in inputs else None, "test": measured["reconstruction_loss"]}


def reference(inputs):
    """How far the final weights are from those that another rung has made from the same start, element by element.

    {"variant", "largest": |w - w_reference|, "tensor": where, "mean": of all elements}; None without such a training.
    """
    if "train_reference" not in inputs or "train" not in inputs:
        return None
    mine, other = (weights.of_artifact(inputs[role], network(inputs)) for role in ("train", "train_reference"))
    away = {name: np.abs(values.astype(np.float64) - other[name]) for name, values in mine.items()}
    tensor = max(away, key=lambda name: away[name].max())
    return {"variant": inputs["train_reference"].manifest["spec"]["params"]["variant"], "tensor": tensor,
            "largest": float(away[tensor].max()), "mean": float(np.concatenate([one.ravel() for one in away.values()]).mean())}


# First part of a metric -> its numbers in words; accuracies are percentages, others have four digits.
WORDS = {"seconds": templates.duration, "peak_memory_bytes": templates.size, "per_class": templates.percent,
         "layer_movement": templates.small_percent}


def target_rows(judged):
    """Rows of the table of targets (store/targets.py): [{"metric", "bound", "reached", "verdict"}]."""
    rows = []
    for target in judged:
        metric, (bound, value) = target["metric"], next((one, target[one]) for one in targets.BOUNDS if one in target)
        words = templates.percent if "accuracy" in metric else WORDS.get(metric.partition(".")[0], "{:.4g}".format)
        reached = target["reached"]
        rows.append({"metric": metric, "bound": f"{bound.replace('_', ' ')} {words(value)}",
                     "reached": "not measured" if reached is None else words(reached),
                     "verdict": "met" if target["met"] else "not met"})
    return rows


def _scored_images(inputs):
    return f"{metrics.scored_on(inputs['data'].manifest['spec']['params'])} images"


def _curve(inputs, title, sums, axis, level, text, measured):
    """A chart of the mean per image, from `sums` over the batch of each step; a point is the mean over several steps.

    level: (name, value) of a reference line or None; measured: name of the history of the hold-out images, whose curve takes
    the place of a reference line on the same images, or None. Returns a chart of charts.lines with "window", steps in a point,
    and "kind".
    """
    images, steps = inputs["data"].metrics["train"], len(sums)
    sizes, windows = batch_sizes(inputs["train"], images), _windows(steps)
    points = [((window.start + window.stop) / 2, float(sums[window].sum() / sizes[window].sum())) for window in windows]
    series = [{"name": "training", "label": "training", "series": 1, "points": points}]
    if found := held_out(inputs) if measured else None:
        values = inputs["train"].tensors("history.safetensors")[measured]
        values = values / inputs["data"].metrics["test"] if measured.endswith("hits") else values
        series.append({"name": "hold-out", "label": f"hold-out {text(values[-1])}", "series": 2,
                       "points": list(zip(found["step"], map(float, values), strict=True))})
    if level and not (found and level[0] == _scored_images(inputs)):
        name, value = level
        series.append({"name": name, "label": f"{name} {text(value)}", "series": "level",
                       "points": [(0, value), (steps, value)]})
    series = [{**one, "by": paces(inputs["train"], images, one["points"])} for one in series]
    y = axis([value for one in series for _, value in one["points"]], title)
    lengths = sorted({window.stop - window.start for window in windows})
    return {**charts.lines(f"Training: {title}", series, y, BY), "window": " or ".join(map(str, lengths)), "kind": y.kind}


def paces(train, images, points):
    """How BY is counted at points [(step, value)], as charts.lines takes it: steps, epochs, and measured seconds."""
    return [1, 1 / _steps_per_epoch(train, images), np.interp([step for step, _ in points], *_clock(train, images)).tolist()]


def _clock(train, images):
    """(steps, seconds): the number of steps made and the seconds of training, at the beginning and after each epoch.

    An epoch's share of all seconds is that of its measured passes; where none was measured, that of its steps.
    """
    per_epoch, steps = _steps_per_epoch(train, images), [0]
    for part in train.metrics["parts"]:   # each begins with an epoch of its own
        begun = steps[-1]
        steps += [begun + min(end, part["steps"]) for end in range(per_epoch, part["steps"] + per_epoch, per_epoch)]
    epochs = train.metrics["seconds_by_pass"]
    spent = [sum(seconds for name, seconds in epoch.items() if name != COPIES) for epoch in epochs]
    shares = np.cumsum([0, *(spent if sum(spent) else np.diff(steps))], dtype=np.float64)
    return steps, shares / shares[-1] * batch_sizes(train, images).sum() / train.metrics["images_per_second"]


def _windows(steps):
    """The steps as at most POINTS slices of nearly equal length, which is POINT_STEPS if there are enough steps."""
    length = max(1, min(POINT_STEPS, steps // 25), -(-steps // POINTS))
    count = -(-steps // length)
    return [slice(steps * i // count, steps * (i + 1) // count) for i in range(count)]


def _steps_per_epoch(train, images):
    return -(-images // train.manifest["spec"]["params"]["batch_size"])


def batch_sizes(train, images):
    """The number of images in each step's batch; the last batch of an epoch may be smaller."""
    batch = train.manifest["spec"]["params"]["batch_size"]
    sizes = np.full(train.metrics["steps"], batch)
    last = _steps_per_epoch(train, images)
    sizes[last - 1::last] = images - (last - 1) * batch
    return sizes


def average_image_loss(inputs):
    """The loss (mean squared error) of reconstructing every training image as the average image.

    None if the network does not reconstruct its input.
    """
    if "reconstructions.npy" not in made_by(inputs).manifest["files"]:
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


def movement(layers):
    """Bars of the weight change of each layer, in one list or, for many layers, by stage: [{"stage", "range", "bars"}].

    layers: name -> relative distance.
    """
    folded = templates.in_stages(layers) if len(layers) > LONG else [("", list(layers))]
    return [{"stage": stage, "count": len(names), "range": _range([layers[name] for name in names]),
             "bars": templates.bars({name: layers[name] for name in names}, templates.small_percent, max(layers.values()))}
            for stage, names in folded]


def _range(values):
    low, high = templates.small_percent(min(values)), templates.small_percent(max(values))
    return low if low == high else f"{low} to {high}"


# Classes.

def classes(inputs):
    """Bars of the accuracy by class, best first: {"rows", "ticks": [{"at", "text"}], "cut": where the bars begin}.

    Each row has a mark for the untrained encoder if there is that control. Where all accuracies are high, the axis does not
    begin at 0.
    """
    if verdict(inputs) is None:
        return None
    metrics = verdict(inputs).metrics
    role = str(Role(lineage.answering(inputs), RANDOM))   # none for a network that classifies
    control = inputs[role].metrics["per_class"] if role in inputs else {}
    found = {name: value for name, value in metrics["per_class"].items() if value is not None}
    least = min([*found.values(), *(control[name] for name in found if control)])
    cut = 0.0 if least < NEARLY else math.floor(20 * least - 1e-9) / 20 if least < 1 else NEARLY

    def place(value):
        return round(100 * (value - cut) / (1 - cut), 2)

    totals = dict(zip(metrics["per_class"], map(sum, metrics["confusion"]), strict=True))
    rows = [{"name": name, "value": value, "length": place(value), "text": templates.percent(value),
             "note": f"of {totals[name]:,}", "mark": place(control[name]) if control else None,
             "mark_text": templates.percent(control[name]) if control else None}
            for name, value in sorted(found.items(), key=lambda item: -item[1])]
    return {"rows": rows, "cut": cut, "ticks": [{"at": place(value / 100), "text": templates.percent(value / 100, 0)}
                                                for value, _ in charts.ticks(100 * cut, 100, 4)]}


def confusion(matrix, names):
    """Rows of cells with the strength of their colour in percent: the share of the row, of errors relative to the largest one.

    So two errors have colours in the ratio of their shares, and a single one of many images is nearly as pale as none. Of more
    than FEW_CLASSES classes those with the most errors are shown; `others`: what of a row was taken for a class without a
    column, None if there is none.
    """
    if matrix is None:
        return None
    rows, most, shown = [], most_mistaken(matrix), _most_errors(matrix)
    for true in shown:
        counts = matrix[true]
        total = sum(counts) or 1
        cells = [{"count": counts[named], "right": true == named, "named": names[named],
                  "strength": round(100 * counts[named] / total / (1 if true == named else most or 1))} for named in shown]
        others = None if len(shown) == len(matrix) else sum(counts) - sum(cell["count"] for cell in cells)
        rows.append({"name": names[true], "cells": cells, "total": sum(counts), "others": others})
    return rows


def _most_errors(matrix):
    """The classes in their order, of more than FEW_CLASSES as many with the most errors."""
    errors = [sum(counts) - counts[true] for true, counts in enumerate(matrix)]
    order = sorted(range(len(matrix)), key=lambda true: -errors[true])
    return sorted(order if len(matrix) <= FEW_CLASSES else order[:FEW_CLASSES])


def most_mistaken(matrix):
    """The largest share of a class that was taken for one other class."""
    return max((number / (sum(counts) or 1) for true, counts in enumerate(matrix) for named, number in enumerate(counts)
                if named != true), default=0)


def most_confused(inputs):
    """The largest numbers off the diagonal of the confusion matrix, largest first, with some of their images.

    [{"true", "named", "count", "of", "images"}], of: number of images of the true class. Single errors are left out.
    """
    score = verdict(inputs)
    if score is None:
        return []
    matrix, names = score.metrics["confusion"], inputs["data"].metrics["classes"]
    pairs = [(number, true, named) for true, row in enumerate(matrix) for named, number in enumerate(row)
             if true != named and number > 1]
    labels, predictions = inputs["data"].array("test_labels.npy"), score.array("predictions.npy")
    images, shown = inputs["data"].array("test_images.npy"), []
    for number, true, named in sorted(pairs, key=lambda pair: -pair[0])[:PAIRS]:
        rows = np.flatnonzero((labels == true) & (predictions == named))[:PAIR_IMAGES]
        shown.append({"true": names[true], "named": names[named], "count": number, "of": sum(matrix[true]),
                      "images": [figures.png_uri(images[row]) for row in rows]})
    return shown


# Work and layers.

# Kind of layer, except convolutions -> the category its time is reported under if it has an operation of its own.
LAYER_WORK = {"relu": "ReLU", "maxpool2d": "pooling", "upsample2d": "upsampling", "dense": "dense layers"}

FOUND_BY = {"kmeans": "k\u2011means", "random": "random patches"}   # a hyphen without a line break
WHITENINGS = {"zca": "ZCA", "pca": "PCA", "rotation": "PCA, unscaled", "none": "none"}


def fit(inputs):
    """How each layer was fitted: {"layers", "decoder", "joint", "divided"}; None without a fit.

    decoder, joint: epochs in words of the training of the decoder alone and of all layers, '' for none; divided: whether
    patches were divided by their contrast.
    """
    if "patches" not in inputs:
        return None
    rows = [{**row, "whitening": WHITENINGS[row["whitening"]], "filters": FOUND_BY.get(row["atoms"], "none"),
             "kept": "" if row["explained"] == 1 else templates.percent(row["explained"]),
             "iterations": len(row["objective"])} for row in inputs["patches"].metrics["layers"]]
    parts = inputs["train"].metrics["parts"] if "train" in inputs else []
    return {"layers": rows, "decoder": _lengths(parts[:1]), "joint": _lengths(parts[1:]),
            "divided": any(layer.kind == "local_contrast" for layer in network(inputs).layers)}


def _lengths(parts):
    return ", ".join(f"{part['epochs']} epoch{'s' if part['epochs'] != 1 else ''}" for part in parts)


def spent(metrics):
    """Operation -> seconds of the training or the fit, without the copies of images, which run beside the operations."""
    return {name: value for name, value in metrics["seconds_by_operation"].items() if value > 0 and name != COPIES}


def copies(metrics):
    """{"took", "waited", "hidden"}: texts on the copies of streamed images; None if none was measured.

    took: the time of the copies; waited: the part of it in which nothing else ran; hidden: the share of the rest.
    """
    took, waited = (metrics["seconds_by_operation"].get(name, 0.0) for name in (COPIES, WAITING))
    if not took:
        return None
    return {"took": templates.duration(took), "waited": templates.duration(waited),
            "hidden": templates.percent(1 - min(1, waited / took))}


PASSES = ("load", "forward", "recompute", "backward", "update", COPIES, WAITING)


def passes_by_epoch(train):
    """{"heads", "rows"}: the seconds of each pass in each epoch and, last, in all; None if none were measured."""
    epochs = train.metrics.get("seconds_by_pass", [])
    heads = [name for name in PASSES if any(name in epoch for epoch in epochs)]
    total = {name: sum(epoch.get(name, 0.0) for epoch in epochs) for name in heads}
    named = [*((str(number), epoch) for number, epoch in enumerate(epochs, 1)), ("all", total)]
    rows = [{"name": name, "cells": [templates.duration(of.get(head, 0.0)) for head in heads]} for name, of in named]
    return {"heads": heads, "rows": rows} if heads else None


def recomputing(train):
    """What recompute saved and cost: {"kept", "shared", "taken": bytes, "seconds", "share": of all passes, both texts or None}.

    None for a training without it.
    """
    if not (saved := train.metrics.get("recompute")):
        return None
    passes = [{name: one for name, one in epoch.items() if name != COPIES} for epoch in train.metrics["seconds_by_pass"]]
    again, total = sum(epoch.get("recompute", 0.0) for epoch in passes), sum(sum(epoch.values()) for epoch in passes)
    spent = {"seconds": templates.duration(again), "share": templates.percent(again / total)} if again else {"seconds": None}
    return {**saved, **spent}


def operation_times(train):
    """Bars of the seconds of each operation of the training or the fit; None if there was neither."""
    if "seconds_by_operation" not in train.metrics:
        return None
    values = spent(train.metrics)
    total = sum(values.values())
    rows = templates.bars(dict(sorted(values.items(), key=lambda item: -item[1])), templates.duration)
    for row in rows:
        row["note"] = templates.percent(values[row["name"]] / total)
    kinds = {layer["kind"] for layer in train.metrics["network"]}
    fused = [name for kind, name in LAYER_WORK.items() if kind in kinds and name not in values]
    return {"rows": rows, "total": total, "fused": fused, "copies": copies(train.metrics)}


def layers(metrics):
    """The network's layers, in one part or, if there are many, one per stage: {"parts", "parameters", "macs", "count"}.

    metrics: of an artifact with weights; initial weights have no kernels.
    `rows` of a layer: number of layers, from this one on, that its kernel computes together (0 inside such a group).
    """
    every = {layer["layer"]: layer for layer in metrics["network"]}
    folded = templates.in_stages(every) if len(every) > LONG else [("", list(every))]
    parts = [_part(stage, [every[name] for name in names], metrics.get("kernels", [])) for stage, names in folded]
    templates.add_cells(parts, {"parameters": templates.count, "macs": templates.large})
    return {"parts": parts, "count": len(every), **_totals(every.values())}


def _part(stage, rows, kernels):
    left, shown = 0, []   # left: remaining layers of the current group
    for at, layer in enumerate(rows):
        kernel, count = next(((one["kernel"], len(one["layer"].split(" + "))) for one in kernels
                              if one["layer"].split(" + ")[0] == layer["layer"]), ("", 0 if left else 1))
        count = min(count, len(rows) - at)
        left = count - 1 if count else left - 1
        shown.append({**layer, "kernel": kernel, "rows": count, "shape": templates.shape(layer["output"])})
    names = [layer["layer"] for layer in rows]
    return {"name": stage or " to ".join(dict.fromkeys((names[0], names[-1]))), "stage": stage, "rows": shown,
            "layers": len(rows), "blocks": len(templates.in_blocks(names)), "shape": templates.shape(rows[-1]["output"]),
            **_totals(rows)}


def _totals(rows):
    return {name: sum(layer[name] for layer in rows) for name in ("parameters", "macs")}
