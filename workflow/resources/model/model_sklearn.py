"""The model of this folder for scikit-learn 1.6 and newer: a transformer that gives its features,
and a classifier.

    make_pipeline(Features(), LogisticRegression()).fit(images, labels)
    CalibratedClassifierCV(FrozenEstimator(Classifier())).fit(images, labels)

Images: uint8 (N, H, W, C), or rows of these numbers (N, H * W * C) in any type.
"""

import functools
import json
import math
import pathlib

import numpy as np
import onnxruntime
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_X_y, validate_data


@functools.cache  # no attribute, because estimators are copied and pickled
def _loaded(path):
    """(session, facts of the model) of model.onnx."""
    session = onnxruntime.InferenceSession(path)
    return session, json.loads(session.get_modelmeta().custom_metadata_map["kernel_ladder"])


class _Model(BaseEstimator):
    """path: of model.onnx, by default the one beside this file; batch: images at a time."""

    def __init__(self, path=None, batch=64):
        self.path, self.batch = path, batch

    def fit(self, X, y=None):
        """Nothing is learned, because the model has been trained; raises ValueError for what it
        does not take.
        """
        self._rows(X)
        return self

    def __sklearn_is_fitted__(self):
        return True

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit, tags.input_tags.positive_only = False, True
        return tags

    @property
    def n_features_in_(self):
        return math.prod(self._facts["image"])

    @property
    def _file(self):
        return self.path or pathlib.Path(__file__).with_name("model.onnx")

    @property
    def _facts(self):
        return self._model[1]

    @property
    def _model(self):
        return _loaded(str(self._file))

    def _rows(self, X):
        """The images as rows (N, H * W * C) of whole numbers from 0 to 255; raises ValueError for
        others.
        """
        if getattr(X, "ndim", 2) > 2:
            if list(X.shape[1:]) != self._facts["image"]:
                raise ValueError(
                    f"images of shape {X.shape[1:]}; the model reads {tuple(self._facts['image'])}"
                )
            X = X.reshape(len(X), self.n_features_in_)
        rows = validate_data(self, X, reset=False)
        if (rows < 0).any():
            raise ValueError(
                "Negative values in data passed to the model, which reads whole numbers from 0 to 255"
            )
        if not ((rows <= 255) & (rows % 1 == 0)).all():
            raise ValueError("the model reads whole numbers from 0 to 255")
        return rows

    def _run(self, output, X):
        images = self._rows(X).astype(np.uint8).reshape(-1, *self._facts["image"])
        parts = np.split(images, range(self.batch, len(images), self.batch))
        return np.concatenate([self._model[0].run([output], {"images": part})[0] for part in parts])


class Features(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _Model):
    def transform(self, X):
        """float32 (N, D)."""
        return self._run("features", X)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    @property
    def _n_features_out(self):
        return self._model[0].get_outputs()[0].shape[1]


class Classifier(ClassifierMixin, _Model):
    """The labels are places in the list of classes in README.md."""

    def fit(self, X, y):
        """As Features.fit; raises ValueError for labels that the model does not give, too."""
        _, labels = check_X_y(self._rows(X), y)
        check_classification_targets(labels)
        if unknown := {*labels.tolist()} - {*self.classes_.tolist()}:
            raise ValueError(
                f"y has the label {min(unknown)!r}; the model gives {self.classes_.tolist()}"
            )
        return self

    @property
    def _model(self):
        session, facts = super()._model
        if not facts["labels"]:
            raise ValueError(
                "this model's pictures had no labels, so it names no class; take Features"
            )
        return session, facts

    @property
    def classes_(self):
        return np.array(self._facts["labels"])

    def predict(self, X):
        """int64 (N,), of classes_."""
        return self._run("class", X)

    def decision_function(self, X):
        """(N, classes), or (N,) of two classes, above 0 for the second. Of an SVM votes, with
        fractions by the decisions.
        """
        values, count, voted = (
            self._run("decisions", X),
            len(self.classes_),
            self._facts["answered_by"] == "svm",
        )
        if count == 2:
            return -values[:, 0] if voted else values[:, 1] - values[:, 0]
        return _votes(values, count) if voted else values


def _votes(decisions, count):
    """(N, classes), the largest one that of the class which the most pairs vote for, of several the
    first.
    """
    # of the pairs (0, 1), (0, 2), ...
    first, second = np.eye(count)[np.array(np.triu_indices(count, 1))]
    confidence = decisions @ (first - second)
    return (
        (decisions > 0) @ first
        + (decisions <= 0) @ second
        - np.arange(count) / count
        + confidence / (3 * count * (1 + np.abs(confidence)))
    )
