"""What a run shows, in one sentence: what was run, its accuracy, and its difference from each
control, with 95 % intervals.

inputs are artifacts by role, as in report.py. A difference is counted on the same images, from the
answers that both have kept.
"""

import numpy as np

from ladder.classifiers import metrics
from ladder.pages import facts, intervals, reproduce, roles, templates
from ladder.pages.sections import features
from ladder.store import lineage

# Control -> (its name in a sentence, its name and note in the chart), in the order of the sentence.
# by tail
OF_FEATURES = {
    "_random": ("the untrained encoder", "Untrained encoder"),
    "_strong": ("the best cheap untrained encoder", "Best cheap untrained encoder"),
    "_pixels": ("raw pixels", "Raw pixels"),
}
OF_CLASSIFIER = {
    **{
        f"{role}_start": (
            f"{classifier.a} on the encoder that it started from",
            f"{classifier.name}, encoder at the start",
        )
        for role, classifier in roles.PRIMARY.items()
    },
    "linear_pixels": ("logistic regression on raw pixels", "Logistic regression, raw pixels"),
}
# Why an untrained encoder is no control; key of `numbers` -> words.
FAULTS = {"chance": "no better than the most frequent class", "pixels": "below raw pixels"}
FEW = 100  # images: of fewer a verdict says "only"
MAJORITY = ("the most frequent class alone", "Most frequent class")
UNTRAINED_OTHER = (
    "an untrained encoder with settings of its own",
    "Untrained encoder, other settings",
)
HELPED = {
    "trained": "training",
    "fitted": "fitting to patches",
    "given": "using these weights",
    "untrained": "using random weights",
}
OWN = {
    "trained": "Trained {}",
    "fitted": "Fitted {}",
    "given": "Given {}",
    "untrained": "Untrained {}",
}


def numbers(inputs):
    """{"interval": of the accuracy, "controls": [{"control", "accuracy", "interval", "difference",
    "difference_interval", "paired", "won", "lost", "fault"}]}, JSON-able; None if nothing was
    classified. fault: a key of FAULTS, None for a control that is one."""
    own = facts.predictions(inputs)
    if own is None:
        return None
    n = inputs["data"].metrics["test"]
    pixels = facts.accuracy(inputs, f"{lineage.primary_classifier(inputs)}_pixels")
    _, chance = _answers(inputs, "majority")
    against = [_control(name, *_answers(inputs, name), own, inputs) for name in controls(inputs)]
    return {
        "interval": list(intervals.wilson(own.metrics["accuracy"], n)),
        "controls": [{**control, "fault": fault(control, chance, pixels)} for control in against],
    }


def fault(control, chance, pixels):
    """Why an entry of `numbers` is no control, a key of FAULTS, or None; chance, pixels: accuracies
    of the most frequent class alone, and of raw pixels, None without them.

    Only untrained encoders are judged: raw pixels and the most frequent class are what they are.
    """
    if not control["control"].endswith(("_random", "_strong")):
        return None
    if control["interval"][0] <= chance:
        return "chance"
    return "pixels" if pixels is not None and control["accuracy"] < pixels else None


def controls(inputs):
    """The controls that the run has, by role, and 'majority' for a network that classifies, where
    there is no other one, and where that class has most of the images.
    """
    classifier, classifies = lineage.primary_classifier(inputs), "evaluate" in inputs
    wanted = (
        [f"{classifier}_start", "linear_pixels"]
        if classifies
        else [f"{classifier}{tail}" for tail in OF_FEATURES]
    )
    present = [role for role in wanted if role in inputs]
    return [*present, "majority"] if classifies or not present or unbalanced(inputs) else present


def unbalanced(inputs):
    """Whether a class has many more of the images that the run is scored on than the others."""
    return metrics.unbalanced(facts.predictions(inputs).metrics["confusion"])


def _answers(inputs, name):
    """(predictions, accuracy) of a control on the images that the run is scored on."""
    if name != "majority":
        return inputs[name].array("predictions.npy"), inputs[name].metrics["accuracy"]
    labels = np.asarray(inputs["data"].array("test_labels.npy"))
    always = np.full(len(labels), majority(inputs))
    return always, float(np.mean(labels == always))


