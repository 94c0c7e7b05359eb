"""Predictions for the user's own pictures: the page, the JSON, the CSV, and the HTML of a single
prediction.
"""

import base64
import dataclasses
import io
import os

import numpy as np

from ladder.data import names as picture_names
from ladder.data.reading import pictures
from ladder.pages import figures, output, roles, templates
from ladder.store import lineage

SHOWN = 5  # classes with a bar
SCORES = {
    "evaluate": "probabilities",
    "svm": "votes of the SVM",
    "ridge": "scores of kernel ridge regression",
}
MAPS = 12  # maps of the first layer shown, the strongest ones
CARDS = 40  # pictures shown in full, those with the smallest leads; the overview has all
# leads below these are a close call: of an SVM's margin, of a score or probability
CLOSE_VOTES, CLOSE = 0.5, 0.2


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A file without a prediction, and the reason."""

    name: str
    reason: str


def answers(predictor, taken):
    """A dict for each pictures.Picture of `taken`, JSON-able except the keys with an underscore:
    _picture; _rebuilt, the reconstruction (uint8 or None); _maps, what the first layer makes of it
    (float32 (h, w, maps) or None).
    """
    if not taken:
        return []
    images = np.stack([picture.pixels for picture in taken])
    answer, maps = predictor.answer(images), predictor.first_maps(images)
    data, names = predictor.inputs["data"], predictor.classes
    labels, files = data.array("train_labels.npy"), picture_names.read(data, "train")
    return [
        {
            "file": picture.name,
            "class": names[answer.classes[at]],
            "score": float(answer.scores[at][answer.classes[at]]),
            "scores": dict(zip(names, answer.scores[at].tolist(), strict=True)),
            "margins": None if answer.margins is None else _margins(names, answer.margins[at]),
            "nearest": [
                {
                    "row": int(row),
                    "class": names[labels[row]],
                    "distance": float(distance),
                    **({"file": files[row]} if files else {}),
                }
                for row, distance in zip(answer.nearest[at], answer.distances[at], strict=True)
            ],
            "done": list(picture.remarks),
            "_picture": picture,
            "_rebuilt": None if answer.rebuilt is None else answer.rebuilt[at],
            "_layer": maps and maps[0],
            "_maps": maps and maps[1][at],
        }
        for at, picture in enumerate(taken)
    ]


def _margins(names, values):
    """Class -> margin of the answer against it, the closest class first."""
    margins = {
        name: float(value) for name, value in zip(names, values, strict=True) if not np.isnan(value)
    }
    return dict(sorted(margins.items(), key=lambda item: item[1]))


# For programs.


def facts(predictor):
    """Facts about the model, JSON-able."""
    return {
        "dataset": predictor.dataset,
        "network": predictor.network.name,
        "classes": list(predictor.classes),
        "answered_by": predictor.answered_by,
        "scores": SCORES[predictor.answered_by],
        "images_per_decision": predictor.images_per_decision,
        "test_accuracy": predictor.answering.metrics["accuracy"],
        "nearest": {"layer": predictor.layer, "training_images": predictor.compared},
        "fitted": pictures.rule(predictor.dataset, predictor.network.input_shape),
        "versions": {role: artifact.version for role, artifact in predictor.inputs.items()},
    }


def summary(predictor, answered, skipped):
    """The content of predictions.json."""
    return {
        "model": facts(predictor),
        "pictures": [
            {key: value for key, value in answer.items() if not key.startswith("_")}
            for answer in answered
        ],
        "skipped": [dataclasses.asdict(file) for file in skipped],
    }


def csv_text(predictor, answered, skipped):
    """A line for each picture: file, class, score, scores of all classes, row, class and (of one's
    own) file of the nearest image, or the reason why it was skipped."""
    scores = {name: f"score_{name}" for name in predictor.classes}
    keys = ["row", "class", *(["file"] if answered and "file" in answered[0]["nearest"][0] else [])]
    lines = [
        {
            **answer,
            **{scores[name]: score for name, score in answer["scores"].items()},
            **{f"nearest_{key}": answer["nearest"][0][key] for key in keys},
        }
        for answer in answered
    ]
    return output.csv_text(
        [
            "file",
            "class",
            "score",
            *scores.values(),
            *(f"nearest_{key}" for key in keys),
            "skipped",
        ],
        [*lines, *({"file": file.name, "skipped": file.reason} for file in skipped)],
    )


# For people.


def page(predictor, answered, skipped, left_out):
    """The page as one HTML text; left_out: names of files in the folders that do not look like
    pictures.
    """
    folder = _common_folder(
        [answer["file"] for answer in answered] + [file.name for file in skipped] + left_out
    )

    def below(name):
        return os.path.relpath(name, folder) if folder else name

    order = sorted(range(len(answered)), key=lambda at: _lead(answered[at]))
    return templates.render(
        "predictions.html",
        {
            **context(predictor),
            "up": "",
            "folder": folder,
            "count": len(answered),
            "answers": [
                {**shown(predictor, answered[at], below(answered[at]["file"])), "at": at}
                for at in sorted(order[:CARDS])
            ],
            "overview": _overview(predictor, answered, order[:CARDS], below)
            if len(answered) > 1
            else None,
            "skipped": [Skipped(below(file.name), file.reason) for file in skipped],
            "left_out": list(map(below, left_out)),
        },
    )


def _overview(predictor, answered, cards, below):
    """Every picture as the network sees it by its class: {"sheet": as figures.sheet, "classes":
    [{"name", "pictures"}]}.

    The class of most pictures comes first, and in it the smallest lead; cards: numbers of those
    that are also shown in full.
    """
    classes = {}
    for at in sorted(range(len(answered)), key=lambda at: _lead(answered[at])):
        answer = answered[at]
        classes.setdefault(answer["class"], []).append(
            {
                "at": at,
                "name": below(answer["file"]),
                "close": _is_close(answer, predictor.votes),
                "card": at in cards,
                "sure": _SURE[predictor.answered_by](answer["score"], predictor.votes),
            }
        )
    return {
        "sheet": figures.sheet(np.stack([answer["_picture"].pixels for answer in answered])),
        "classes": [
            {"name": name, "pictures": pictures}
            for name, pictures in sorted(classes.items(), key=lambda item: -len(item[1]))
        ],
    }


def _common_folder(names):
    """The folder above all these paths; '' if there is none."""
    folders = [os.path.dirname(name) for name in names]
    return (
        os.path.commonpath(folders)
        if len({os.path.isabs(folder) for folder in folders}) == 1
        else ""
    )


def fragment(predictor, answer):
    """The HTML of a single prediction."""
    return templates.render("prediction.html", {"answer": shown(predictor, answer, answer["file"])})


def context(predictor):
    """The variables about the model that all pages with predictions need."""
    known = facts(predictor)
    return {
        "model": {
            **known,
            "title": _title(predictor.network),
            "sentence": _sentence(known, predictor),
        },
        "tested_on": len(predictor.inputs["data"].array("test_labels.npy")),
        "votes": predictor.votes,
        "rebuilds": predictor.network.loss == "mse",
        "all_compared": predictor.compared == predictor.inputs["data"].metrics["train"],
    }


def _title(network):
    return templates.network_title(network.name, bool(network.draws))


def _sentence(known, predictor):
    title, how = _title(predictor.network), _weights(predictor.inputs, known["dataset"])
    if predictor.network.classifies:
        return f"{title}, {how}, classifies the pictures."
    return f"{title}, {how}, computes features, and {roles.PRIMARY[predictor.answered_by].a} classifies them."


def _weights(inputs, dataset):
    """Where the network's weights come from, in words."""
    if "train" in inputs:
        return f"trained on {templates.dataset_title(dataset)}"
    if "patches" in inputs:
        return f"fitted to patches of {templates.dataset_title(dataset)}"
    file = lineage.start_file(inputs["initial"].manifest)
    return (
        f"not trained, with the weights of {file['file']}"
        if file
        else "not trained, with random weights"
    )


