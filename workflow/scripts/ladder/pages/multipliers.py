"""The page that compares multipliers by the accuracy, loss and time of the runs in the groups of multiplier_runs.py."""

import math

import numpy as np

from ladder.arithmetic import multipliers
from ladder.errors import UserError
from ladder.pages import charts, intervals, multiplier_errors, report_sections, templates
from ladder.pages.multiplier_runs import ORDER, Arm, named, rank, row
from ladder.pages.spread import SHARES, spread
from ladder.progress import log

COLOURS = charts.COLOURED   # the first ones belong to the multipliers of ORDER, on every page
CURVE = 16    # minimum number of points of a curve
CHARTED = 5   # accuracies on the first screen
ROOM = 14     # percent of an axis's width that the text of a tick needs
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def page(groups):
    """The page as one HTML text."""
    return templates.render("multipliers.html", context(groups))


def context(groups):
    """All variables of the template."""
    arms = sorted({arm for group in groups for arm in group.arms}, key=lambda arm: arm.place)
    series = colours(arms)
    told = {arm: {"arm": arm, "id": number, "label": _label(arm, arms), "series": series[arm]}
            for number, arm in enumerate(arms)}
    shown = [_group(group, told) for group in groups]
    kinds = [one["verdict"]["kind"] for group in shown for one in group["rows"] if one["verdict"]["kind"]]
    return {
        "groups": shown, "networks": len({group.settings["network"] for group in groups}),
        "multipliers": len({multiplier for arm in arms for multiplier in (arm.trained, arm.tested)} - {"exact"}),
        "runs": sum(len(group.ran) for group in groups), "missing": sum(len(group.reasons) for group in groups),
        "verdicts": {kind: kinds.count(kind) for kind in ("below", "above", "within")}, "judged": len(kinds),
        "first": _first(groups, told),
        **_errors(groups, told),
    }


def _first(groups, told):
    """Accuracies with 95 % intervals on one axis, as intervals.chart, and "of": how many there are; None without any.

    Of each network its exact arm, and of the others the CHARTED whose difference from exact is largest, by network.
    """
    found = [(group, arm, row(group, arm)) for group in groups for arm in group.cells]
    chosen = sorted(range(len(found)), key=lambda at: (not found[at][1].exact, -abs(found[at][2]["difference"] or 0)))[:CHARTED]
    shown = [_first_row(*found[at], told[found[at][1]]["label"], len(groups) > 1) for at in sorted(chosen)]
    return {**intervals.chart(shown), "of": len(found)} if shown else None


def _first_row(group, arm, of, label, several):
    """A row for intervals.chart; several: whether it has to name its network."""
    mean, interval = _accuracy(group, arm)
    digits = intervals.decimals(interval)
    low, high = (f"{100 * end:.{digits}f}" for end in interval)
    network = f"{templates.network_title(group.settings['network'])}, " if several else ""
    return {"key": "own" if arm.exact else "", "name": f"{network}{label}", "note": _against_exact(of, arm),
            "value": mean, "interval": list(interval), "text": templates.percent(mean, digits),
            "interval_text": f"{low} to {high}"}


def _accuracy(group, arm):
    """(mean of an arm's accuracies, its 95 % interval: Student's t over the seeds; Wilson's where they do not differ)."""
    mean = spread(group.accuracies(arm).values(), SHARES)
    tested = min(cell.run.tested for cell in group.cells[arm].values())
    return mean.mean, mean.interval or intervals.wilson(mean.mean, tested)


def _against_exact(of, arm):
    """The difference from exact with its interval, and what it shows, for the note of a row."""
    if arm.exact:
        return "the usual arithmetic"
    if of["difference"] is None:
        return ""
    if of["difference_low"] is None:
        return f"{intervals.points(of['difference'], _digits(of))} points"
    told = intervals.told(intervals.Difference(of["difference"], (of["difference_low"], of["difference_high"]), True))
    return f"{told['points']} points ({told['interval_text']}), {told['luck_text']}"


def colours(arms):
    """Arm -> number of its colour: its multiplier's for the first arm of a multiplier in ORDER, else a free one or 'rest'."""
    found, free = {}, list(range(COLOURS, 0, -1))
    for arm in arms:
        if arm.trained in ORDER and ORDER.index(arm.trained) + 1 in free:
            found[arm] = ORDER.index(arm.trained) + 1
            free.remove(found[arm])
    for arm in arms:
        if arm not in found:
            found[arm] = free.pop(0) if free else "rest"
    return found


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