def majority(inputs):
    """The class with the most training images; among equals, the first."""
    return int(np.bincount(np.asarray(inputs["data"].array("train_labels.npy"))).argmax())


def _control(name, predictions, accuracy, own, inputs):
    labels = inputs["data"].array("test_labels.npy")
    difference = intervals.counted(labels, own.array("predictions.npy"), predictions)
    return {
        "control": name,
        "accuracy": accuracy,
        "interval": list(intervals.wilson(accuracy, len(labels))),
        **difference.numbers,
    }


# In words.


def sentence(inputs, against, networks, params, runs):
    """The verdict of `numbers` in one sentence; networks: titles, as of features.networks; params:
    of the report; runs: of its list, as of comparisons.runs.
    """
    own, n = facts.predictions(inputs), inputs["data"].metrics["test"]
    other = params.get("control_settings")
    reached = intervals.share(own.metrics["accuracy"], n)
    valid = [control for control in against["controls"] if not control["fault"]]
    differences = [
        intervals.words(difference(control), names(control, other)[0])["against"]
        for control in valid
    ] + [_no_control(control, n, other) for control in against["controls"] if control["fault"]]
    differences += [intervals.words(_ahead_of(row), name)["against"] for name, row in beside(runs)]
    concluded, space = conclusion(inputs, against["controls"], other), templates.NARROW_SPACE
    balanced = intervals.balanced(own.metrics)
    return (
        f"{_subject(inputs, networks, params)} classifies {reached['text']} of "
        f"{counted(n, f'{facts.scored_on(inputs)} image')} of "
        f"{templates.dataset_title(facts.params(inputs, 'data')['dataset'])} correctly "
        f"(95{space}% interval {reached['interval_text']}{space}%{f', {balanced}' if balanced else ''}): "
        f"{templates.listed(differences)}{f'; {concluded}' if concluded else ''}."
    )


def counted(n, what):
    """'60,000 test images', 'only 60 test images'."""
    return f"{'only ' if n < FEW else ''}{templates.counted(n, what)}"


def _no_control(control, n, other):
    """'the untrained encoder, 26.7 %, is no control (below raw pixels)'."""
    reached = intervals.share(control["accuracy"], n)["text"]
    return f"{names(control, other)[0]}, {reached}, is no control ({FAULTS[control['fault']]})"


def _subject(inputs, networks, params):
    how, images, (titles, untrained) = facts.how(inputs), inputs["data"].metrics["train"], networks
    products = _products(**reproduce.named_multipliers(inputs, params))
    if "evaluate" in inputs:
        trained = (
            f"trained on {templates.counted(images, 'labelled image')}"
            if "train" in inputs
            else _weights(inputs, how)
        )
        return f"{titles[0]}, {trained}{products},"
    labelled = features.with_labels(features.origins(inputs))
    learned = {
        "trained": f"trained {'partly with' if labelled else 'without'} labels on {templates.counted(images, 'image')}",
        "fitted": f"fitted to patches of {templates.counted(images, 'image')} "
        f"{'and partly trained with' if labelled else 'without'} labels",
    }
    classifier = roles.PRIMARY[lineage.primary_classifier(inputs)].A
    beside = f" and on those of {templates.listed(untrained)}" if untrained else ""
    first = (
        titles[0][:1].lower() + titles[0][1:] if titles[0].startswith(("A ", "An ")) else titles[0]
    )
    return (
        f"{classifier} on features of {templates.listed([first, *titles[1:]])}, "
        f"{learned.get(how) or _weights(inputs, how)}{products},{beside}"
    )


def _products(multiplier, test_multiplier):
    """What the network multiplies with, in words; '' where all is exact."""
    if {multiplier, test_multiplier} == {"exact"}:
        return ""
    tested = "" if test_multiplier == multiplier else f" and tested with {test_multiplier}"
    return f" with multiplier {multiplier}{tested}"


def beside(runs):
    """[(name, row)] of the runs of a list that the first screen compares: of one or two."""
    rows = [
        row
        for row in runs or ()
        if row["interval"] and (row["against"] or {}).get("difference_interval")
    ]
    return [(_run_name(row), row) for row in rows] if len(rows) <= 2 else []


