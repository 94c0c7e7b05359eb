"""The keys of summary.json: the type of each and what it is, in one place.

docs/generate.py makes docs/summary.schema.json of it; report.summary gives the values.
"""
# mypy: disable-error-code="valid-type, misc"
# Types made at run time are none to mypy.

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

SCHEMA = 4  # raised with every change of a key
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0)]
Interval = Annotated[list[Annotated[float, Field(ge=-1, le=1)]], Field(min_length=2, max_length=2)]
Words = dict[str, Any]  # of settings, which have types of their own


def group(title: str, **keys: Any) -> type[BaseModel]:
    """An object with exactly these keys: key -> its type."""
    fields: dict[str, Any] = {key: (kind, ...) for key, kind in keys.items()}
    return create_model(title, __config__=ConfigDict(extra="forbid"), **fields)


OVER = {"mean": float, "interval": Interval | None}
DIFFERENCE = {
    "difference": float,
    "difference_interval": Interval,
    "paired": bool,
    "won": Count,
    "lost": Count,
}
FILE = group("File", file=str, sha256=str)
ORIGIN = group("Origin", network=str, layer=str, weight=float | None, learned=str, file=FILE | None)
CONTROL = group(
    "Control", control=str, accuracy=Share, interval=Interval, fault=str | None, **DIFFERENCE
)
CHOICE = group("Choice", keys=Words, reason=str)
NEXT = group("Next", reason=str, command=str)
COPIES = group("Copies", pictures=Count, in_both_parts=Count, with_different_labels=Count)
CURVE = group(
    "FewLabelsCurve", mean=list[Share], interval=list[Interval | None], each=list[list[Share]]
)
LAYER = group("Layer", layer=str, kind=str, output=list[Count], parameters=Count, macs=Count)
RUN = group(
    "ListedRun",
    names=list[str],
    tags=list[str],
    settings=Words,
    seeds=list[Count],
    versions=list[str],
    each=list[Share],
    mean=Share | None,
    interval=Interval | None,
    against=group(
        "Against",
        **DIFFERENCE
        | {
            "difference_interval": Interval | None,
            "won": Count | None,
            "lost": Count | None,
            "seeds": Count,
        },
    )
    | None,
    reason=str,
)
REPRODUCE = group(
    "Reproduce",
    settings=Words,
    not_in_settings=list[str],
    data=dict[str, str],
    stages=list[Words],
    network_file=str | None,
)