def shown(predictor, answer, name):
    """A prediction as the templates take it, with this name of the picture."""
    picture, images = answer["_picture"], predictor.inputs["data"].array("train_images.npy")
    return {
        **answer,
        "name": name,
        "sure": _SURE[predictor.answered_by](answer["score"], predictor.votes),
        "bars": _bars(answer, predictor.votes),
        "close": _is_close(answer, predictor.votes),
        "layer": answer["_layer"],
        "maps": None if answer["_maps"] is None else figures.png_uri(maps_picture(answer["_maps"])),
        "original": _jpeg_uri(picture.original),
        "seen": figures.png_uri(picture.pixels),
        "rebuilt": None if answer["_rebuilt"] is None else figures.png_uri(answer["_rebuilt"]),
        "off": None if answer["_rebuilt"] is None else _off(answer["_rebuilt"], picture.pixels),
        "size": " × ".join(map(str, picture.pixels.shape[1::-1])),
        "neighbours": [
            {**neighbour, "image": figures.png_uri(images[neighbour["row"]])}
            for neighbour in answer["nearest"]
        ],
    }


def _bars(answer, votes):
    """Bars of the scores of the best classes, the answer first: votes of an SVM, with its margin
    against each, else scores.
    """
    margins = answer["margins"] or {}
    order = sorted(
        answer["scores"],
        key=lambda name: (name != answer["class"], -answer["scores"][name], margins.get(name, 0)),
    )
    best = {name: answer["scores"][name] for name in order[:SHOWN]}
    text = (
        (lambda score: f"{score:.0f} of {votes}")
        if votes
        else "{:.2f}".format
        if margins
        else templates.sure
    )
    rows = templates.bars(best, text, votes or max(1, *best.values()))
    return [
        {
            **row,
            "length": max(0, row["length"]),
            **(
                {"note": f"behind by {margins[row['name']]:.2f}" if row["name"] in margins else ""}
                if margins
                else {}
            ),
        }
        for row in rows
    ]


