"""A run's model, loaded from its artifacts, answers for any image: class, scores, reconstruction, nearest training images."""

import dataclasses

import numpy as np

from ladder.classifiers import kernel_functions, metrics, svm
from ladder.data.normalization import Statistics
from ladder.errors import UserError
from ladder.features import features
from ladder.network import networks
from ladder.progress import log
from ladder.rungs import variants
from ladder.training.inference import Inference

NEAREST = 6           # training images given for an image
COMPARED = 5000       # training images whose features are computed where no artifact holds them
QUERIES = 64          # images at a time that are held against the training images
ROWS = 2000           # training images at a time


@dataclasses.dataclass(frozen=True)
class Answers:
    """For N images: classes (N,) int64, the index of each one's class; scores (N, all classes) float64, probabilities of a
    network that classifies, votes of an SVM; margins (N, all classes) float64, by how much that class won against each (NaN
    against itself and classes the SVM never saw); rebuilt uint8 (N, H, W, C); nearest (N, up to NEAREST) int64, rows of the
    training images, the nearest first, and their Euclidean distances, float64. margins are None of a network that
    classifies, rebuilt of one that redraws nothing."""

    classes: np.ndarray
    scores: np.ndarray
    margins: np.ndarray | None
    rebuilt: np.ndarray | None
    nearest: np.ndarray
    distances: np.ndarray

    def __len__(self):
        return len(self.classes)


class Predictor:
    """inputs: role -> artifacts.Artifact, for each of stages.prediction_roles of a chain; multiplier: the name, or the file of
    a table, of the one that the run's test used (its test_multiplier).

    network: networks.Network; classes: their names; judge: the artifact that says how good the answers are, of stage evaluate
    or svm; layer: whose output the distances are of; compared: how many training images.
    Raises UserError where this machine cannot run the run's variant, and for damaged artifacts.
    """

    def __init__(self, inputs, threads, data_residency="auto", multiplier="exact"):
        self.inputs, self._threads = inputs, threads
        self._options = {"data_residency": data_residency, "multiplier": multiplier}
        made = inputs.get("train", inputs.get("patches"))
        self.network = networks.from_params(made.manifest["spec"]["params"])
        self.dataset = inputs["data"].manifest["spec"]["params"]["dataset"]
        self.classes = inputs["data"].metrics["classes"]
        self.judge = inputs["evaluate" if self.network.classifies else "svm"]
        self._machine = None if self.network.classifies else svm.load(self.judge.path("model.safetensors"))
        self._statistics = Statistics.load(inputs["normalized"])
        self._tested = (self.judge if self.network.classifies else inputs["features"]).manifest["spec"]["params"]
        self._whole = self._model(self._tested, made, self._statistics) if self.network.trains else None
        if "features" in inputs:
            judged = inputs.get("joined", inputs["features"])
            self._encode, training = self._encoder(judged), judged.array("train.npy")
            self.layer = inputs["features"].manifest["spec"]["params"]["features_layer"]
        else:
            self.layer, images = self.network.features, inputs["data"].array("train_images.npy")[:COMPARED]
            self._encode = self._layer_encoder()
            log.info("features of %d training images, to find the nearest among them", len(images))
            training = self._encode(images)
        self.compared = len(training)
        self._neighbours = Neighbours(training)

    def _model(self, params, artifact, statistics, until=None):
        """The Inference that a stage's parameters name, with the weights of an artifact."""
        if reason := variants.unavailable(params["variant"]):
            raise UserError(reason)
        return Inference.load(params, artifact, statistics, self._threads, self._options, until)

    def _encoder(self, artifact):
        """Function from uint8 images to vectors (N, D) float32, as those of an artifact of stage `features` or `joined`."""
        spec, found = artifact.manifest["spec"], {one.version: one for one in self.inputs.values()}
        params = spec["params"]
        if spec["stage"] == "joined":
            weighted = [(np.float32(weight), self._encoder(found[spec["parents"][f"part{number}"]]))
                        for number, weight in enumerate(params["weights"], 1)]
            return lambda images: np.concatenate([weight * encode(images) for weight, encode in weighted], axis=1)
        statistics = Statistics.load(found[spec["parents"]["normalized"]])
        encoder = self._model(params, found[spec["parents"]["weights"]], statistics, params["features_layer"])
        recipe = features.Recipe.of(params, artifact.tensors(features.FILE))

        def encode(images):
            rows = features.blocks(encoder, stored(images, statistics), recipe, self._threads)
            return np.concatenate([block.copy() for _, block in rows])

        return encode

    def _layer_encoder(self):
        """As _encoder, of the last layer before the scores of a network that classifies."""
        model = self._model(self._tested, self.inputs["train"], self._statistics, self.layer)

        def encode(images):
            rows = stored(images, self._statistics)
            return np.concatenate([values.reshape(len(values), -1).copy() for _, values in model.batches(rows)])

        return encode

    @property
    def votes(self):
        """The most votes that a class can get of the SVM; None where scores are probabilities."""
        return None if self.network.classifies else len(self._machine.classes) - 1

    def answer(self, images):
        """Answers for uint8 images (N, H, W, C) of the dataset's shape; N at least 1."""
        vectors = self._encode(images)
        nearest = self._neighbours.nearest(vectors, NEAREST)
        if self._whole is None:
            return Answers(*self._judged(vectors), None, *nearest)
        output = np.concatenate([values.copy() for _, values in self._whole.batches(stored(images, self._statistics))])
        if self.network.classifies:
            scores = metrics.softmax(output.reshape(len(images), -1))
            return Answers(np.argmax(scores, axis=1), scores, None, None, *nearest)
        return Answers(*self._judged(vectors), self._statistics.to_pixels(output), *nearest)

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


def stored(images, statistics):
    """uint8 images (N, H, W, C) as an artifact of stage `normalized` stores its rows."""
    if statistics.whitening is None:
        return images
    rows = np.empty(images.shape, np.float32)
    statistics.whiten(images, rows)
    return rows


class Neighbours:
    """Finds the nearest of rows (N, D) float32, which may be memory-mapped, by Euclidean distance."""

    def __init__(self, rows):
        self._rows = rows
        # Around their middle, where the products of float32 numbers lose fewer digits.
        self._middle = rows[:ROWS].mean(axis=0)
        self._norms = np.concatenate([kernel_functions.squared_norms(part - self._middle) for part in self._parts()])

    def _parts(self):
        return (self._rows[start:start + ROWS] for start in range(0, len(self._rows), ROWS))

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
        products = np.concatenate([(part - self._middle) @ (queries - self._middle).T for part in self._parts()])
        order = self._norms[:, None] - 2 * products
        few = min(4 * count, len(order))
        found, distances = np.empty((len(queries), count), np.int64), np.empty((len(queries), count))
        for at, query in enumerate(queries):
            near = np.flatnonzero(order[:, at] <= np.partition(order[:, at], few - 1)[few - 1])
            exact = np.sqrt(np.square(self._rows[near].astype(np.float64) - query).sum(axis=1))
            first = np.argsort(exact, kind="stable")[:count]
            found[at], distances[at] = near[first], exact[first]
        return found, distances
