"""README.md of an exported model: what it is, how good, what it must not be used for, and where it
came from.
"""

import yaml

from ladder import sources
from ladder.classifiers import metrics
from ladder.data import licences
from ladder.pages import templates
from ladder.progress import size

CONTROLS = {
    "linear_pixels": "logistic regression on raw pixels",
    "majority": "the most frequent class alone",
    "random": "the same classifier on the untrained encoder",
    "strong": "the same classifier on the best cheap untrained encoder",
    "pixels": "the same classifier on raw pixels",
    # by the role, or by its kind
    "start": "the same classifier on the encoder at the start",
}
DECISIONS = {
    "svm": "one for each pair of classes (0, 1), (0, 2), ...; above 0 it votes for the first",
    "ridge": "the scores of the classes",
    "evaluate": "the scores of the classes, before the softmax",
}
WORDS = {  # of each file
    "model.onnx": "images to features, decisions, class and margin",
    "model.onnx.data": "its constants",
    "predict.py": "class and margin of pictures: onnxruntime, NumPy, Pillow",
    "exported.py": "of it, whether the files are those that were exported",
    "sha256.json": "which digests these have",
    "model_sklearn.py": "a transformer and a classifier: onnxruntime, scikit-learn",
    "encoder.py": "the encoder as a PyTorch module: torch, safetensors",
    "encoder.json": "its layers",
    "encoder.safetensors": "its weights, with PyTorch's names and layouts",
    "mean.npy": "the mean of the features of the run's pictures",
    "pictures.npy": "their directions from it, which predict.py compares new pictures with",
    "pictures.json": "their names, in the same order",
    "map.npy": "their places on the map of the report, from left and top; NaN of those not on it",
    "reading/__init__.py": "how a picture becomes an image, as the run itself reads pictures: NumPy, Pillow",
    "reading/pictures.py": "of it, reading and fitting",
    "reading/plain.py": "of it, which files are read",
    "reading/tiff.py": "of it, TIFF",
}
UNLABELLED_WORDS = {
    "model.onnx": "images to features",
    "predict.py": "the pictures that are most like new ones: onnxruntime, NumPy, Pillow",
    "model_sklearn.py": "a transformer: onnxruntime, scikit-learn",
}
TEMPLATE = sources.ROOT / "workflow/resources/model/README.md"
TITLES = {
    True: "An image classifier of Kernel Ladder",
    False: "Features of pictures, by Kernel Ladder",
}
UNLABELLED = TEMPLATE.with_name("README_unlabelled.md")


def text(summary, version, facts, measured, files):
    """The page as Markdown.

    summary: summary.json of the run's report; facts: the model's metadata; measured: the metrics of
    model.compared; files: name -> {"bytes", "sha256"} of the other files.
    """
    height, width, channels = facts["image"]
    differ, data = measured["classes_that_differ"], summary["dataset"]
    answered_by = summary["answered_by"]
    words = WORDS if answered_by else WORDS | UNLABELLED_WORDS
    return (
        (TEMPLATE if answered_by else UNLABELLED)
        .read_text("utf-8")
        .format(
            title=_plain(summary["name"] or TITLES[answered_by is not None]),
            verdict=_plain(summary["verdict"]),
            accuracies="\n".join(_accuracies(summary)),
            images=measured["images"],
            rows="validation" if summary["validation"] else "test",
            deviation=measured["deviations"]["decisions" if answered_by else "features"],
            same=f"the same classes but for {differ}" if differ else "the same classes",
            precision=_precision(measured),
            height=height,
            width=width,
            channels=channels,
            classes=", ".join(map(_plain, facts["classes"])),
            decisions=DECISIONS.get(answered_by),
            data=data,
            licence=licences.LICENCES[data],
            blind=""
            if summary["validation"]
            else f"The test images were scored {summary['test_scores']['all']} times in this folder of results.",
            version=version,
            report=summary["versions"]["report"],
            program=f" {templates.program(summary)}",
            settings=yaml.safe_dump(
                summary["reproduce"]["settings"],
                sort_keys=False,
                allow_unicode=True,
                default_flow_style=None,
            ),
            files="\n".join(
                f"| {name} | {size(file['bytes'])} | `{file['sha256']}` | {words[name]} |"
                for name, file in files.items()
            ),
        )
    )


def _precision(measured):
    if measured["decisions"] == "float32":
        return "All numbers are float32."
    return (
        "Decisions are computed in float64, because in float32 they would differ by "
        f"{measured['float32_deviation']:.1e} of the largest."
    )


def _plain(words):
    """Text of a person's own without what Markdown or HTML would read as more."""
    return "".join(f"&#{ord(char)};" if char in "<>&|`[]\\" else char for char in words)


def _accuracies(summary):
    if summary["controls"] is None:
        return []
    measured = [("this model", summary["test_accuracy"], summary["accuracy_interval"])]
    for control in summary["controls"]:
        name = control["control"]
        words = CONTROLS.get(name) or CONTROLS[name.partition("_")[2]]
        measured.append((words, control["accuracy"], control["interval"]))
    rows = [
        f"| {words} | {accuracy:.2%} | {low:.2%} to {high:.2%} |"
        for words, accuracy, (low, high) in measured
    ]
    if metrics.unbalanced(summary["confusion"]):
        rows.insert(1, f"| its mean over the classes | {summary['balanced_accuracy']:.2%} | |")
    return rows
