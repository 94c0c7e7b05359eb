"""The report's sections on the accuracy: of the run, and of the classifier of features beside a
network that classifies.
"""

from ladder.pages import facts, intervals, roles, verdicts
from ladder.store import lineage


def result(inputs, numbers):
    """The accuracy with its interval (intervals.share), the number of errors, the loss of guessing,
    and "controls": how many images only the run, or only each control, classifies correctly. None
    if nothing was classified.
    """
    if facts.predictions(inputs) is None:
        return None
    return {
        **intervals.share(numbers["test_accuracy"], numbers["images"]["test"]),
        "wrong": numbers["wrong"],
        "balanced": intervals.balanced(numbers),
        "guess_loss": numbers["guess_loss"],
        "controls": [
            {"name": verdicts.names(control, numbers["control_settings"])[0], **control}
            for control in numbers["controls"]
        ],
    }


def wrong(inputs, score):
    """The number of images that an artifact's predictions are wrong for."""
    n = inputs["data"].metrics["test"]
    return n - round(score.metrics["accuracy"] * n)


def beside_the_network(inputs, numbers):
    """The layer that the primary classifier reads; None if it is the run's own, or there is
    none.
    """
    if "evaluate" not in inputs or lineage.primary_classifier(inputs) is None:
        return None
    return {"layer": facts.params(inputs, "features").get("features_layer")}


def of_features(inputs):
    """The primary classifier of the features: its names in sentences (roles.Classifier), its
    accuracy, and its controls.

    gain: a paired comparison with the same classifier of the untrained network's features;
    gain_over_pixels: of raw pixels; gain_of_labels: of the features of the encoder before labels
    trained it. None without features.
    """
    role = lineage.primary_classifier(inputs)
    if role is None:
        return None
    head = facts.head(inputs)
    return {
        **roles.PRIMARY[role]._asdict(),
        "accuracy": facts.accuracy(inputs, role),
        "accuracies": _accuracies(inputs, role),
        "gain": _gain(inputs, role, f"{role}_random"),
        "gain_over_pixels": _gain(inputs, role, f"{role}_pixels"),
        "gain_of_labels": _gain(inputs, role, f"{role}_start")
        if head and not head["frozen"]
        else None,
    }


def gains(inputs):
    """Role -> intervals.Difference.numbers of the primary classifier against itself on the features
    of other encoders.
    """
    role = lineage.primary_classifier(inputs)
    others = [f"{role}{tail}" for tail in roles.ENCODERS if tail and f"{role}{tail}" in inputs]
    return {
        other: facts.difference(inputs, inputs[role], inputs[other]).numbers for other in others
    }


def _accuracies(inputs, classifier):
    """The accuracies of the primary classifier, its controls and, if it classifies, the network on
    one axis.
    """
    classifies, how, n = "evaluate" in inputs, facts.how(inputs), inputs["data"].metrics["test"]
    names = {
        "how": how if classifies else how.capitalize(),
        "classifier": roles.PRIMARY[classifier].name,
    }
    rows = {"evaluate": ("The network itself", f"no {names['classifier']}")} if classifies else {}
    rows |= {
        f"{classifier}{tail}": row
        for tail, row in (roles.CLASSIFYING if classifies else roles.AUTOENCODER).items()
    }
    return intervals.chart(
        [
            {
                "key": "own" if role == lineage.answering(inputs) else "",
                "name": name.format(**names),
                "note": note,
                **intervals.share(inputs[role].metrics["accuracy"], n),
            }
            for role, (name, note) in rows.items()
            if role in inputs
        ]
    )


def _gain(inputs, role, control):
    """The Difference in words (intervals.words) with "won", images that only `role` classifies
    correctly, and "lost".

    None without the control.
    """
    if control not in inputs:
        return None
    difference = facts.difference(inputs, inputs[role], inputs[control])
    return {"won": difference.won, "lost": difference.lost, **intervals.words(difference)}
