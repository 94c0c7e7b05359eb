"""The report's section on the training: its curves, what was measured beside it, and how far the
weights moved.
"""

import math

import numpy as np

from ladder.network import weights
from ladder.pages import charts, curves, facts, templates

POINTS, POINT_STEPS = 100, 10  # maximum points of a curve, and steps averaged in each
# maximum rows of the table by epoch, and points of the curve of the validation images
EPOCHS = 1000
ROWS_AT_ONCE = 1000


def section(inputs, numbers):
    if "train" not in inputs:
        return None
    train, network = inputs["train"], facts.network(inputs)
    average_image = numbers["average_image_loss"]
    return {
        "loss_curve": loss_curve(inputs, average_image),
        "accuracy_curve": accuracy_curve(inputs),
        "divergence_curve": divergence_curve(inputs),
        "average_image": average_image,
        "error": (numbers["reconstruction_loss"] or {}).get("test", numbers["loss"][-1]),
        "passes": numbers["passes"],
        "epochs": spaced(len(numbers["loss"])),
        "misfits": train.metrics["misfits"],
        "movement": movement(numbers["layer_movement"]),
        "code": network.code,
        "image_values": math.prod(network.input_shape),
        "draws": network.draws,
    }


# The curves.


def loss_curve(inputs, average_image):
    """The training loss by step with that on the validation images after each epoch, if there are
    any, and a reference line.

    That is the loss of the average image, or without validation images the network's loss on test
    images. None if nothing was trained.
    """
    if "train" not in inputs:
        return None
    level = None if average_image is None else ("average image", average_image)
    title = "Loss, mean squared error"
    if "evaluate" in inputs:
        level = _scored_images(inputs), inputs["evaluate"].metrics["loss"]
        title = "Loss, cross-entropy"
    return _curve(
        inputs,
        title,
        _sums(inputs, "losses"),
        charts.loss_axis,
        level,
        "{:.4g}".format,
        "validation_losses",
    )


def accuracy_curve(inputs):
    """The training accuracy by step, as in loss_curve; None if the network does not classify."""
    if "evaluate" not in inputs or "train" not in inputs:
        return None
    level = (_scored_images(inputs), inputs["evaluate"].metrics["accuracy"])
    return _curve(
        inputs,
        "Accuracy",
        curves.history(inputs["train"], "hits"),
        charts.share_axis,
        level,
        templates.percent,
        "validation_hits",
    )


def divergence_curve(inputs):
    """The divergence of the latent distributions from the prior by step; None without these
    distributions.
    """
    if divergence(inputs) is None:
        return None
    return _curve(
        inputs,
        "KL divergence, nats per image",
        _sums(inputs, "divergences"),
        charts.loss_axis,
        None,
        "{:.4g}".format,
        None,
    )


def _sums(inputs, name):
    """The sum over the images of each step's batch, from their mean."""
    return curves.history(inputs["train"], name) * curves.batch_sizes(
        inputs["train"], inputs["data"].metrics["train"]
    )


def _scored_images(inputs):
    return f"{facts.scored_on(inputs)} images"


def _curve(inputs, title, sums, axis, level, text, measured):
    """A chart of the mean per image, from `sums` over the batch of each step; a point is the mean
    over several steps.

    level: (name, value) of a reference line or None; measured: name of the history of the
    validation images, whose curve takes the place of a reference line on the same images, or None.
    Returns {"chart": of charts.lines, "window": steps in a point}.
    """
    train, images, steps = inputs["train"], inputs["data"].metrics["train"], len(sums)
    sizes, windows = curves.batch_sizes(train, images), _windows(steps)
    points = [
        ((window.start + window.stop) / 2, float(sums[window].sum() / sizes[window].sum()))
        for window in windows
    ]
    series = [{"name": "training", "label": "training", "colour": 1, "points": points}]
    if measurements := validation_curve(inputs) if measured else None:
        values = curves.history(train, measured)
        values = values / inputs["data"].metrics["test"] if measured.endswith("hits") else values
        series.append(
            {
                "name": "validation",
                "label": f"validation {text(values[-1])}",
                "colour": 2,
                "points": [
                    (measurements["step"][epoch], float(values[epoch]))
                    for epoch in spaced(len(values))
                ],
            }
        )
    if level and not (measurements and level[0] == _scored_images(inputs)):
        name, value = level
        series.append(
            {
                "name": name,
                "label": f"{name} {text(value)}",
                "colour": "level",
                "points": [(0, value), (steps, value)],
            }
        )
    series = [{**line, "by": curves.paces(train, images, line["points"])} for line in series]
    lengths = sorted({window.stop - window.start for window in windows})
    return {
        "chart": charts.lines(f"Training: {title}", series, axis(title), curves.BY),
        "window": " or ".join(map(str, lengths)),
    }