def _is_close(answer, votes):
    """Whether the answer leads only just: an SVM's margin below CLOSE_VOTES, or a lead in score or
    probability below CLOSE.
    """
    return _lead(answer) < (CLOSE_VOTES if answer["margins"] and votes else CLOSE)


def _lead(answer):
    """By how much the answer leads: in margin where there are margins, else in score or
    probability.
    """
    if answer["margins"]:
        return min(answer["margins"].values())
    first, second, *_ = sorted(answer["scores"].values(), reverse=True)
    return first - second


def maps_picture(maps):
    """The MAPS strongest of maps (h, w, count) side by side, uint8 (H, W, 4), two rows; each is
    white at its largest value.
    """
    order = np.argsort(-np.abs(maps).mean(axis=(0, 1)), kind="stable")[:MAPS]
    shown = np.maximum(maps[..., order], 0).transpose(2, 0, 1)
    scaled = shown / np.maximum(shown.max(axis=(1, 2), keepdims=True), 1e-12)
    return figures.tiles(
        np.rint(255 * scaled).astype(np.uint8)[..., None], -(-len(order) // 2), gap=1
    )


_SURE = {
    "evaluate": lambda score, votes: templates.sure(score),
    "svm": lambda score, votes: f"{score:.0f} of {votes} decisions",
    "ridge": lambda score, votes: f"score {score:.2f}",
}


def _off(rebuilt, pixels):
    return float(np.abs(rebuilt.astype(np.int16) - pixels).mean())


def _jpeg_uri(image):
    file = io.BytesIO()
    image.save(file, "JPEG", quality=88)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
