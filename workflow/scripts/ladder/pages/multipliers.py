"""The page that compares multipliers by the accuracy, loss and time of the runs in the groups of
multiplier_runs.py.
"""

import math

import numpy as np

from ladder.arithmetic import multipliers
from ladder.errors import UserError
from ladder.pages import charts, curves, intervals, multiplier_costs, multiplier_errors, templates
from ladder.pages.multiplier_runs import ORDER, Arm, named, rank, row
from ladder.pages.run_table import CHARTED
from ladder.pages.spread import SHARES, spread
from ladder.progress import log

COLOURS = 6  # the first ones belong to the multipliers of ORDER, on every page
CURVE = 16  # minimum number of points of a curve
ROOM = 14  # percent of an axis's width that the text of a tick needs
NEAR = 0.1  # see near_chance
NEAR_CHANCE = {"kind": "", "text": "both near chance: nothing is shown"}
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def page(groups, costs=None):
    """The page as one HTML text; costs: the setting multiplier_costs."""
    return templates.render("multipliers.html", context(groups, costs))


def context(groups, costs=None):
    """All variables of the template."""
    arms = sorted({arm for group in groups for arm in group.arms}, key=lambda arm: arm.place)
    series = colours(arms)
    uses = list(dict.fromkeys(map(_use_of, arms)))
    labels = {
        arm: {
            "arm": arm,
            "id": number,
            "label": _label(arm, arms),
            "series": series[arm],
            "use": (_use_of(arm), uses.index(_use_of(arm)) + 1),
        }
        for number, arm in enumerate(arms)
    }
    shown = [_group(group, labels, costs or {}) for group in groups]
    kinds = [
        row["verdict"]["kind"] for group in shown for row in group["rows"] if row["verdict"]["kind"]
    ]
    return {
        "groups": shown,
        "networks": len({group.settings["network"] for group in groups}),
        "multipliers": len(
            {multiplier for arm in arms for multiplier in (arm.trained, arm.tested)} - {"exact"}
        ),
        "runs": sum(len(group.ran) for group in groups),
        "missing": sum(len(group.reasons) for group in groups),
        "verdicts": {kind: kinds.count(kind) for kind in ("below", "above", "within")},
        "compared": len(kinds),
        "first": _first(groups, labels),
        **_errors(groups, labels),
    }


def _first(groups, labels):
    """Accuracies with 95 % intervals on one axis, as intervals.chart, and "of": how many there are;
    None without any.

    Of each network its exact arm, and of the others the CHARTED whose difference from exact is
    largest, by network.
    """
    compared = [(group, arm, row(group, arm)) for group in groups for arm in group.runs]
    largest = sorted(
        range(len(compared)),
        key=lambda at: (not compared[at][1].exact, -abs(compared[at][2]["difference"] or 0)),
    )[:CHARTED]
    shown = [
        _first_row(*compared[at], labels[compared[at][1]]["label"], len(groups) > 1)
        for at in sorted(largest)
    ]
    return {**intervals.chart(shown), "of": len(compared)} if shown else None


def _first_row(group, arm, numbers, label, several):
    """A row for intervals.chart; several: whether it has to name its network."""
    network = f"{templates.network_title(group.settings['network'])}, " if several else ""
    return {
        "key": "own" if arm.exact else "",
        "name": f"{network}{label}",
        "note": _against_exact(group, arm, numbers),
        **intervals.within(*_accuracy(group, arm)),
    }


def _accuracy(group, arm):
    """(mean of an arm's accuracies, its 95 % interval: Student's t over the seeds; Wilson's where
    they do not differ).
    """
    mean = spread(group.accuracies(arm).values(), SHARES)
    tested = min(run.tested for run in group.runs[arm].values())
    return mean.mean, mean.interval or intervals.wilson(mean.mean, tested)


def _against_exact(group, arm, numbers):
    """The difference from exact with its interval, and what it shows, for the note of a row."""
    if arm.exact:
        return "the usual arithmetic"
    if numbers["difference"] is None:
        return ""
    if numbers["difference_low"] is None:
        return f"{intervals.points(numbers['difference'], _digits(numbers))} points"
    interval = numbers["difference_low"], numbers["difference_high"]
    near = ", near chance" if both_near_chance(group, arm) else ""
    return (
        intervals.words(intervals.Difference(numbers["difference"], interval, True))["against"]
        + near
    )


def colours(arms):
    """Arm -> number of its colour: its multiplier's for the first arm of a multiplier in ORDER,
    else a free one or 'rest'.
    """
    numbers, free = {}, list(range(COLOURS, 0, -1))
    for arm in arms:
        if arm.trained in ORDER and ORDER.index(arm.trained) + 1 in free:
            numbers[arm] = ORDER.index(arm.trained) + 1
            free.remove(numbers[arm])
    for arm in arms:
        if arm not in numbers:
            numbers[arm] = free.pop(0) if free else "rest"
    return numbers


