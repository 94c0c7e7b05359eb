"""A run's model, loaded from its artifacts, answers for any image: class, scores, reconstruction, nearest training images."""

import dataclasses

import numpy as np

from . import features, metrics, networks, svm, variants, weights
from .errors import UserError
from .inference import Inference
from .normalization import Statistics
from .progress import log

NEAREST = 6           # training images given for an image
COMPARED = 5000       # training images whose features are computed where no artifact holds them
QUERIES = 64          # images at a time that are held against the training images
ROWS = 2000           # training images at a time


@dataclasses.dataclass(frozen=True)
class Answers:
    """For N images: classes (N,) int64, the index of each one's class; scores (N, all classes) float64, probabilities of a
    network that classifies, votes of an SVM; margins (N, all classes) float64, by how much that class won against each (NaN
    against itself and classes the SVM never saw); rebuilt uint8 (N, H, W, C); nearest (N, up to NEAREST) int64, rows of the
    training images, the nearest first, and their Euclidean distances, float64. margins and rebuilt are None of a network that
    classifies."""

    classes: np.ndarray
    scores: np.ndarray
    margins: np.ndarray | None
    rebuilt: np.ndarray | None
    nearest: np.ndarray
    distances: np.ndarray

    def __len__(self):
        return len(self.classes)


class Predictor:
    """inputs: role -> artifacts.Artifact, for each of stages.prediction_roles of a chain.

    network: networks.Network; classes: their names; judge: the artifact that says how good the answers are, of stage evaluate
    or svm; layer: whose output the distances are of; compared: how many training images.
    Raises UserError where this machine cannot run the run's variant, and for damaged artifacts.
    """

    def __init__(self, inputs, threads, data_residency="auto"):
        self.inputs = inputs
        params = inputs["train"].manifest["spec"]["params"]
        if reason := variants.unavailable(params["variant"]):
            raise UserError(reason)
        self.network = networks.from_params(params)
        self.dataset = inputs["data"].manifest["spec"]["params"]["dataset"]
        self.classes = inputs["data"].metrics["classes"]
        self.judge = inputs["evaluate" if self.network.classifies else "svm"]
        self.statistics = Statistics.load(inputs["normalized"])
        values = weights.load(inputs["train"].path(weights.file_name(self.network)), self.network)

        def model(until=None):
            return Inference(self.network, params["variant"], values, self.statistics.scale, self.statistics.offset, threads,
                             until, data_residency)

        self._whole = model()
        self._machine = None if self.network.classifies else svm.load(self.judge.path("model.safetensors"))
        self._encoder, training = self._features(model)
        self.compared = len(training)
        self._neighbours = Neighbours(training)

    def _features(self, model):
        """(function from stored rows to feature vectors (N, D) float32, those of the training images)."""
        if "features" in self.inputs:
            artifact = self.inputs["features"]
            params = artifact.manifest["spec"]["params"]
            self.layer = params["features_layer"]
            return _encoder(model(self.layer), params, artifact), artifact.array("train.npy")
        self.layer = self.network.features
        encode = _encoder(model(self.layer), {"features_pool": "none", "features_flip": False}, None)
        rows = self.inputs["normalized"].array("train.npy")[:COMPARED]
        log.info("features of %d training images, to find the nearest among them", len(rows))
        return encode, encode(rows)

    @property
    def votes(self):
        """The most votes that a class can get of the SVM; None where scores are probabilities."""
        return None if self.network.classifies else len(self._machine.classes) - 1

    def answer(self, images):
        """Answers for uint8 images (N, H, W, C) of the dataset's shape; N at least 1."""
        rows = self._stored(images)
        vectors = self._encoder(rows)
        output = np.concatenate([values.copy() for _, values in self._whole.batches(rows)])
        nearest = self._neighbours.nearest(vectors, NEAREST)
        if self.network.classifies:
            scores = metrics.softmax(output.reshape(len(rows), -1))
            return Answers(np.argmax(scores, axis=1), scores, None, None, *nearest)
        return Answers(*self._judged(vectors), self.statistics.to_pixels(output), *nearest)

    def _judged(self, vectors):
        """(classes, scores, margins) by the SVM, of feature vectors."""
        machine = self._machine
        decisions = np.concatenate([block for _, block in svm.decision_blocks(machine, vectors)])
        votes = svm.votes(machine, decisions)
        best = np.argmax(votes, axis=1)
        scores, margins = np.zeros((len(vectors), len(self.classes))), np.full((len(vectors), len(self.classes)), np.nan)
        scores[:, machine.classes], margins[:, machine.classes] = votes, svm.margins(machine, decisions, best)
        classes = machine.classes[best].astype(np.int64)
        margins[np.arange(len(vectors)), classes] = np.nan
        return classes, scores, margins

    def _stored(self, images):
        """uint8 images as the artifact `normalized` stores its rows."""
        if self.statistics.whitening is None:
            return images
        rows = np.empty(images.shape, np.float32)
        self.statistics.whiten(images, rows)
        return rows


def _encoder(encoder, params, artifact):
    """Function from stored rows to feature vectors (N, D) float32, made as the stage `features` made those of `artifact`."""
    pool = 0 if params["features_pool"] == "none" else params["features_pool"]
    length = features.dimensions(encoder.network.layer(encoder.until).output_shape, pool)
    standardization = artifact.tensors(features.STANDARDIZATION) if params.get("features_standardize") else None

    def encode(rows):
        out = np.empty((len(rows), length), np.float32)
        features.extract(encoder, rows, out, pool, params["features_flip"], "features")
        if standardization:
            features.apply_standardization(out, **standardization)
        return out

    return encode


class Neighbours:
    """Finds the nearest of rows (N, D) float32, which may be memory-mapped, by Euclidean distance."""

    def __init__(self, rows):
        self._rows = rows
        self._norms = svm.squared_norms(rows)

    def nearest(self, queries, count):
        """(rows, distances) of the `count` nearest to each of queries (M, D): int64 and float64 (M, at most count).

        The nearest comes first, of equally near ones the first row.
        """
        parts = [self._nearest(queries[start:start + QUERIES], min(count, len(self._rows)))
                 for start in range(0, len(queries), QUERIES)]
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def _nearest(self, queries, count):
        # |row|^2 - 2 row.query orders rows as their distances do, but for the last digits of float32: so the nearest few are
        # measured again.
        order = np.concatenate([self._norms[start:start + ROWS, None] - 2 * (self._rows[start:start + ROWS] @ queries.T)
                                for start in range(0, len(self._rows), ROWS)])
        few = min(4 * count, len(order))
        found, distances = np.empty((len(queries), count), np.int64), np.empty((len(queries), count))
        for at, query in enumerate(queries):
            near = np.sort(np.argpartition(order[:, at], few - 1)[:few])
            exact = np.sqrt(np.square(self._rows[near].astype(np.float64) - query).sum(axis=1))
            first = np.argsort(exact, kind="stable")[:count]
            found[at], distances[at] = near[first], exact[first]
        return found, distances
