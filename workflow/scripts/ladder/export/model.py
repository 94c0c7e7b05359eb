"""The model of a run as one ONNX graph, and how far its answers are from the run's own."""

import dataclasses
import json
import time

import numpy as np
import onnx
import onnxruntime

from ladder import progress
from ladder.arithmetic import arrays
from ladder.classifiers import metrics, ridge, scoring, svm
from ladder.errors import RunFailed
from ladder.export import classifier, encoder, layers
from ladder.export.graph import Graph
from ladder.features import shifts
from ladder.store import lineage

# bytes of constants from which they are in a file of their own: one protobuf message holds 2 GB
LARGE = 1 << 30
BATCH = 64  # images per call of onnxruntime
# in units of the largest; of decisions in float64 what the float32 of kernel values explains
MOST_DEVIATION = 1e-4
# share of the images, if it is more than one: the order of float32 sums can decide a tie
MOST_DIFFERENT = 1e-3
LEAST = 1e-30  # probability below which float32 has too few digits to be compared
FILE, DATA = "model.onnx", "model.onnx.data"


class Answering:
    """What gives a run its predictions. inputs: role -> artifacts.Artifact, as the stage `model`
    has them.

    name      evaluate, ridge or svm, None without labels
    artifact  of that stage, or the features
    parts     the encoder.Parts of its features
    """

    def __init__(self, inputs):
        self.name = lineage.answering(inputs)
        self.classes = inputs["data"].metrics["classes"]
        self._features = inputs.get("joined") or inputs.get("features")
        self.artifact = inputs[self.name] if self.name else self._features
        self._inputs = {**inputs, "features": self._features}
        self.parts = encoder.parts(self._features or self.artifact, inputs)
        self._params = self.artifact.manifest["spec"]["params"]
        copies = shifts.offsets(self._params.get("classify_shifts", "none"))
        self._offsets = [(0, 0), *copies]
        self._model = None
        if self.name == "svm":
            self._model = svm.load(self.artifact.path("model.safetensors"))
        elif self.name == "ridge":
            train, *_ = scoring.load_with_odd_part(self._inputs, self._params)
            self._model = ridge.load(self.artifact.path("model.safetensors"), np.asarray(train))

    # The graph.

    def onnx(self, image, facts, real):
        """The onnx.ModelProto: uint8 images (N, *image) -> features, decisions, class, margin;
        without labels features alone.

        facts: JSON-able metadata; real: np.float32 or np.float64, in which a classifier of features
        decides.
        """
        graph = Graph(real)
        halves = encoder.rows(graph, self.parts, self._offsets)
        self._put_out_features(graph, halves)
        if self.name is None:
            return graph.model(image, {"kernel_ladder": json.dumps(facts)})
        answer = {"evaluate": self._evaluate, "ridge": self._ridge, "svm": self._svm}[self.name]
        decisions, place, margin = answer(graph, halves)
        graph.put_out("decisions", decisions, real, self._columns())
        graph.put_out(
            "class",
            graph.add("Reshape", graph.add("Gather", self.labels, place), np.int64([-1])),
            np.int64,
        )
        graph.put_out("margin", graph.add("Reshape", margin, np.int64([-1])), real)
        return graph.model(image, {"kernel_ladder": json.dumps(facts)})

    @property
    def labels(self):
        """int64: the places of the classes that can be answered, those with training images."""
        return (
            np.arange(len(self.classes))
            if self._model is None
            else self._model.classes.astype(np.int64)
        )

    def precisions(self):
        """The types in which decisions are tried. A network that classifies has no other than
        float32.
        """
        return (np.float32,) if self._model is None else (np.float32, np.float64)

    def _columns(self):
        """The number of decisions for an image."""
        return len(self._model.intercept if self.name == "svm" else self.labels)

    def _put_out_features(self, graph, halves):
        whole = graph.add("Concat", *halves, axis=1) if len(halves) > 1 else halves[0]
        if len(self._offsets) > 1:  # those of the image itself come first
            whole = graph.add(
                "Split", whole, outputs=len(self._offsets), num_outputs=len(self._offsets), axis=0
            )[0]
        graph.put_out("features", whole, np.float32, sum(sum(part.widths) for part in self.parts))

    def _evaluate(self, graph, halves):
        by_version = {entry.version: entry for entry in self._inputs.values() if entry}
        whole = encoder.Part.from_artifact(self.artifact, by_version, layer=-1)
        scores = layers.output(
            graph,
            whole.layers,
            whole.values,
            encoder.network_input(graph, whole.image, whole.statistics),
        )
        scores = graph.add("Reshape", scores, np.int64([-1, len(self.classes)]))
        return scores, *classifier.by_scores(graph, scores)

    def _ridge(self, graph, halves):
        scores = classifier.ridge_scores(graph, halves, self._model)
        scores = classifier.mean_over_copies(graph, scores, len(self._offsets), self._columns())
        return scores, *classifier.by_scores(graph, scores)

    def _svm(self, graph, halves):
        decisions = classifier.svm_decisions(graph, halves, self._model)
        decisions = classifier.mean_over_copies(
            graph, decisions, len(self._offsets), self._columns()
        )
        return decisions, *classifier.by_votes(graph, decisions, len(self._model.classes))

    # The run's own answers for its test images.

    def features(self):
        """float32 (N, D), the odd half behind the even one; None of a network whose features are no
        artifact.
        """
        return (
            np.asarray(scoring.load_with_odd_part(self._inputs, self._params)[2])
            if self._features
            else None
        )

    def decisions(self, threads):
        """float64 (N, pairs or classes); of a network the logarithms of the probabilities, NaN
        where these are below LEAST; None without labels.
        """
        if self.name is None:
            return None
        if self.name == "evaluate":
            probabilities = np.asarray(self.artifact.array("probabilities.npy"), np.float64)
            return np.log(np.where(probabilities < LEAST, np.nan, probabilities))
        copies = shifts.of_test(self._inputs, with_odd=self.name == "ridge")
        if self.name == "ridge":
            # Sums in float64 as in the graph: those of thousands of float32 products would be the
            # less exact ones.
            model = dataclasses.replace(
                self._model, coefficients=self._model.coefficients.astype(np.float64)
            )
            return ridge.scores(model, self.features(), arrays.NumPy(threads), copies)
        _, _, rows = scoring.load(self._inputs, self._params)
        return np.concatenate(svm.decision_blocks(self._model, rows, threads, copies))

    def explained(self):
        """By how much decisions can differ because each kernel value is rounded to float32."""
        if self._model is None:
            return 0.0
        coefficients = self._model.coefficients if self.name == "ridge" else self._model.dual_coef.T
        return 2.0**-23 * float(np.abs(coefficients).sum(axis=0).max())

    def like_decisions(self, values):
        """The output `decisions` of the graph in the form of `decisions`."""
        return metrics.log_softmax(values) if self.name == "evaluate" else values


