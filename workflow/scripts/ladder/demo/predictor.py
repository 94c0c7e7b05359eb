"""Predictions of a run's model for any image: class, scores, reconstruction, nearest training
images.
"""

import dataclasses
import functools

import numpy as np

from ladder.arithmetic import arrays
from ladder.classifiers import decisions, kernel_functions, metrics, ridge, scoring, svm
from ladder.data.normalization import Statistics
from ladder.errors import UserError
from ladder.features import features, mirrored, shifts
from ladder.network import networks
from ladder.progress import log
from ladder.rungs import catalog
from ladder.store import lineage
from ladder.training.inference import Inference

NEAREST = 6  # nearest training images returned for an image
COMPARED = 5000  # training images whose features are computed if no artifact has them
QUERIES = 64  # images compared with the training images at a time
ROWS = 2000  # training images at a time


@dataclasses.dataclass(frozen=True)
class Answers:
    """Predictions for N images.

    classes    int64 (N,), indices of classes
    scores     float64 (N, classes): the probabilities of a network that classifies, the votes of an
               SVM, or the scores of kernel ridge regression (-1 for classes without training
               images)
    margins    float64 (N, classes): the margin of the predicted class against each other one, the
               SVM's or the difference of the scores (NaN against itself and classes without
               training images); None if the network classifies
    rebuilt    uint8 (N, H, W, C), the reconstructions; None if the network does not reconstruct
    nearest    int64 (N, up to NEAREST), rows of the nearest training images, nearest first
    distances  float64, their Euclidean distances
    """

    classes: np.ndarray
    scores: np.ndarray
    margins: np.ndarray | None
    rebuilt: np.ndarray | None
    nearest: np.ndarray
    distances: np.ndarray

    def __len__(self):
        return len(self.classes)


class SvmClassifier:
    """The class, scores and margins by the SVM of an artifact."""

    def __init__(self, artifact, training):
        self.machine = svm.load(artifact.path("model.safetensors"))
        self.classes, self.votes = self.machine.classes, len(self.machine.classes) - 1

    def scores_and_margins(self, encoded, threads):
        """(votes, margins of the class with the most) (M, k) by mean decisions.

        encoded: [(feature vectors (M, D), their odd part, which the SVM does not read)] of the
        images and of each shifted copy.
        """
        vectors, *shifted = (even for even, _ in encoded)
        decided = np.concatenate(svm.decision_blocks(self.machine, vectors, threads, shifted))
        votes = decisions.votes(decided, len(self.classes))
        return votes, svm.margins(self.machine, decided, np.argmax(votes, axis=1))


class RidgeClassifier:
    """The class, scores and margins by the kernel ridge regression of an artifact, fitted to
    `training` (N, D + odd).
    """

    votes = None

    def __init__(self, artifact, training):
        self.model = ridge.load(artifact.path("model.safetensors"), training)
        self.classes = self.model.classes

    def scores_and_margins(self, encoded, threads):
        """(mean scores, the highest one minus each) (M, k) for `encoded`, as SvmClassifier takes
        it.
        """
        rows, *shifted = (np.concatenate(parts, axis=1) for parts in encoded)
        scores = ridge.scores(self.model, rows, arrays.NumPy(threads), shifted)
        return scores, scores.max(axis=1, keepdims=True) - scores


CLASSIFIERS = {"svm": SvmClassifier, "ridge": RidgeClassifier}
ABSENT = {"svm": 0, "ridge": -1}  # the score of a class without training images