def _label(arm, arms):
    """The arm's multiplier, with its differences from other arms with that multiplier."""
    same = [other for other in arms if other.trained == arm.trained]
    parts = [named(arm.trained)]
    if len({other.directions for other in same}) > 1:
        parts.append(_directions(arm))
    if arm.tested_otherwise:
        parts.append(f"tested with {named(arm.tested)}")
    if len({other.loss_scale for other in same}) > 1 and arm.loss_scale:
        parts.append(f"loss scale {templates.setting(arm.loss_scale)}")
    return ", ".join(parts)


def _directions(arm):
    if len(arm.directions) == len(multipliers.DIRECTIONS):
        return "forward and backward"
    return f"{' and '.join(name.replace('_grad', ' gradient') for name in arm.directions)} only"


def _group(group, labels, costs):
    """A group as the template draws it; labels: arm -> its label, number and colour."""
    arms = [{**labels[arm], "row": row(group, arm)} for arm in group.arms]
    ran = [arm for arm in arms if arm["arm"] in group.runs]
    trained = [arm for arm in ran if arm["row"]["train_seconds"] is not None]
    return {
        "title": templates.run_title(group.settings),
        "settings": {
            key: templates.setting(value) for key, value in arms[0]["row"]["settings"].items()
        },
        "tested": max((run.tested for run in group.ran), default=0),
        "legend": [
            {"key": arm["id"], "name": arm["label"], "series": arm["series"]} for arm in trained
        ],
        "rows": [_table_row(group, **arm) for arm in arms],
        "dots": _dots(group, ran) if ran else None,
        "costs": _costs(group, ran, costs),
        "curves": _curves(group, trained) if trained else None,
        "times": _times(trained),
    }


# The table.


def _table_row(group, arm, row, label, series, **_):
    seeds = sorted(group.runs.get(arm, {}).items())
    digits = max(intervals.decimals(_accuracy(group, arm)[1]), 1) if seeds else 0
    return {
        "label": label,
        "series": series,
        "reason": row["reason"],
        "seeds": [
            {"seed": seed, "report": run.summary["versions"]["report"]} for seed, run in seeds
        ],
        "accuracy": _cell(row, "test_accuracy", lambda value: f"{100 * value:.{digits}f}"),
        "difference": _cell(
            row,
            "difference",
            lambda value: intervals.points(value, _digits(row)),
            lambda value: f"{100 * value:.{_digits(row)}f}",
        ),
        "verdict": NEAR_CHANCE
        if both_near_chance(group, arm)
        else verdict(row, arm == group.exact, group.exact is not None),
        "seconds": {
            "text": ""
            if row["train_seconds"] is None
            else templates.duration(row["train_seconds"]),
            "value": row["train_seconds"],
        },
        "ratio": {
            "text": _multiple(row["train_seconds_ratio"]),
            "value": row["train_seconds_ratio"],
        },
        "loss": _cell(row, "final_loss", _loss_text(row["final_loss_deviation"])),
    }


def _cell(row, key, text, deviation_text=None):
    value, deviation = row[key], row[f"{key}_deviation"]
    return {
        "value": value,
        "text": "" if value is None else text(value),
        "deviation": "" if deviation is None else f"± {(deviation_text or text)(deviation)}",
    }


def _loss_text(deviation):
    """The format of a loss and of its deviation: as many decimals as two digits of the deviation
    have, if there is one.
    """
    if not deviation:
        return "{:.4g}".format
    return f"{{:.{max(0, 1 - math.floor(math.log10(deviation)))}f}}".format


def _digits(row):
    """Decimals of a row's difference and deviation in percent: those that its interval carries, at
    least 1; 2 without one.
    """
    low, high = row["difference_low"], row["difference_high"]
    return 2 if low is None else max(intervals.decimals((low, high)), 1)


def _multiple(ratio):
    return "" if ratio is None else f"{ratio:.2f}×"


def both_near_chance(group, arm):
    """Whether an arm and the exact one hardly classify: a difference between such says nothing of a
    multiplier.
    """
    if arm == group.exact or not (group.exact and arm in group.runs):
        return False
    return near_chance(group, arm) and near_chance(group, group.exact)


def near_chance(group, arm):
    """Whether the runs of an arm are on the first NEAR of the way from chance, the most frequent
    class, to 100 %.
    """
    runs = group.runs[arm].values()
    totals = [sum(row) for row in next(iter(runs)).summary["confusion"]]
    chance = max(totals) / sum(totals)
    return all(run.accuracy - chance < NEAR * (1 - chance) for run in runs)


