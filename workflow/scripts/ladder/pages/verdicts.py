"""What a run shows, in one sentence: what was run, its accuracy, and its difference from each control, with 95 % intervals.

inputs are artifacts by role, as in report.py. A difference is counted on the same images, from the answers that both have kept.
"""

import numpy as np

from ladder.classifiers import metrics
from ladder.pages import feature_sections, intervals, report_sections, roles, templates
from ladder.store import lineage
from ladder.store.roles import PIXELS, RANDOM, START, Role

# Control -> (its name in a sentence, its name and note in the chart), in the order of the sentence.
OF_FEATURES = {RANDOM: ("the untrained encoder", "Untrained encoder"), PIXELS: ("raw pixels", "Raw pixels")}   # by kind
OF_CLASSIFIER = {
    **{str(Role(judge, START)): (f"{named.a} on the encoder that it started from", f"{named.name}, encoder at the start")
       for judge, named in roles.JUDGES.items()},
    str(Role("linear", PIXELS)): ("a linear classifier of raw pixels", "Linear, raw pixels")}
MAJORITY = ("the most frequent class alone", "Most frequent class")
MADE = {"trained": "training", "fitted": "fitting to patches", "given": "using these weights",
        "untrained": "using random weights"}
OWN = {"trained": "Trained {}", "fitted": "Fitted {}", "given": "Given {}", "untrained": "Untrained {}"}


def numbers(inputs):
    """{"interval": of the accuracy, "controls": [{"control", "accuracy", "interval", "difference", "difference_interval",
    "paired", "won", "lost"}]}, JSON-able; None if nothing was classified."""
    own = report_sections.verdict(inputs)
    if own is None:
        return None
    n = inputs["data"].metrics["test"]
    return {"interval": list(intervals.wilson(own.metrics["accuracy"], n)),
            "controls": [_control(name, *_answers(inputs, name), own, inputs) for name in controls(inputs)]}


def controls(inputs):
    """The controls that the run has, by role, and 'majority' for a network that classifies or where there is no other one."""
    judge = lineage.judge(inputs)
    of_features = [str(Role(judge, kind)) for kind in OF_FEATURES]
    of_classifier = [str(Role(judge, START)), str(Role("linear", PIXELS))]
    found = [role for role in (of_classifier if "evaluate" in inputs else of_features) if role in inputs]
    return [*found, "majority"] if "evaluate" in inputs or not found else found


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
    won, lost = metrics.won_and_lost(labels, own.array("predictions.npy"), predictions)
    difference = intervals.paired(won, lost, len(labels))
    return {"control": name, "accuracy": accuracy, "interval": list(intervals.wilson(accuracy, len(labels))),
            "difference": difference.value, "difference_interval": list(difference.interval), "paired": True,
            "won": won, "lost": lost}


# In words.

def sentence(inputs, found, networks, dataset):
    """The verdict of `numbers` in one sentence; networks: titles of those that give the features; dataset: its title."""
    data, own = inputs["data"], report_sections.verdict(inputs)
    n = data.metrics["test"]
    told = intervals.share(own.metrics["accuracy"], n)
    against = [_against(control) for control in found["controls"]]
    concluded, space = conclusion(inputs, found), templates.NARROW_SPACE
    return (f"{_subject(inputs, networks)} classifies {told['text']} of {n:,} "
            f"{metrics.scored_on(data.manifest['spec']['params'])} images of {dataset} correctly "
            f"(95{space}% interval {told['interval_text']}{space}%): {templates.listed(against)}"
            f"{f'; {concluded}' if concluded else ''}.")


def _subject(inputs, networks):
    how, images = report_sections.how(inputs), inputs["data"].metrics["train"]
    if "evaluate" in inputs:
        trained = f"trained on {images:,} labelled images" if "train" in inputs else _weights(inputs, how)
        return f"{networks[0]}, {trained},"
    labelled = feature_sections.with_labels(feature_sections.origins(inputs))
    told = {"trained": f"trained {'partly with' if labelled else 'without'} labels on {images:,} images",
            "fitted": f"fitted to patches of {images:,} images {'and partly trained with' if labelled else 'without'} labels"}
    judge = roles.JUDGES[lineage.judge(inputs)].A
    return f"{judge} on features of {_in_sentence(networks)}, {told.get(how) or _weights(inputs, how)},"


def _weights(inputs, how):
    return f"with the weights of {report_sections.start(inputs)['file']}" if how == "given" else "not trained"


def _in_sentence(networks):
    first, *others = networks
    return templates.listed([first[:1].lower() + first[1:] if first.startswith(("A ", "An ")) else first, *others])


def _against(control):
    told = intervals.told(difference(control))
    return f"{told['points']} points against {_names(control)[0]} ({told['interval_text']}, {told['luck_text']})"


def difference(control):
    """The intervals.Difference of an entry of `numbers`."""
    return intervals.Difference(control["difference"], tuple(control["difference_interval"]), control["paired"], control["won"],
                                control["lost"])


def _names(control):
    role = control["control"]
    if role == "majority":
        return MAJORITY
    return OF_CLASSIFIER.get(role) or OF_FEATURES[Role.parse(role).kind]


def conclusion(inputs, found):
    """What follows, in a few words: 'nothing shows that training helped'; '' without a control that says anything."""
    by_name, judge = {control["control"]: control for control in found["controls"]}, lineage.judge(inputs)
    if start := by_name.get(str(Role(judge, START))):
        svm = roles.JUDGES[judge].the
        return _said(start, f"the network is better than {svm}", f"nothing shows that the network is better than {svm}",
                     f"{svm} is better")
    pixels = by_name.get(str(Role(judge, PIXELS)))
    worse = pixels and not difference(pixels).luck and pixels["difference"] < 0
    if random := by_name.get(str(Role(judge, RANDOM))):
        made = MADE[report_sections.how(inputs)]
        said = _said(random, f"{made} helped", f"nothing shows that {made} helped", f"{made} did harm")
        return said + (", and raw pixels are better" if worse else "")
    if pixels:
        return _said(pixels, "the features are better than raw pixels",
                     "nothing shows that the features are better than raw pixels", "raw pixels are better")
    if linear := by_name.get(str(Role("linear", PIXELS))):
        return _said(linear, "the network is better than a linear classifier",
                     "nothing shows that the network is better than a linear classifier", "a linear classifier is better")
    return ""


def _said(control, better, unknown, worse):
    if difference(control).luck:
        return unknown
    return better if control["difference"] > 0 else worse


def chart(inputs, found):
    """The accuracy of the run and of its controls on one axis, as intervals.chart, for the first screen."""
    own, n = report_sections.verdict(inputs), inputs["data"].metrics["test"]
    name = OWN[report_sections.how(inputs)].format("network" if "evaluate" in inputs else "encoder")
    rows = [{"key": "own", "name": name, "note": "this run", **intervals.share(own.metrics["accuracy"], n)}]
    for control in found["controls"]:
        told = intervals.told(difference(control))
        rows.append({"key": "", "name": _names(control)[1], "note": f"{told['points']} points, {told['luck_text']}",
                     "floor": control["control"] == "majority", **intervals.share(control["accuracy"], n)})
    return intervals.chart(rows)
