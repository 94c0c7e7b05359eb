"""What scikit-learn does with the estimators of an unpacked model, on any version of it: python
estimators_used.py MODEL RUN.

MODEL: the folder with model_sklearn.py; RUN: one with images.npy, labels.npy and predictions.npy,
the run's answers. skops is used where it is installed.
"""

import importlib.util
import io
import sys

import joblib
import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, get_scorer
from sklearn.model_selection import cross_val_predict, cross_val_score
from sklearn.pipeline import FeatureUnion, make_pipeline

MODEL, RUN = sys.argv[1:]
sys.path.insert(0, MODEL)
from model_sklearn import Classifier, Features  # noqa: E402

images, labels, predictions = (
    np.load(f"{RUN}/{name}.npy") for name in ("images", "labels", "predictions")
)
rows, classifier, features = images.reshape(len(images), -1), Classifier(batch=7), Features()


def refused(call, *words):
    """The message of the ValueError that a call ends with."""
    try:
        call()
    except ValueError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"nothing was said of {words}")


def answers():
    decisions = classifier.decision_function(images)
    assert np.array_equal(classifier.predict(images), predictions) and np.isfinite(decisions).all()
    if len(classifier.classes_) > 2:
        assert decisions.shape == (len(images), len(classifier.classes_))
        assert np.array_equal(classifier.classes_[decisions.argmax(1)], predictions)
    else:
        assert decisions.shape == (len(images),)
        assert np.array_equal(classifier.classes_[(decisions > 0).astype(int)], predictions)
    assert np.array_equal(classifier.predict(rows.astype(np.float64)), predictions)


def scorers():
    assert (
        get_scorer("accuracy")(classifier, images, labels)
        == classifier.score(images, labels)
        == accuracy_score(labels, predictions)
    )
    name = "roc_auc" if len(classifier.classes_) == 2 else "balanced_accuracy"
    assert 0 <= get_scorer(name)(classifier, images, labels) <= 1


def calibration():
    for method in ("sigmoid", "isotonic"):
        fitted = CalibratedClassifierCV(FrozenEstimator(classifier), method=method, cv=2).fit(
            images, labels
        )
        shares = fitted.predict_proba(images)
        assert shares.shape == (len(images), len(classifier.classes_)) and np.allclose(
            shares.sum(1), 1
        )
        assert fitted.score(images, labels) >= 0.8 * classifier.score(images, labels)


def cross_validation():
    assert np.array_equal(cross_val_predict(classifier, images, labels, cv=2), predictions)
    assert cross_val_predict(classifier, images, labels, cv=2, method="decision_function").shape[
        0
    ] == len(images)
    assert np.isfinite(cross_val_score(FrozenEstimator(classifier), rows, labels, cv=2)).all()


def stacking():
    pipeline = make_pipeline(features, LogisticRegression(max_iter=200))
    stacked = StackingClassifier(
        [("model", classifier), ("features", pipeline)], LogisticRegression(max_iter=200), cv=2
    )
    assert stacked.fit(rows, labels).score(rows, labels) > 0.5


def pipelines():
    pipeline = make_pipeline(
        FeatureUnion([("once", features), ("twice", Features(batch=3))]),
        LogisticRegression(max_iter=50),
    )
    assert (pipeline.fit(images, labels).predict(images) == labels).mean() > 0.9


def names_of_columns():
    values = features.transform(images)
    names = features.get_feature_names_out()
    assert values.dtype == np.float32 and names.tolist() == [
        f"features{number}" for number in range(values.shape[1])
    ]
    frame = Features().set_output(transform="pandas").fit_transform(images)
    assert frame.columns.tolist() == names.tolist() and np.array_equal(frame.to_numpy(), values)


def copies():
    file = io.BytesIO()
    joblib.dump(make_pipeline(features, classifier), file)
    assert len(file.getvalue()) < 2000, "the model itself is in model.onnx"
    file.seek(0)
    assert np.array_equal(joblib.load(file)[-1].predict(images), predictions)
    if importlib.util.find_spec("skops"):
        import skops.io

        text = skops.io.dumps(classifier)
        assert skops.io.get_untrusted_types(data=text) == ["model_sklearn.Classifier"]
        loaded = skops.io.loads(text, trusted=["model_sklearn.Classifier"])
        assert loaded.batch == 7 and np.array_equal(loaded.predict(images), predictions)


def refusals():
    refused(lambda: classifier.predict(images[:0]), "Found array with 0 sample(s)", "minimum of 1")
    refused(lambda: features.transform(rows[:0]), "Found array with 0 sample(s)")
    refused(lambda: classifier.predict(images[:, :-1]), "the model reads")
    refused(lambda: classifier.predict(rows[:, 1:]), f"expecting {rows.shape[1]} features")
    refused(lambda: classifier.predict(images / 255), "whole numbers from 0 to 255")
    refused(lambda: classifier.predict(rows.astype(int) + 300), "whole numbers from 0 to 255")
    refused(lambda: classifier.predict(np.where(rows > 9, np.nan, rows)), "NaN")
    refused(lambda: classifier.fit(images, labels + 90), "the model gives")
    refused(lambda: classifier.fit(images, labels[1:]), "inconsistent numbers of samples")


for use in (answers, scorers, calibration, cross_validation, stacking, pipelines, copies, refusals):
    use()
if importlib.util.find_spec("pandas"):
    names_of_columns()
print("scikit-learn: all uses")