def _run_name(row):
    settings = (f"{key} {templates.setting(value)}" for key, value in row["settings"].items())
    return ", ".join(row["names"] or settings)


def _ahead_of(row):
    """This run minus the one of the row, whose numbers are the other way round."""
    low, high = row["against"]["difference_interval"]
    return intervals.Difference(-row["against"]["difference"], (-high, -low), True)


def _weights(inputs, how):
    return f"with the weights of {facts.start(inputs)['file']}" if how == "given" else "not trained"


def difference(control):
    """The intervals.Difference of an entry of `numbers`."""
    return intervals.Difference(
        control["difference"],
        tuple(control["difference_interval"]),
        control["paired"],
        control["won"],
        control["lost"],
    )


def names(control, other=None):
    """The name of an entry of `numbers` in a sentence, and in the chart; other: as in
    `sentence`.
    """
    role = control["control"]
    if role == "majority":
        return MAJORITY
    if other and role.endswith("_random"):
        return UNTRAINED_OTHER
    return OF_CLASSIFIER.get(role) or OF_FEATURES[role[role.index("_") :]]


def conclusion(inputs, controls, other=None):
    """What follows, in a few words: 'nothing shows that training helped'; '' without a control that
    says anything.
    """
    by_name = {control["control"]: control for control in controls if not control["fault"]}
    classifier = lineage.primary_classifier(inputs)
    if start := by_name.get(f"{classifier}_start"):
        name = roles.PRIMARY[classifier].the
        return intervals.concluded(
            difference(start), f"the network is better than {name}", f"{name} is better"
        )
    pixels = by_name.get(f"{classifier}_pixels")
    if untrained := [by_name[name] for name in by_name if name.endswith(("_random", "_strong"))]:
        random = max(untrained, key=lambda control: control["accuracy"])
        own, work = (words[facts.how(inputs)] for words in (OWN, HELPED))
        better, worse = f"{work} helped", f"the features were better before {work}"
        # it is not the encoder before the work, so nothing follows for the work
        if other or random["control"].endswith("_strong"):
            better, worse = (
                f"the {own.format('encoder').lower()} is better",
                "the untrained one is better",
            )
        below = pixels and intervals.kind(pixels["difference_interval"]) == "below"
        return intervals.concluded(difference(random), better, worse) + (
            ", and raw pixels are better" if below else ""
        )
    if pixels:
        return intervals.concluded(
            difference(pixels), "the features are better than raw pixels", "raw pixels are better"
        )
    if linear := by_name.get("linear_pixels"):
        return intervals.concluded(
            difference(linear),
            "the network is better than logistic regression",
            "logistic regression is better",
        )
    return ""


def first_screen(inputs, run):
    """The first sentence of a report and its chart, as `drawn`, with the name of the most frequent
    class if it is a control; None if nothing was classified. run: the summary.
    """
    if run["verdict"] is None:
        return None
    other, classes = run["control_settings"], run["classes"]
    named = [(control, names(control, other)[1]) for control in run["controls"]]
    always = any(control["control"] == "majority" for control, _ in named)
    listed = [
        ({"control": "", "accuracy": row["mean"], "interval": row["interval"]}, name)
        for name, row in beside(run["runs"])
    ]
    encoder = "network" if "evaluate" in inputs else "encoder"
    reached = intervals.within(run["test_accuracy"], run["accuracy_interval"])
    return {
        **drawn(run, OWN[facts.how(inputs)].format(encoder), reached, listed + named),
        "majority": classes[majority(inputs)] if always else None,
    }


def drawn(run, name, reached, controls):
    """{"sentence", "conclusion", "chart": the run and its controls on one axis}; reached: by the
    run, as intervals.share; controls: [(an entry of `numbers`, its name)].
    """
    sentence, _, concluded = run["verdict"].partition("; ")
    rows = [
        {
            "name": name,
            "floor": control["control"] == "majority",
            **intervals.within(control["accuracy"], control["interval"]),
        }
        for control, name in controls
    ]
    own = {"key": "own", "name": name, "note": "this run", **reached}
    return {
        "sentence": sentence,
        "conclusion": concluded,
        "chart": intervals.chart([own, *rows]),
        "formula": intervals.PAIRED,
        "majority": None,
        "note": "",
    }