def _windows(steps):
    """The steps as at most POINTS slices of nearly equal length, which is POINT_STEPS if there are
    enough steps.
    """
    length = max(1, min(POINT_STEPS, steps // 25), -(-steps // POINTS))
    count = -(-steps // length)
    return [slice(steps * i // count, steps * (i + 1) // count) for i in range(count)]


def spaced(count):
    """At most EPOCHS numbers below `count`, evenly spaced, the last one among them."""
    every = math.ceil(count / EPOCHS)
    return range((count - 1) % every, count, every)


# Numbers, JSON-able, for the summary too.


def curve_points(inputs):
    """The points of the curves: {"step", "loss"}, and "accuracy" or "divergence" if the training
    has them.

    Values are means over the steps around each `step`, as the page draws them. None without any.
    """
    loss = loss_curve(inputs, None)
    if loss is None:
        return None
    shown = {
        "loss": loss,
        "accuracy": accuracy_curve(inputs),
        "divergence": divergence_curve(inputs),
    }
    return {
        "step": loss["chart"]["series"][0]["x"],
        **{name: chart["chart"]["series"][0]["y"] for name, chart in shown.items() if chart},
    }


def passes(inputs):
    """The passes over the training images, where the last may be a part of one; None if nothing was
    trained.
    """
    if "train" not in inputs:
        return None
    train = inputs["train"]
    return train.metrics["steps"] / curves.steps_per_epoch(train, inputs["data"].metrics["train"])


def divergence(inputs):
    """The mean divergence in each epoch, nats per image; None without latent distributions."""
    return inputs["train"].metrics.get("divergence") if "train" in inputs else None


def validation_curve(inputs):
    """What the training measured on validation images after each epoch; None without any.

    {"step": steps made, "loss", "accuracy": None if the network does not classify, "best_epoch":
    with the smallest loss, the first of equals, "patience", "stopped": whether the training ended
    early, "epochs_at_most", "seconds": of measuring}.
    """
    if "train" not in inputs or inputs["train"].metrics.get("validation_curve") is None:
        return None
    metrics, steps = inputs["train"].metrics, curves.history(inputs["train"], "validation_steps")
    return {
        "step": steps.tolist(),
        **metrics["validation_curve"],
        "patience": facts.params(inputs, "train")["patience"],
        "epochs_at_most": metrics["epochs_at_most"],
        "stopped": metrics["epochs"] < metrics["epochs_at_most"],
    }


def loss_change(inputs):
    """The training loss of the first and of the last epoch, and by which share of the first it fell
    (less than 0: it rose).

    {"first", "last", "fell"}; None if nothing was trained or the first one is 0.
    """
    losses = inputs["train"].metrics["loss"] if "train" in inputs else [0]
    return (
        {"first": losses[0], "last": losses[-1], "fell": 1 - losses[-1] / losses[0]}
        if losses[0]
        else None
    )


def reconstruction_loss(inputs):
    """Mean squared error of the reconstructions, of normalised values: {"training": in the last
    epoch, "test": afterwards}.

    `training` is None for weights of a file that were not trained. None if nothing was
    reconstructed.
    """
    measured = next((inputs[role].metrics for role in ("train", "features") if role in inputs), {})
    if "reconstruction_loss" not in measured:
        return None
    return {
        "training": measured["loss"][-1] if "train" in inputs else None,
        "test": measured["reconstruction_loss"],
    }


def reference(inputs):
    """How far the final weights are from those that another rung has made from the same start,
    element by element.

    {"variant", "largest": |w - w_reference|, "tensor": where, "mean": of all elements}; None
    without such a training.
    """
    if "train_reference" not in inputs or "train" not in inputs:
        return None
    own, other = (
        weights.of_artifact(inputs[role], facts.network(inputs))
        for role in ("train", "train_reference")
    )
    away = {name: np.abs(values.astype(np.float64) - other[name]) for name, values in own.items()}
    tensor = max(away, key=lambda name: away[name].max())
    every = np.concatenate([part.ravel() for part in away.values()])
    return {
        "variant": facts.params(inputs, "train_reference")["variant"],
        "tensor": tensor,
        "largest": float(away[tensor].max()),
        "mean": float(every.mean()),
    }


def average_image_loss(inputs):
    """The loss (mean squared error) of reconstructing every training image as the average image.

    None if the network does not reconstruct its input.
    """
    if not facts.reconstructs(inputs):
        return None
    images = inputs["normalized"].array("train.npy")
    total, squares = (np.zeros(images.shape[1:]) for _ in range(2))
    for start in range(0, len(images), ROWS_AT_ONCE):
        block = images[start : start + ROWS_AT_ONCE].astype(np.float64)
        total += block.sum(axis=0)
        squares += np.square(block).sum(axis=0)
    variance = squares / len(images) - np.square(total / len(images))
    scale = inputs["normalized"].tensors("statistics.safetensors")["scale"]
    return float((variance * np.square(scale)).mean())


# The weights.


def movement(layers):
    """Bars of the weight change of each layer, in one list or, for many layers, by stage:
    [{"stage", "range", "bars"}].

    layers: name -> relative distance.
    """
    return [
        {
            "stage": stage,
            "count": len(names),
            "range": _range([layers[name] for name in names]),
            "bars": templates.bars(
                {name: layers[name] for name in names},
                templates.small_percent,
                max(layers.values()),
            ),
        }
        for stage, names in templates.folded(layers)
    ]


def _range(values):
    low, high = templates.small_percent(min(values)), templates.small_percent(max(values))
    return low if low == high else f"{low} to {high}"