# Key -> (type, what it is), in the order of the file. None: a run that has no such number.
KEYS: dict[str, tuple[Any, str]] = {
    "schema_version": (Literal[SCHEMA], "the version of this description"),
    "name": (str | None, "`name` of the configuration"),
    "tags": (list[str], "`tags` of the configuration"),
    "verdict": (str | None, "the first sentence of the report"),
    "dataset": (str, "`dataset` of the configuration"),
    "classes": (list[str], "their names, in the order of the confusion matrix"),
    "images": (
        group("Images", train=Count, test=Count, skipped=Count, copies=COPIES | None),
        "number of training images, of "
        "those that the run is scored on, and of files of pictures that could not be read; of pictures of one's own "
        "also of those that are there more than once, of test pictures that are training pictures too, and of those "
        "that are there with different labels",
    ),
    "image": (list[Count], "height, width and channels"),
    "validation": (
        Count,
        "if not 0, all test results are on a validation set of that many training images",
    ),
    "network": (str, "`network` of the configuration"),
    "parameters": (Count, "of the network"),
    "layers": (
        list[LAYER],
        "of the network: shape of the output, and multiply-accumulates of an image",
    ),
    "variant": (str, "the rung"),
    "device": (str | None, "what the training ran on"),
    "training": (
        str,
        "`training` of the configuration, `none` where nothing was trained or fitted",
    ),
    "start": (FILE | None, "the file whose weights the run started from; null if they were random"),
    "features": (
        list[ORIGIN],
        "where the features come from, for each part that is joined; weight: its factor",
    ),
    "extraction": (
        group(
            "Extraction",
            dimensions=Count,
            odd_dimensions=Count,
            parts=list[Count],
            images_per_second=Annotated[float, Field(ge=0)],
        )
        | None,
        "numbers of features of an image, of all and "
        "of each part, and of differences from its mirror image; speed of the first part",
    ),
    "batch_size": (Count | None, "images of a training step"),
    "epochs": (Count | None, "begun passes over the training images"),
    "passes": (
        float | None,
        "passes over the training images, where the last may be a part of one",
    ),
    "steps": (Count | None, "training steps"),
    "seed": (Count, "`seed` of the configuration"),
    "versions": (dict[str, str], "version of each artifact, by role"),
    "loss": (list[float] | None, "of the training, by epoch"),
    "accuracy": (list[Share] | None, "on the training images, by epoch"),
    "divergence": (
        list[float] | None,
        "of latent distributions from the prior, nats per image, by epoch",
    ),
    "curves": (
        dict[Literal["step", "loss", "accuracy", "divergence"], list[float]] | None,
        "points of the curves: means over the steps around each `step`",
    ),
    "validation_curve": (
        group(
            "ValidationCurve",
            step=list[Count],
            loss=list[float],
            accuracy=list[Share] | None,
            best_epoch=Count,
            patience=Count,
            stopped=bool,
            epochs_at_most=Count,
            seconds=Seconds,
        )
        | None,
        "measured on the validation images after each epoch; stopped: whether the training ended early",
    ),
    "loss_change": (
        group("LossChange", first=float, last=float, fell=float) | None,
        "the loss of the first and last epoch, and by which share of the first it fell",
    ),
    "reconstruction_loss": (
        group("ReconstructionLoss", training=float | None, test=float) | None,
        "mean squared error of normalised values, in the last epoch and afterwards on test images",
    ),
    "average_image_loss": (
        float | None,
        "the loss of reconstructing every training image as the average image",
    ),
    "guess_loss": (float | None, "the cross-entropy of guessing"),
    "fit": (
        list[Words] | None,
        "of each layer that was fitted to patches: what was fitted, seconds, objective by iteration",
    ),
    "seconds_by_pass": (list[dict[str, Seconds]] | None, "of the training, by epoch"),
    "seconds_by_operation": (dict[str, Seconds] | None, "of the training or the fit"),
    "memory_by_purpose": (dict[str, Count] | None, "bytes of a training step"),
    "answered_by": (str | None, "the role of the artifact whose accuracy is `test_accuracy`"),
    "images_per_decision": (
        Count,
        "the number of images over which a decision of a classifier of features is the mean",
    ),
    "test_loss": (float | None, "the cross-entropy of a network that classifies"),
    "test_accuracy": (
        Share | None,
        "of the network if it classifies, else of the primary classifier of its features",
    ),
    "accuracy_interval": (Interval | None, "Wilson's 95 % interval of `test_accuracy`"),
    "balanced_accuracy": (Share | None, "the mean of the accuracies by class"),
    "wrong": (Count | None, "the number of images that were misclassified"),
    "controls": (
        list[CONTROL] | None,
        "this run minus each control on the same images, with Bonett and Price's 95 % interval; "
        "won, lost: images that only this run, or only the control, classifies correctly; "
        "fault: why an untrained network is no control, chance or pixels",
    ),
    "gains": (
        dict[str, group("Gain", **DIFFERENCE)],
        "the same for the primary classifier against itself on other features, by their role",
    ),
    "control_accuracy": (
        Share | None,
        "of the primary classifier on features of the untrained network",
    ),
    "raw_pixel_accuracy": (Share | None, "of the primary classifier on raw pixels"),
    "per_class": (
        dict[str, Share | None] | None,
        "accuracy by class; null for a class without images",
    ),
    "per_class_intervals": (dict[str, Interval | None] | None, "their 95 % intervals (Wilson)"),
    "confusion": (list[list[Count]] | None, "rows are true classes, columns predictions"),
    "changed_copies": (
        group(
            "ChangedCopies",
            pictures=Count,
            among=Count,
            found=Share,
            interval=Interval,
            controls=list[CONTROL],
        )
        | None,
        "of pictures without labels: the share of changed copies of test pictures that find their "
        "original first among so many, and the same by the features of each control, as in `controls`",
    ),
    "likeness": (
        group("Likeness", clusters=list[Count], near_copies=Count, near_from=float) | None,
        "of pictures without labels: sizes of the clusters, pairs of near copies, and the cosine of "
        "their features from which on they are",
    ),
    "share": (bool, "whether pages show pictures of one's own and their names"),
    "reference": (
        group("Reference", variant=str, largest=float, tensor=str, mean=float) | None,
        "how far the weights are from those of the first of `runs` that differs in `variant` alone",
    ),
    "layer_movement": (
        dict[str, float] | None,
        "distance of each layer's weights from the initial ones, relative to these",
    ),
    "seconds": (dict[str, Seconds], "of each stage, by role"),
    "seconds_compiling": (Seconds, "of all stages, beside `seconds`"),
    "images_per_second": (float | None, "of the training"),
    "peak_memory_bytes": (dict[str, Count], "of the process of each stage, by role"),
    "bytes": (dict[str, Count], "of the files of each artifact, by role"),
    "machines": (list[Words], "the machines of the stages, with cores, threads and libraries"),
    "checks": (list[Words], "checks before a first use on a GPU, with their seconds"),
    "went_on": (
        Words | None,
        "the shorter training that this one goes on from, and after which step",
    ),
    "svm": (
        group(
            "Svm",
            backend=str,
            kernel=str,
            C=float,
            gamma=float | None,
            support_vectors=Count,
            accuracy=Share,
        )
        | None,
        "the support vector machine",
    ),
    "weights": (str, "the file with the final weights"),
    "evaluations": (
        dict[str, Share],
        "accuracy of every classifier of the run and of its controls, by role",
    ),
    "evaluation_intervals": (dict[str, Interval], "their 95 % intervals (Wilson)"),
    "few_labels": (
        group(
            "FewLabels",
            counts=list[Count],
            draws=Count,
            curves=dict[str, CURVE],
            all=group("AllLabels", labels=Count, accuracy=dict[str, Share]),
        )
        | None,
        "accuracy by number of labels, of each draw too; all: with every label",
    ),
    "seeds": (
        group(
            "Seeds", seeds=list[Count], scores=dict[str, group("Score", each=list[Share], **OVER)]
        )
        | None,
        "accuracies of the run and of those of `runs` with another seed, with the 95 % interval of their mean (Student's t)",
    ),
    "runs": (
        list[RUN] | None,
        "the runs of `runs` with the images of this one, those that differ in their seed alone "
        "together; against: the difference from this run, image by image, or over the `seeds` that "
        "both have; won, lost: images that only they, or only this run, classify correctly",
    ),
    "control_settings": (
        dict[str, Any] | None,
        "settings of the untrained network that are not the run's",
    ),
    "choices": (list[CHOICE], "settings that rules have chosen, each with the reason"),
    "warnings": (list[str], "what makes the numbers of pictures of one's own uncertain"),
    "test_scores": (
        group("TestScores", rows=str, run=Count, all=Count),
        "how often test images were scored: of this training, "
        "and of all on this data set in this results folder",
    ),
    "program": (
        Words,
        "version of Kernel Ladder, git commit, and whether the files were those of it",
    ),
    "reproduce": (
        REPRODUCE,
        "the settings of the run, those that cannot be written so, sha256 of the data, and the stages",
    ),
    "targets": (
        list[Words],
        "`targets` of the configuration, each with what was `reached` and whether it is `met`",
    ),
    "next": (NEXT | None, "what most likely helps a run that is not better than its controls"),
}


def schema() -> dict[str, Any]:
    """The JSON Schema of summary.json."""
    fields: dict[str, Any] = {
        key: (kind, Field(description=text)) for key, (kind, text) in KEYS.items()
    }
    model = create_model(
        "summary.json of a report", __config__=ConfigDict(extra="forbid"), **fields
    )
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}
