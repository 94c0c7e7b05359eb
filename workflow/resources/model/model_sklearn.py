"""The model of this folder for scikit-learn: a transformer that gives its features, and a classifier that gives its answers.

    make_pipeline(Features(), LogisticRegression()).fit(images, labels)      images: uint8 (N, H, W, C)
"""

import pathlib

import numpy as np
import onnxruntime
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin


class _Model(BaseEstimator):
    """path: of model.onnx, by default the one beside this file; batch: images at a time."""

    def __init__(self, path=None, batch=64):
        self.path, self.batch = path, batch

    def fit(self, images, labels=None):
        """Nothing is learned: the model has been trained."""
        return self

    def __sklearn_is_fitted__(self):
        return True

    def _run(self, output, images):
        session = onnxruntime.InferenceSession(str(self.path or pathlib.Path(__file__).with_name("model.onnx")))
        parts = range(0, len(images), self.batch)
        return np.concatenate([session.run([output], {"images": images[at:at + self.batch]})[0] for at in parts])


class Features(TransformerMixin, _Model):
    def transform(self, images):
        """float32 (N, D)."""
        return self._run("features", images)


class Classifier(ClassifierMixin, _Model):
    def predict(self, images):
        """int64 (N,): places in the list of classes in README.md."""
        return self._run("class", images)

    def decision_function(self, images):
        """(N, pairs of classes or classes), as README.md says."""
        return self._run("decisions", images)