class Predictor:
    """inputs: role -> artifacts.Artifact, for chains.prediction_roles of a chain; multiplier: the
    run's test_multiplier.

    network      networks.Network
    classes      their names
    answering    the artifact with the test accuracy
    answered_by  its stage, evaluate, ridge or svm
    layer        the layer whose output the distances compare
    compared     number of training images compared with

    Raises UserError if this machine cannot run the rung of the run, and for damaged artifacts.
    """

    def __init__(self, inputs, threads, data_residency="auto", multiplier="exact"):
        self.inputs, self._threads = inputs, threads
        self._options = {"data_residency": data_residency, "multiplier": multiplier}
        self._trained = next(
            inputs[role] for role in ("train", "patches", "initial") if role in inputs
        )
        self.network = networks.from_params(self._trained.manifest["spec"]["params"])
        self.dataset = inputs["data"].manifest["spec"]["params"]["dataset"]
        self.classes = inputs["data"].metrics["classes"]
        self.answered_by = lineage.answering(inputs)
        self.answering = inputs[self.answered_by]
        self._offsets = shifts.offsets(
            self.answering.manifest["spec"]["params"].get("classify_shifts", "none")
        )
        self._statistics = Statistics.load(inputs["normalized"])
        self._tested = (self.answering if self.network.classifies else inputs["features"]).manifest[
            "spec"
        ]["params"]
        self._whole = (
            self._model(self._tested, self._trained, self._statistics)
            if self.network.trains
            else None
        )
        if "features" in inputs:
            encoded = inputs.get("joined", inputs["features"])
            answered = self.answering.manifest["spec"]["params"]
            labelled = scoring.classified(inputs["data"], answered)
            self._encode, training = self._encoder(encoded), encoded.array("train.npy")[:labelled]
            odd = mirrored.odd_part(encoded, "train")[:labelled]
            self.layer = inputs["features"].manifest["spec"]["params"]["features_layer"]
        else:
            self.layer, images = (
                self.network.features,
                inputs["data"].array("train_images.npy")[:COMPARED],
            )
            self._encode = self._layer_encoder()
            log.info("features of %d training images, to find the nearest among them", len(images))
            training, odd = self._encode(images)
        whole = np.concatenate([training, odd], axis=1) if odd.shape[1] else training
        self._primary_classifier = (
            None
            if self.network.classifies
            else CLASSIFIERS[self.answered_by](self.answering, whole)
        )
        self.compared = len(training)
        self._neighbours = Neighbours(training)

    def _model(self, params, artifact, statistics, until=None):
        """The Inference for the parameters of a stage, with the weights of an artifact."""
        if reason := catalog.unavailable(params["variant"]):
            raise UserError(reason)
        return Inference.load(params, artifact, statistics, self._threads, self._options, until)

    def _encoder(self, artifact):
        """A function: uint8 images, offset of their copies -> float32 (N, D) and (N, D or 0), the
        features of an artifact `features` or `joined` and their odd part."""
        spec, artifacts = (
            artifact.manifest["spec"],
            {entry.version: entry for entry in self.inputs.values()},
        )
        params = spec["params"]
        if spec["stage"] == "joined":
            weighted = [
                (np.float32(weight), self._encoder(artifacts[spec["parents"][f"part{number}"]]))
                for number, weight in enumerate(params["weights"], 1)
            ]

            def join(images, offset=(0, 0)):
                parts = [
                    [weight * part for part in encode(images, offset)]
                    for weight, encode in weighted
                ]
                return tuple(np.concatenate(part, axis=1) for part in zip(*parts, strict=True))

            return join
        statistics = Statistics.load(artifacts[spec["parents"]["normalized"]])
        encoder = self._model(
            params, artifacts[spec["parents"]["weights"]], statistics, params["features_layer"]
        )
        transform = features.FeatureTransform.from_params(params, artifact.tensors(features.FILE))

        def encode(images, offset=(0, 0)):
            rows = shifts.Shifted(stored(images, statistics), offset)
            blocks = features.blocks(encoder, rows, transform, arrays.NumPy(self._threads))
            rows, width = (
                np.concatenate([block.copy() for _, block in blocks]),
                artifact.metrics["dimensions"],
            )
            return rows[:, :width], rows[:, width:]

        return encode

    def _layer_encoder(self):
        """As _encoder, for the last layer before the scores of a network that classifies."""
        model = self._model(self._tested, self._trained, self._statistics, self.layer)

        def encode(images):
            values = self._outputs(model, images).reshape(len(images), -1)
            return values, values[:, :0]

        return encode

    def _outputs(self, model, images):
        """float32: the outputs of an Inference for uint8 images."""
        return np.concatenate(
            [values.copy() for _, values in model.batches(stored(images, self._statistics))]
        )

    @property
    def images_per_decision(self):
        """The number of images over which the decisions for one are means: 1, or more with shifted
        copies.
        """
        return 1 + len(self._offsets)

    @property
    def votes(self):
        """The maximum number of votes of the SVM for a class; None if another classifier
        answers.
        """
        return self._primary_classifier and self._primary_classifier.votes

    def answer(self, images):
        """Answers for uint8 images (N, H, W, C) of the dataset's shape; N at least 1."""
        vectors, odd = self._encode(images)
        nearest = self._neighbours.nearest(vectors, NEAREST)
        if self._whole is None:
            return Answers(*self._classified(images, vectors, odd), None, *nearest)
        output = self._outputs(self._whole, images)
        if self.network.classifies:
            scores = metrics.softmax(output.reshape(len(images), -1))
            return Answers(np.argmax(scores, axis=1), scores, None, None, *nearest)
        return Answers(
            *self._classified(images, vectors, odd), self._statistics.to_pixels(output), *nearest
        )

    @functools.cached_property
    def _first(self):
        """(name of the first layer with weights, function: uint8 images -> float32 (N, h, w,
        maps)); None if it has no maps.
        """
        layer = next(layer for layer in self.network.layers if layer.parameters)
        if layer.output_shape[0] == 1:
            return None
        model = self._model(self._tested, self._trained, self._statistics, layer.name)
        return layer.name, lambda images: self._outputs(model, images)

    def first_maps(self, images):
        """(layer, maps): what the first layer with weights makes of uint8 images, float32 (N, h, w,
        maps); None if dense.
        """
        return self._first and (self._first[0], self._first[1](images))

    def _classified(self, images, vectors, odd):
        """(classes, scores, margins) of the primary classifier for images, their feature vectors
        and the odd part of these.
        """
        classifier, shape = self._primary_classifier, (len(vectors), len(self.classes))
        shifted = (self._encode(images, offset) for offset in self._offsets)
        summed, gaps = classifier.scores_and_margins([(vectors, odd), *shifted], self._threads)
        scores, margins = np.full(shape, float(ABSENT[self.answered_by])), np.full(shape, np.nan)
        scores[:, classifier.classes], margins[:, classifier.classes] = summed, gaps
        classes = classifier.classes[np.argmax(summed, axis=1)].astype(np.int64)
        margins[np.arange(len(vectors)), classes] = np.nan
        return classes, scores, margins


