"""The best run on each data set: its interval, its lead over the next one, and what sets the two
apart. It is on the page as it is, without a script.
"""

import collections

from ladder.pages import intervals, templates
from ladder.pages.runs.answers import difference
from ladder.pages.runs.columns import WITH_INTERVAL

FIRST = ("dataset", "network", "variant")  # named before other settings
# Settings that change what a report shows, and nothing that was scored.
OF_REPORTS = {"runs", "controls", "feature_map", "label_counts"}


def leaders(runs):
    """The best run on each data set, the data set with the most runs first.

    Test images count, and a validation set or changed copies only where no run of the data set was
    scored on them. Each is {"dataset", "run": the Run, "what": the column's title, "count" of runs,
    "alike": of others with its score}, intervals.share, and if there is a next one "second", "lead"
    as intervals.words, and "apart": setting -> (its text, the second's).
    """
    scored = collections.defaultdict(list)
    for run in runs:
        if key := _scored_by(run):
            dataset = run.settings["dataset"]
            # two folders of a person's pictures have nothing in common
            own = run.about["data"] if dataset == "folder" else ""
            scored[dataset, own].append((key, run))
    order = sorted(scored.items(), key=lambda item: (-len(item[1]), item[0]))
    return [_leader(dataset, scores) for (dataset, _), scores in order]


def _scored_by(run):
    """The first of WITH_INTERVAL that a run has; None for one without."""
    return next((key for key in WITH_INTERVAL if key in run.numbers and key in run.ends), None)


def _leader(dataset, scores):
    key = next(key for key in WITH_INTERVAL if any(key == own_key for own_key, _ in scores))
    # of equal ones the first that was made
    ranked = sorted(
        (run for own_key, run in scores if own_key == key),
        key=lambda run: (-run.numbers[key], run.about["made"], run.version),
    )
    reported = {}
    for run in ranked:
        reported.setdefault(computed(run), run)
    first, *others = ranked = [*reported.values()]
    lower = [run for run in others if run.numbers[key] < first.numbers[key]]
    best = {
        "dataset": templates.dataset_title(dataset),
        "run": first,
        "what": WITH_INTERVAL[key].title,
        "count": len(ranked),
        "alike": len(others) - len(lower),
        **intervals.within(first.numbers[key], first.ends[key]),
    }
    if not lower:
        return best
    lead = intervals.words(difference(first, lower[0], key))
    apart_by = apart(first.settings, lower[0].settings)
    return {**best, "second": lower[0], "lead": lead, "apart": apart_by}


def computed(run):
    """The same for two reports of one run: its weights, its scores and all but OF_REPORTS."""
    own = {name: value for name, value in run.settings.items() if name not in OF_REPORTS}
    scores = [run.numbers.get(key) for key in WITH_INTERVAL]
    return run.about.get("train") or run.version, repr((scores, sorted(own.items())))


def apart(a, b):
    """Setting -> (text in a, text in b) where the two differ, those of both first; '–' for one that
    a run does not have.
    """
    order = sorted(
        a.keys() | b.keys(), key=lambda key: (not (key in a and key in b), key not in FIRST, key)
    )
    pairs = {
        key: tuple(templates.setting(run[key]) if key in run else "–" for run in (a, b))
        for key in order
    }
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