def verdict(row, is_exact, has_exact):
    """The verdict on a row's difference from exact: {"kind": 'below', 'above', 'within' or '' for
    none, "text"}.
    """
    n, low, high = row["difference_seeds"], row["difference_low"], row["difference_high"]
    if is_exact or not row["seeds"]:
        return {"kind": "", "text": ""}
    if not n:
        return {
            "kind": "",
            "text": "no seed in common with exact" if has_exact else "no exact run to compare with",
        }
    if n == 1:
        return {"kind": "", "text": "one seed does not show the variation by chance"}
    if low is None and row["difference"] == 0:
        return {"kind": "within", "text": f"equal to exact with each of {n} seeds"}
    if low is None:
        return {"kind": "", "text": f"the same with each of {n} seeds: no confidence interval"}
    kind = intervals.kind((low, high))
    words = f"{'' if kind == 'within' else f'{kind} exact, '}{intervals.PHRASES[kind]}"
    low, high = (intervals.points(end, _digits(row)) for end in (low, high))
    return {"kind": kind, "text": f"{words}: {low} to {high} with {n} seeds"}


# Charts.


def _dots(group, arms):
    """Accuracies on one axis, a dot for each seed: {"rows", "ticks", "exact": the mean of exact},
    in percent of the axis.
    """
    values = [value for arm in arms for value in group.accuracies(arm["arm"]).values()]
    at = _widening(values)
    exact = spread(group.accuracies(group.exact).values())
    return {
        "rows": [
            {
                "label": arm["label"],
                "series": arm["series"],
                "mean": at(arm["row"]["test_accuracy"]),
                "dots": [
                    {
                        "at": at(value),
                        "seed": seed,
                        "value": value,
                        "text": f"seed {seed}: {templates.percent(value, 2)}",
                    }
                    for seed, value in sorted(group.accuracies(arm["arm"]).items())
                ],
            }
            for arm in arms
        ],
        "ticks": _with_room(
            [
                {"at": at(value / 100), "text": f"{text}{templates.NARROW_SPACE}%"}
                for value, text in _percentages(100 * min(values), 100 * max(values))
            ]
        ),
        "exact": at(exact.mean) if exact else None,
    }


def _costs(group, arms, costs):
    """The charts of accuracy against cost (multiplier_costs), and the multipliers whose cost is not
    known.
    """
    rows = [
        {
            "label": arm["label"],
            "use": arm["use"],
            "tested": arm["arm"].tested,
            "accuracy": arm["row"]["test_accuracy"],
            "near": near_chance(group, arm["arm"]),
        }
        for arm in arms
    ]
    exact = spread(group.accuracies(group.exact).values())
    return {
        "charts": multiplier_costs.drawn(
            templates.run_title(group.settings), rows, exact and exact.mean, costs
        ),
        "unknown": multiplier_costs.unknown(rows, costs),
    }


def _use_of(arm):
    """How the training of an arm multiplied, for a legend."""
    return f"trained with it, {_directions(arm)}" if arm.directions else "trained exactly"


def _widening(values):
    """Accuracy -> place on an axis that covers the values and expands towards 100 % (logarithmic in
    the error rate).
    """
    least = min([1 - value for value in values if value < 1], default=0.01) / 2

    def widened(value):
        return -math.log(max(1 - value, least))

    low, high = widened(min(values)), widened(max(values))
    margin = max(0.06 * (high - low), 0.02)
    return lambda value: round(100 * (widened(value) - low + margin) / (high - low + 2 * margin), 2)


def _percentages(low, high):
    """Ticks [(percent, text)] from below low to above high; at round error rates if these span a
    large range.
    """
    missing = max(100 - high, 0.01)
    if 100 - low > 5 * missing:
        return [
            (100 - rest, f"{100 - rest:g}")
            for rest, _ in reversed(_log_ticks(0.7 * missing, 100 - low))
        ]
    margin = max(0.1 * (high - low), 0.1)
    return _ticks(max(low - margin, 0), min(high + margin, 100), 4)


def _ticks(low, high, count=5):
    """About `count` round numbers (1, 2 or 5 times a power of ten) from low to high, as [(value,
    text)].
    """
    if high <= low:
        return [(low, f"{low:g}")]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [
        (index * step, _number(index * step, decimals) if index else "0")
        for index in range(first, last + 1)
    ]


def _number(value, decimals):
    text = f"{value:,.{decimals}f}"
    return text if len(text) <= 12 else f"{value:g}"