def export(answering, facts, folder, images, threads):
    """Write the model of an Answering, in float32 if its decisions hold there, else in float64;
    returns (names, metrics).

    facts: JSON-able metadata; images: uint8 (N, H, W, C), the run's test images; the metrics: those
    of `compared`, with float32_deviation where float32 was not enough. Raises RunFailed where the
    answers differ by more than float32 explains.
    """
    tried = {}
    for real in answering.precisions():
        names = save(answering.onnx(images.shape[1:], facts, real), folder)
        measured = compared(folder / FILE, answering, images, threads)
        if not _differs(measured, MOST_DEVIATION):
            return names, {**measured, **tried}
        tried = {"float32_deviation": measured["deviations"]["decisions"]}
    if words := _differs(measured, max(MOST_DEVIATION, measured["explained"])):
        raise RunFailed(f"the exported model answers otherwise than the run: {words}")
    return names, {**measured, **tried}


def save(model, folder):
    """Write an onnx.ModelProto into a folder, from LARGE on with its constants in DATA beside FILE;
    returns the names.
    """
    (folder / DATA).unlink(missing_ok=True)  # of an interrupted run: onnx would append to it
    large = sum(len(constant.raw_data) for constant in model.graph.initializer) >= LARGE
    onnx.save_model(model, str(folder / FILE), save_as_external_data=large, location=DATA)
    onnx.checker.check_model(str(folder / FILE))
    return [FILE, DATA] if large else [FILE]


def compared(path, answering, images, threads):
    """How the model at `path` answers for the test images, uint8 (N, H, W, C), beside the run's own
    answers: the metrics.

    deviations: the largest difference of features and of decisions, in units of the largest of the
    run's own; explained: that of decisions by kernel values in float32; classes_that_differ: number
    of images; decisions: the type of these.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    own = {"features": answering.features(), "decisions": answering.decisions(threads)}
    own, largest, differ, kind = (
        {name: values for name, values in own.items() if values is not None},
        {},
        0,
        "float32",
    )
    predictions = answering.artifact.array("predictions.npy") if answering.name else None
    outputs = ["features", "decisions", "class"] if answering.name else ["features"]
    started = time.perf_counter()
    for start in progress.bar(range(0, len(images), BATCH), "onnxruntime", "batch"):
        block = slice(start, start + BATCH)
        here = dict(zip(outputs, session.run(outputs, {"images": images[block]}), strict=True))
        if answering.name:
            kind = here["decisions"].dtype.name
            here["decisions"] = answering.like_decisions(here["decisions"])
            differ += int((here["class"] != predictions[block]).sum())
        for name, values in own.items():
            difference = np.nanmax(np.abs(here[name] - values[block]))
            largest[name] = max(
                largest.get(name, 0.0),
                float(difference) if np.isfinite(here[name]).all() else np.inf,
            )
    scales = {name: float(np.nanmax(np.abs(values))) or 1.0 for name, values in own.items()}
    return {
        "deviations": {name: largest[name] / scales[name] for name in own},
        "decisions": kind,
        "explained": answering.explained() / scales.get("decisions", 1.0),
        "classes_that_differ": differ,
        "images": len(images),
        "images_per_second": len(images) / (time.perf_counter() - started),
    }


def _differs(measured, most):
    """What differs by more than is allowed, in words, else ''; most: that of decisions."""
    differ, count, deviations = (
        measured[name] for name in ("classes_that_differ", "images", "deviations")
    )
    allowed = {"features": MOST_DEVIATION, "decisions": most}
    if all(value <= allowed[name] for name, value in deviations.items()) and differ <= max(
        1, MOST_DIFFERENT * count
    ):
        return ""
    far = [
        f"{name} by up to {value:.1e} of the largest ({allowed[name]:.1e} is allowed)"
        for name, value in deviations.items()
    ]
    return ", ".join([f"{differ} of {count} classes differ", *far])
