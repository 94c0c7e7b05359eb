"""The one number of features of pictures without labels: how often a changed copy of a picture
finds its original first, beside the same by the controls.

inputs are artifacts by role, as in report.py.
"""

from ladder.pages import facts, intervals, templates, verdicts

WHAT = {"random": "_random", "pixels": "_pixels"}  # kind -> the control's tail in verdicts.py
LIMIT = (
    "The number measures resistance to these changes. It does not say whether the features tell "
    "apart what you care about: look at the neighbours of pictures that you know."
)


def numbers(inputs):
    """{"pictures": that were changed, "among": that each is compared with, "found": the share,
    "interval", "controls": as of verdicts.numbers}; None of pictures with labels.
    """
    if "neighbours" not in inputs:
        return None
    artifact = inputs["neighbours"]
    kinds, hits = artifact.metrics["kinds"], artifact.array("found.npy")
    shares = artifact.metrics["found"]
    return {
        "pictures": len(hits),
        "among": artifact.metrics["compared_with"],
        "found": shares[""],
        "interval": list(intervals.wilson(shares[""], len(hits))),
        "controls": [
            {
                "control": kind,
                "accuracy": shares[kind],
                "interval": list(intervals.wilson(shares[kind], len(hits))),
                "fault": None,
                **_against(hits[:, 0] == 1, hits[:, column] == 1).numbers,
            }
            for column, kind in enumerate(kinds)
            if kind
        ],
    }


def _against(own, other):
    return intervals.paired(int((own & ~other).sum()), int((other & ~own).sum()), len(own))


def sentence(inputs, measured, networks):
    """`numbers` in one sentence; networks: titles, as of features.networks."""
    reached = intervals.within(measured["found"], measured["interval"])
    differences = [
        intervals.words(verdicts.difference(control), _name(control)[0])["against"]
        for control in measured["controls"]
    ]
    concluded, space = conclusion(inputs, measured["controls"]), templates.NARROW_SPACE
    pictures = verdicts.counted(measured["pictures"], "picture")
    against = f": {templates.listed(differences)}" if differences else ""
    return (
        f"By features of {templates.listed(_titles(networks))}, {_learned(inputs)}, {reached['text']} of "
        f"{pictures} are recognised among {measured['among']:,} after a crop and a change of brightness "
        f"and contrast (95{space}% interval {reached['interval_text']}{space}%){against}"
        f"{f'; {concluded}' if concluded else ''}."
    )


def _titles(networks):
    (first, *others), untrained = networks
    return [
        first[:1].lower() + first[1:] if first.startswith(("A ", "An ")) else first,
        *others,
        *untrained,
    ]


def _learned(inputs):
    images = templates.counted(inputs["data"].metrics["train"], "picture")
    return {
        "fitted": f"fitted to patches of {images} without labels",
        "trained": f"trained without labels on {images}",
        "given": "with the weights of a file",
        "untrained": "not trained",
    }[facts.how(inputs)]


def _name(control):
    return verdicts.OF_FEATURES[WHAT[control["control"]]]


def conclusion(inputs, controls):
    """What follows, in a few words; '' without a control."""
    by_kind = {control["control"]: control for control in controls}
    pixels = by_kind.get("pixels")
    if random := by_kind.get("random"):
        work = verdicts.HELPED[facts.how(inputs)]
        below = pixels and intervals.kind(pixels["difference_interval"]) == "below"
        return intervals.concluded(
            verdicts.difference(random),
            f"{work} made them more resistant to such changes",
            f"{work} made them less resistant to such changes",
        ) + (", and raw pixels are more resistant" if below else "")
    if pixels:
        return intervals.concluded(
            verdicts.difference(pixels),
            "they are more resistant to such changes than raw pixels",
            "raw pixels are more resistant to such changes",
        )
    return ""


def verdict(inputs, run):
    """The first screen, as report.html has it; run: the summary; None of pictures with labels."""
    measured = run["changed_copies"]
    if measured is None:
        return None
    name = verdicts.OWN[facts.how(inputs)].format("encoder")
    reached = intervals.within(measured["found"], measured["interval"])
    named = [(control, _name(control)[1]) for control in measured["controls"]]
    return {**verdicts.drawn(run, name, reached, named), "note": LIMIT}