def _group(group, told):
    """A group as the template draws it; told: arm -> its label, number and colour."""
    drawn = [{**told[arm], "row": row(group, arm)} for arm in group.arms]
    there = [one for one in drawn if one["arm"] in group.cells]
    trained = [one for one in there if one["row"]["train_seconds"] is not None]
    network, dataset = group.settings["network"], group.settings["dataset"]
    return {
        "title": f"{templates.network_title(network)} on {templates.dataset_title(dataset)}",
        "settings": {key: templates.setting(value) for key, value in drawn[0]["row"]["settings"].items()},
        "tested": max((cell.run.tested for cell in group.ran), default=0),
        "legend": [{"key": one["id"], "name": one["label"], "series": one["series"]} for one in trained],
        "rows": [_table_row(group, one) for one in drawn],
        "dots": _dots(group, there) if there else None,
        "curves": _curves(group, trained) if trained else None,
        "times": _times(trained),
    }


# The table.

def _table_row(group, one):
    of, arm = one["row"], one["arm"]
    seeds = sorted(group.cells.get(arm, {}).items())
    digits = intervals.decimals(_accuracy(group, arm)[1]) if seeds else 0
    return {
        "label": one["label"], "series": one["series"], "reason": of["reason"],
        "seeds": [{"seed": seed, "report": cell.run.summary["versions"]["report"]} for seed, cell in seeds],
        "accuracy": _cell(of, "test_accuracy", lambda value: f"{100 * value:.{digits}f}",
                          lambda value: f"{100 * value:.{max(digits, 1)}f}"),
        "difference": _cell(of, "difference", lambda value: intervals.points(value, _digits(of)),
                            lambda value: f"{100 * value:.{max(_digits(of), 1)}f}"),
        "verdict": verdict(of, arm == group.exact, group.exact is not None),
        "seconds": {"text": "" if of["train_seconds"] is None else templates.duration(of["train_seconds"]),
                    "value": of["train_seconds"]},
        "ratio": {"text": _multiple(of["train_seconds_ratio"]), "value": of["train_seconds_ratio"]},
        "loss": _cell(of, "final_loss", _loss_text(of["final_loss_deviation"])),
    }


def _cell(of, key, text, deviation_text=None):
    value, deviation = of[key], of[f"{key}_deviation"]
    return {"value": value, "text": "" if value is None else text(value),
            "deviation": "" if deviation is None else f"± {(deviation_text or text)(deviation)}"}


def _loss_text(deviation):
    """The format of a loss and of its deviation: as many decimals as two digits of the deviation have, if there is one."""
    if not deviation:
        return "{:.4g}".format
    return f"{{:.{max(0, 1 - math.floor(math.log10(deviation)))}f}}".format


def _digits(of):
    """Decimals of a row's difference in percent: those that its interval carries, 2 without one."""
    low, high = of["difference_low"], of["difference_high"]
    return 2 if low is None else intervals.decimals((low, high))


def _multiple(ratio):
    return "" if ratio is None else f"{ratio:.2f}×"


def verdict(of, is_exact, has_exact):
    """The verdict on a row's difference from exact: {"kind": 'below', 'above', 'within' or '' for none, "text"}."""
    n, low, high = of["difference_seeds"], of["difference_low"], of["difference_high"]
    if is_exact or not of["seeds"]:
        return {"kind": "", "text": ""}
    if not n:
        return {"kind": "", "text": "no seed in common with exact" if has_exact else "no exact run to compare with"}
    if n == 1:
        return {"kind": "", "text": "one seed does not show the variation by chance"}
    if low is None and of["difference"] == 0:
        return {"kind": "within", "text": f"equal to exact with each of {n} seeds"}
    if low is None:
        return {"kind": "", "text": f"the same with each of {n} seeds: no confidence interval"}
    if low <= 0 <= high:
        return {"kind": "within", "text": f"not distinguishable from exact with {n} seeds"}
    kind = "below" if high < 0 else "above"
    low, high = (intervals.points(end, _digits(of)) for end in (low, high))
    return {"kind": kind, "text": f"{kind} exact: {low} to {high} with {n} seeds"}


# Charts.

def _dots(group, there):
    """Accuracies on one axis, a dot for each seed: {"rows", "ticks", "exact": the mean of exact}, in percent of the axis."""
    values = [value for one in there for value in group.accuracies(one["arm"]).values()]
    at = _widening(values)
    exact = spread(group.accuracies(group.exact).values())
    return {
        "rows": [{"label": one["label"], "series": one["series"], "mean": at(one["row"]["test_accuracy"]),
                  "dots": [{"at": at(value), "seed": seed, "value": value,
                            "text": f"seed {seed}: {templates.percent(value, 2)}"}
                           for seed, value in sorted(group.accuracies(one["arm"]).items())]} for one in there],
        "ticks": _with_room([{"at": at(value / 100), "text": f"{text}{templates.NARROW_SPACE}%"}
                             for value, text in _percentages(100 * min(values), 100 * max(values))]),
        "exact": at(exact.mean) if exact else None,
    }