def stored(images, statistics):
    """uint8 images (N, H, W, C) in the format of the rows of stage `normalized`."""
    if statistics.whitening is None:
        return images
    rows = np.empty(images.shape, np.float32)
    statistics.whiten(images, rows)
    return rows


class Neighbours:
    """Nearest-neighbour search by Euclidean distance in rows float32 (N, D), which may be
    memory-mapped.
    """

    def __init__(self, rows):
        self._rows = rows
        # Centred, because the products of float32 numbers then lose fewer digits.
        self._middle = rows[:ROWS].mean(axis=0)
        self._norms = np.concatenate(
            [kernel_functions.squared_norms(part - self._middle) for part in self._parts()]
        )

    def _parts(self):
        return (self._rows[start : start + ROWS] for start in range(0, len(self._rows), ROWS))

    def nearest(self, queries, count):
        """(rows, distances) of the `count` nearest to each of queries (M, D): int64 and float64 (M,
        at most count).

        The nearest comes first; among equal distances, the lowest row.
        """
        parts = [
            self._nearest(queries[start : start + QUERIES], min(count, len(self._rows)))
            for start in range(0, len(queries), QUERIES)
        ]
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def _nearest(self, queries, count):
        # |row|^2 - 2 row.query gives the same order as the distances, except for float32 rounding
        # errors: so the distances of the nearest candidates are computed again in float64.
        products = np.concatenate(
            [(part - self._middle) @ (queries - self._middle).T for part in self._parts()]
        )
        order = self._norms[:, None] - 2 * products
        few = min(4 * count, len(order))
        nearest, distances = (
            np.empty((len(queries), count), np.int64),
            np.empty((len(queries), count)),
        )
        for at, query in enumerate(queries):
            near = np.flatnonzero(order[:, at] <= np.partition(order[:, at], few - 1)[few - 1])
            exact = np.sqrt(np.square(self._rows[near].astype(np.float64) - query).sum(axis=1))
            first = np.argsort(exact, kind="stable")[:count]
            nearest[at], distances[at] = near[first], exact[first]
        return nearest, distances
