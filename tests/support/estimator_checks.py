"""scikit-learn's own checks of the estimators in model_sklearn.py, on any version of it.

MODELS: a folder with models of rows of numbers, WIDTH-CLASSES.onnx. scikit-learn draws rows of any
width and labels of several numbers of classes, and a frozen model reads one width and knows its
classes, so `fit` here chooses the model by what it is fitted to, and learns nothing. Rows are drawn
as whole numbers from 0 on, as of categories.
"""

import os
import pathlib
import sys
import warnings

import numpy as np
import sklearn
from model_sklearn import Classifier, Features
from sklearn.utils.estimator_checks import check_estimator

UNFITTED = "5-3"  # the model before `fit`
# What no frozen estimator of images passes, and why.
LEFT_OUT = {
    "check_array_api_input": "scikit-learn skips it without SCIPY_ARRAY_API=1; onnxruntime reads NumPy's arrays",
    "check_classifiers_classes": "its labels are texts; those of the model are whole numbers",
    "check_classifiers_one_label": "asks that one label be learned",
    "check_classifiers_train": "asks that something be learned",
    "check_n_features_in": "asks that the number of features be unknown before `fit`; the model knows it",
    "check_positive_only_tag_during_fit": "on 1.6 it subtracts a fraction from whole numbers in place, which NumPy refuses",
}
OF_OLD = {"check_positive_only_tag_during_fit"}  # which newer releases pass


def chosen(X, y):
    """WIDTH-CLASSES for rows and labels; UNFITTED for those that no model reads."""
    shape, labels = np.shape(np.asarray(X)), np.asarray(y)
    classes = labels.max() + 1 if labels.ndim and labels.dtype.kind in "iu" and labels.size else 3
    name = f"{shape[1] if len(shape) == 2 else 0}-{max(2, classes)}"
    return name if pathlib.Path(os.environ["MODELS"], f"{name}.onnx").exists() else UNFITTED


class AnyWidth:
    def fit(self, X, y=None):
        self.chosen_ = chosen(X, y)
        return super().fit(X, y)

    @property
    def _file(self):
        return os.path.join(os.environ["MODELS"], f"{vars(self).get('chosen_', UNFITTED)}.onnx")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        return tags


class AnyClassifier(AnyWidth, Classifier):
    pass


class AnyFeatures(AnyWidth, Features):
    pass


def outcomes(estimator):
    """{name of a check: what it said; '' if it passed} of an estimator."""
    said = {}

    def note(check_name, status, exception, **_):
        words = "" if status == "passed" else f"{status}: {type(exception).__name__}: {exception}"
        said[check_name] = said.get(check_name) or words

    check_estimator(estimator, on_skip=None, on_fail=None, callback=note)
    return said


def main():
    warnings.simplefilter("ignore")
    for estimator in (AnyClassifier(), AnyFeatures()):
        said = outcomes(estimator)
        failed = {name: words for name, words in said.items() if words}
        print(
            f"{type(estimator).__name__} passes {len(said) - len(failed)} of the {len(said)} checks of scikit-learn "
            f"{sklearn.__version__}; left out: {', '.join(sorted(failed))}"
        )
        for name in failed.keys() - LEFT_OUT.keys():
            print(f"{name}: {failed[name][:300]}")
        yield failed.keys() <= LEFT_OUT.keys()
        if isinstance(estimator, Classifier) and not sklearn.__version__.startswith("1.6."):
            yield LEFT_OUT.keys() - OF_OLD == failed.keys()  # no reason that is none any more


if __name__ == "__main__":
    sys.exit(not all([*main()]))