def _widening(values):
    """Accuracy -> place on an axis that covers the values and expands towards 100 % (logarithmic in the error rate)."""
    least = min([1 - value for value in values if value < 1], default=0.01) / 2

    def widened(value):
        return -math.log(max(1 - value, least))

    low, high = widened(min(values)), widened(max(values))
    margin = max(0.06 * (high - low), 0.02)
    return lambda value: round(100 * (widened(value) - low + margin) / (high - low + 2 * margin), 2)


def _percentages(low, high):
    """Ticks [(percent, text)] from below low to above high; at round error rates if these span a large range."""
    missing = max(100 - high, 0.01)
    if 100 - low > 5 * missing:
        return [(100 - rest, f"{100 - rest:g}") for rest, _ in reversed(charts.log_ticks(0.7 * missing, 100 - low))]
    margin = max(0.1 * (high - low), 0.1)
    return charts.ticks(low - margin, min(high + margin, 100), 4)


def _with_room(ticks):
    """The ticks on the axis whose texts do not overlap, chosen from the left."""
    kept = []
    for tick in ticks:
        if 0 <= tick["at"] <= 100 and (not kept or tick["at"] - kept[-1]["at"] >= ROOM):
            kept.append(tick)
    return kept


def _curves(group, there):
    """A chart of the training losses, each point the mean over the seeds and over `width` steps."""
    lines = []
    for one in there:
        cells = list(group.cells[one["arm"]].values())
        losses, width = _losses(cells)
        first = cells[0].run
        lines.append({"name": one["label"], "key": one["id"], "series": one["series"], "points": losses,
                      "by": report_sections.paces(first.train, first.images, losses)})
    y = charts.loss_axis([value for line in lines for _, value in line["points"]], "Training loss", always_log=True)
    title = f"Training loss, {templates.network_title(group.settings['network'])}"
    return {**charts.lines(title, lines, y, report_sections.BY), "width": width, "kind": y.kind, "count": len(lines)}


def _losses(cells):
    """([(middle step, mean loss)], steps of a mean); means are over the seeds and over at most an epoch."""
    mean = np.mean([cell.run.train.tensors("history.safetensors")["losses"] for cell in cells], axis=0, dtype=np.float64)
    epochs = next(iter(cells)).run.train.metrics["epochs"]
    pieces = np.array_split(np.arange(len(mean)), min(len(mean), epochs * math.ceil(CURVE / epochs)))
    return [(float(piece.mean()) + 0.5, float(mean[piece].mean())) for piece in pieces], len(pieces[0])


def _times(there):
    """Bars of the mean training time, with notes of the time relative to exact."""
    seconds = {one["label"]: one["row"]["train_seconds"] for one in there}
    return [{**bar, "series": one["series"], "note": "" if one["arm"].exact else _multiple(one["row"]["train_seconds_ratio"])}
            for bar, one in zip(templates.bars(seconds, templates.duration), there, strict=True)]


# The multipliers and their errors.

def _errors(groups, told):
    """{"errors": each multiplier that ran, with a picture of its errors, "scale": the error with full colour}."""
    found = _multipliers(groups)
    errors = {path: _relative_errors(multiplier) for path, multiplier in found.items()}
    scale = max((float(np.abs(of).max()) for of in errors.values()), default=1)
    return {"scale": share(scale).lstrip("+"), "errors": [
        {"name": named(path), "text": _text(found[path]), "image": multiplier_errors.picture(of, scale),
         "least": share(of.min()), "mean": share(of.mean()), "most": share(of.max()),
         "uses": [_use(arm, one["series"]) for arm, one in told.items() if arm.trained == path]}
        for path, of in errors.items()]}


def _multipliers(groups):
    """Name or path -> Multiplier or Table of all cells that ran. Raises UserError if a table has changed since its runs."""
    identities = {}
    for cell in (cell for group in groups for cell in group.ran):
        arm = Arm.of(cell.settings)
        identities |= {arm.trained: cell.settings["multiplier_identity"], arm.tested: cell.settings["test_multiplier_identity"]}
    found = {path: multipliers.find(path) for path in sorted(identities, key=rank)}
    for path, multiplier in found.items():
        if isinstance(multiplier, multipliers.Table) and identities[path] != multipliers.identity(path):
            raise UserError(f"{path} changed after its runs were planned; run it again")
    return found


def _relative_errors(multiplier):
    log.info("errors of %s", multiplier.name)
    return multiplier_errors.relative_errors(multiplier)


def _text(multiplier):
    return f"a table, {multiplier.bits} mantissa bits" if isinstance(multiplier, multipliers.Table) else multiplier.text


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