def _log_ticks(low, high):
    """Powers of ten from low to high, for less than three decades also 2 and 5 times them, as
    [(value, text)].
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high < 1000 * low else (1,)
    return [
        (value, f"{value:g}")
        for value in (factor * 10.0**power for power in powers for factor in factors)
        if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)
    ]


def _with_room(ticks):
    """The ticks on the axis whose texts do not overlap, chosen from the left."""
    chosen = []
    for tick in ticks:
        if 0 <= tick["at"] <= 100 and (not chosen or tick["at"] - chosen[-1]["at"] >= ROOM):
            chosen.append(tick)
    return chosen


def _curves(group, arms):
    """A chart of the training losses, each point the mean over the seeds and over `width` steps."""
    lines = []
    for arm in arms:
        runs = list(group.runs[arm["arm"]].values())
        losses, width = _losses(runs)
        lines.append(
            {
                "name": arm["label"],
                "key": arm["id"],
                "colour": arm["series"],
                "points": losses,
                "by": curves.paces(runs[0].train, runs[0].images, losses),
            }
        )
    title = f"Training loss, {templates.network_title(group.settings['network'])}"
    return {
        "chart": charts.lines(title, lines, charts.loss_axis("Training loss", "log"), curves.BY),
        "width": width,
        "count": len(lines),
    }


def _losses(runs):
    """([(middle step, mean loss)], steps of a mean); means are over the seeds and over at most an
    epoch.
    """
    mean = np.mean([curves.history(run.train, "losses") for run in runs], axis=0, dtype=np.float64)
    epochs = runs[0].train.metrics["epochs"]
    return curves.means(mean, epochs * math.ceil(CURVE / epochs))


def _times(arms):
    """Bars of the mean training time, with notes of the time relative to exact."""
    seconds = {arm["label"]: arm["row"]["train_seconds"] for arm in arms}
    return [
        {
            **bar,
            "series": arm["series"],
            "note": "" if arm["arm"].exact else _multiple(arm["row"]["train_seconds_ratio"]),
        }
        for bar, arm in zip(templates.bars(seconds, templates.duration), arms, strict=True)
    ]


# The multipliers and their errors.


def _errors(groups, labels):
    """{"errors": each multiplier that ran, with a picture of its errors, "scale": the error with
    full colour}.
    """
    used = _multipliers(groups)
    errors = {path: _relative_errors(multiplier) for path, multiplier in used.items()}
    scale = max((float(np.abs(values).max()) for values in errors.values()), default=1)
    return {
        "scale": share(scale).lstrip("+"),
        "errors": [
            {
                "name": named(path),
                "text": _text(used[path]),
                "image": multiplier_errors.picture(values, scale),
                "least": share(values.min()),
                "mean": share(values.mean()),
                "most": share(values.max()),
                "uses": [
                    _use(arm, label["series"])
                    for arm, label in labels.items()
                    if arm.trained == path
                ],
            }
            for path, values in errors.items()
        ],
    }


def _multipliers(groups):
    """Name or path -> Multiplier or Table of all runs that ran. Raises UserError if a table has
    changed since its runs.
    """
    identities = {}
    for settings in (run.settings for group in groups for run in group.ran):
        arm = Arm.from_settings(settings)
        identities |= {
            arm.trained: settings["multiplier_identity"],
            arm.tested: settings["test_multiplier_identity"],
        }
    used = {path: multipliers.find(path) for path in sorted(identities, key=rank)}
    for path in used:
        if identities[path] != multipliers.identity(path):
            raise UserError(f"{path} changed after its runs were planned; run it again")
    return used


def _relative_errors(multiplier):
    log.info("errors of %s", multiplier.name)
    return multiplier_errors.relative_errors(multiplier)


def _text(multiplier):
    if isinstance(multiplier, multipliers.Integers):
        return f"a table, {'signed' if multiplier.signed else 'unsigned'} integers of 8 bits"
    return (
        f"a table, {multiplier.bits} mantissa bits"
        if isinstance(multiplier, multipliers.Table)
        else multiplier.text
    )


def _use(arm, series):
    """The uses of an arm's multiplier in words, for a caption."""
    trained = [f"in training {_directions(arm)}"] if arm.directions else []
    tested = [f"tested with {named(arm.tested)}"] if arm.tested_otherwise else []
    return {"series": series, "text": "; ".join(trained + tested)}


def share(error):
    """A relative error: '−11.1 %', '+6.0·10⁻⁶ %', '0 %'."""
    value = 100 * float(error)
    text = f"{value:+.3g}" if abs(value) >= 1e-3 else _scientific(value) if value else "0"
    return f"{text.replace('-', '−')}{templates.NARROW_SPACE}%"


def _scientific(value):
    digits, exponent = f"{value:+.1e}".split("e")
    return f"{digits}·10{str(int(exponent)).translate(SUPERSCRIPTS)}"
