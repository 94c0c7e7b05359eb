"""A comparison of two versions of one stage and of all their inputs, and its page."""

import dataclasses
import difflib
import functools
import math
import re

from ladder.classifiers import metrics
from ladder.errors import UserError
from ladder.network import networks, weights
from ladder.pages import intervals, roles, templates
from ladder.pages.sections import timing, training
from ladder.store import artifacts, lineage

NEAREST = 3  # existing versions named if the one asked for does not exist
MISSING = "–"
TITLES = {"report": "Two reports", "train": "Two trainings"}
# Metrics that are shown elsewhere, or are not numbers.
ELSEWHERE = {
    "seconds_by_operation",
    "memory",
    "recompute",
    "network",
    "kernels",
    "confusion",
    "classes",
    "scores",
    "seconds_from_samples",
}
REPEAT = re.compile(r"_(seed|ablation)(\d+)$")  # the end of the name of a report's parent
SHARES = ("accuracy", "per_class", "layer_movement")  # metrics written in percent
MACHINE = {
    "host": "machine",
    "system": "system",
    "processor": "processor",
    "cores": "cores",
    "threads": "threads used",
    "python": "Python",
    "blas": "BLAS",
}


def resolve(store, name):
    """The version with this name, or with this beginning; raises UserError with the most similar
    ones if there is none.
    """
    versions = store.folders()
    name = str(name).rstrip("/").rpartition("/")[2]
    begun = [version for version in versions if version.startswith(name)] if name else []
    if len(begun) == 1:
        if store.manifest(begun[0]) is None:
            damage = store.damage(begun[0])
            raise UserError(
                f"{versions[begun[0]]} {f'is damaged ({damage})' if damage else 'holds no finished artifact'}"
            )
        return begun[0]
    if begun:
        shown = ", ".join(begun[:NEAREST]) + (", ..." if len(begun) > NEAREST else "")
        raise UserError(f"more than one version in {store.results} begins with {name}: {shown}")
    if not versions:
        raise UserError(f"there is no version {name}: {store.results} holds no artifacts")
    alike = [version for version in versions if version[:1] == name[:1]] or list(versions)
    nearest = difflib.get_close_matches(name, alike, NEAREST, 0) or alike[:NEAREST]
    raise UserError(
        f"there is no version {name} in {store.results}; the nearest {'is' if len(nearest) == 1 else 'are'} "
        f"{', '.join(nearest)}"
    )


@dataclasses.dataclass(frozen=True)
class Pair:
    """The versions with one role in both; a or b is None if that side has no such role, a manifest
    if it no longer exists.

    repeat: what a report repeats the run for, 'seed 2' or 'ablation 1', '' for a version of the run
    itself.
    """

    label: str
    a: str | None
    b: str | None
    manifest_a: dict | None
    manifest_b: dict | None
    repeat: str = ""

    @property
    def same(self):
        return self.a == self.b

    @property
    def stage(self):
        return next(
            (
                manifest["spec"]["stage"]
                for manifest in (self.manifest_a, self.manifest_b)
                if manifest
            ),
            self.label,
        )

    @property
    def both(self):
        return self.manifest_a is not None and self.manifest_b is not None

    def values(self, read):
        """[(name, a, b)] of the values that `read` (manifest -> dict) gives for the two; [] if one
        manifest is missing.
        """
        a, b = (
            (read(manifest) for manifest in (self.manifest_a, self.manifest_b))
            if self.both
            else ({}, {})
        )
        return [(name, a.get(name), b.get(name)) for name in dict.fromkeys([*a, *b])]

    def differing(self, part):
        """As `values`, of the spec's params or sources, only those that differ."""
        return [
            (name, a, b)
            for name, a, b in self.values(lambda manifest: manifest["spec"][part])
            if a != b
        ]

    @functools.cached_property
    def state(self):
        """The differences in words; '' if the two are the same or differ only in their parents."""
        if self.same:
            return ""
        if self.a is None or self.b is None:
            return f"only in {'A' if self.b is None else 'B'}"
        if not self.both:
            return "no longer available for comparison"
        params = [f"{name} {written(a)} → {written(b)}" for name, a, b in self.differing("params")]
        sources = [path for path, _, _ in self.differing("sources")]
        more = len(params) - 3
        words = params[:3] + ([f"{more} more setting{'s' if more > 1 else ''}"] if more > 0 else [])
        if sources:
            more = (
                f" and {len(sources) - 1} more file{'s' if len(sources) > 2 else ''}"
                if len(sources) > 1
                else ""
            )
            words.append(f"{sources[0].rpartition('/')[2]}{more} changed")
        return ", ".join(words)


class Difference:
    """The versions a and b of one stage; pairs: a Pair for them and for each of their ancestors,
    parents first.

    Raises UserError if they are versions of different stages.
    """

    def __init__(self, store, a, b):
        self.store, self.a, self.b = store, a, b
        self.stage, other = store.stage(a), store.stage(b)
        if self.stage != other:
            raise UserError(
                f"{a} is a version of {self.stage} and {b} one of {other}; only two of one stage can be compared"
            )
        if a == b:
            raise UserError(f"{a} and {b} are the same version")
        self.pairs = _pairs(store, self.stage, a, b)

    @property
    def run(self):
        """The pairs of the run itself, without its repetitions."""
        return [pair for pair in self.pairs if not pair.repeat]

    @property
    def first(self):
        """The first pair with a difference of its own, one of the run itself if there is one; None
        if there is none.
        """
        return next(
            (pair for pair in sorted(self.pairs, key=lambda pair: pair.repeat != "") if pair.state),
            None,
        )

    def sentence(self):
        """The first difference in words."""
        return (
            f"the first difference is in {self.first.label}: {self.first.state}"
            if self.first
            else "there is no difference"
        )


def _pairs(store, stage, a, b):
    """The pairs, parents first: those of the run itself, those that only its repetitions need, and
    a and b.
    """
    pairs = {}  # pair -> (label, repeat)

    def children(pair):
        parents = [store.parents(version) if version else {} for version in pair]
        return {
            name: (parents[0].get(name), parents[1].get(name))
            for name in dict.fromkeys([*parents[0], *parents[1]])
        }

    def visit(name, pair, repeat):
        if pair in pairs:
            return
        for below, child in children(pair).items():
            visit(below, child, repeat)
        known = store.stage(pair[0]) or store.stage(pair[1]) or name
        pairs.setdefault(pair, (roles.TITLES.get(REPEAT.sub("", name), known), repeat))

    # the run itself first
    for name, child in sorted(children((a, b)).items(), key=lambda item: _repeat(item[0]) != ""):
        visit(name, child, _repeat(name))
    pairs[a, b] = stage, ""
    # A version that both have, and that a repetition of one alone reads too, is there once.
    whole = [{pair[side] for pair in pairs if None not in pair} for side in (0, 1)]
    return [
        Pair(
            label,
            *pair,
            *(store.manifest(version) if version else None for version in pair),
            repeat,
        )
        for pair, (label, repeat) in pairs.items()
        if None not in pair
        or not any(version in there for version, there in zip(pair, whole, strict=True))
    ]


def _repeat(name):
    """What a parent of a report with this name is a score of: 'seed 2', 'ablation 1'; '' for the
    run's own.
    """
    match = REPEAT.search(name)
    return f"{match[1]} {match[2]}" if match else ""


# The page.


def page(difference, up=""):
    """The page as one HTML text; up: see templates.way_up."""
    return templates.render("diff.html", context(difference, up))


def context(difference, up=""):
    """All variables of the template; up: see templates.way_up."""
    manifests = [difference.store.manifest(version) for version in (difference.a, difference.b)]
    settings, machines = _gathered(difference, "params"), _machines(difference)
    numbers, verdict = _metrics(difference), _verdict(difference)
    return {
        "title": TITLES.get(difference.stage, f"Two versions of {difference.stage}"),
        "a": difference.a,
        "b": difference.b,
        "made": [manifest["made"] for manifest in manifests],
        "names": [manifest["spec"]["params"].get("name") for manifest in manifests],
        "up": up,
        "links": _links(difference, up),
        "first": difference.first,
        "settings": [row for row in settings if not row["same"]],
        "same_settings": [row for row in settings if row["same"]],
        "sources": [row for row in _gathered(difference, "sources") if not row["same"]],
        "verdict": verdict,
        "accuracies": _accuracies(verdict),
        "repeats": _repeats(difference),
        "lineage": [_lineage_row(pair) for pair in difference.run],
        "changed": sum(not pair.same for pair in difference.run),
        "metrics": [row for row in numbers if not row["same"] and not row["detail"]],
        "details": [row for row in numbers if not row["same"] and row["detail"]],
        "same_metrics": sum(row["same"] for row in numbers),
        "named": _named_differently(difference),
        "times": _times(difference),
        "operations": _operations(difference),
        "machines": [row for row in machines if not row["same"]],
        "same_machine": [row for row in machines if row["same"]],
        "weights": _weights(difference),
    }


def written(value):
    return MISSING if value is None else templates.setting(value)


def _links(difference, up):
    """The pages of two reports; None for versions of another stage."""
    if difference.stage != "report":
        return None
    return [f"{up}report/{version}/report.html" for version in (difference.a, difference.b)]


def _repeats(difference):
    """Rows of the repetitions of two reports: {"name", "how"}."""
    repeats = {}
    for pair in difference.pairs:
        if pair.repeat:
            repeats.setdefault(pair.repeat, []).append(pair)
    return [{"name": name, "how": _repeated(pairs)} for name, pairs in repeats.items()]


def _repeated(pairs):
    for side, has in (
        ("A", [pair.b is None for pair in pairs]),
        ("B", [pair.a is None for pair in pairs]),
    ):
        if all(has):
            return f"only in {side}: {len(pairs)} artifact{'s' if len(pairs) > 1 else ''}"
    differ = sum(not pair.same for pair in pairs)
    return f"{differ} of {len(pairs)} artifacts differ" if differ else "same"


# The accuracy.


def _verdict(difference):
    """What happened to the accuracy, in words for the page; None if the two are not scores of a
    classifier or reports of them.

    {"role", "a", "b": accuracies in words, "same_images", "tested": numbers of images, and as
    intervals.words B minus A}.
    """
    score = next(
        (
            pair
            for role in ("evaluate", *lineage.PRIMARY_CLASSIFIERS, difference.stage)
            for pair in difference.run
            if pair.label == role and pair.both and "accuracy" in pair.manifest_a["metrics"]
        ),
        None,
    )
    data = next((pair for pair in difference.run if pair.label == "data" and pair.both), None)
    if (
        score is None
        or data is None
        or not isinstance(score.manifest_a["metrics"]["accuracy"], float)
    ):
        return None
    accuracies = [
        manifest["metrics"]["accuracy"] for manifest in (score.manifest_a, score.manifest_b)
    ]
    tested = [manifest["metrics"]["test"] for manifest in (data.manifest_a, data.manifest_b)]
    shown = {
        "role": score.label,
        "same_images": data.same,
        "same": score.same,
        "tested": tested,
        "scored_on": [
            metrics.scored_on(manifest["spec"]["params"])
            for manifest in (data.manifest_a, data.manifest_b)
        ],
        **{
            side: intervals.share(value, n)
            for side, value, n in zip("ab", accuracies, tested, strict=True)
        },
    }
    return (
        shown
        if score.same
        else shown
        | intervals.words(_accuracy_difference(difference, score, data, accuracies, tested))
    )


def _accuracies(verdict):
    """The two accuracies with their intervals on one axis, as intervals.chart; None without a
    verdict, or for one score.
    """
    if verdict is None or verdict["same"]:
        return None
    notes = {
        "a": f"{verdict['tested'][0]:,} {verdict['scored_on'][0]} images",
        "b": f"{verdict['points']} points, {verdict['luck_text']}",
    }
    return intervals.chart(
        [
            {
                "key": "own" if side == "b" else "",
                "name": side.upper(),
                "note": notes[side],
                **verdict[side],
            }
            for side in "ab"
        ]
    )


def _accuracy_difference(difference, score, data, accuracies, tested):
    """The intervals.Difference, B minus A: image by image on the same images, where the predictions
    are there.
    """
    if data.same:
        try:
            labels = _artifact(difference, data.a).array("test_labels.npy")
            a, b = (
                _artifact(difference, version).array("predictions.npy")
                for version in (score.a, score.b)
            )
            return intervals.counted(labels, b, a)
        except UserError:  # damaged, or without predictions
            pass
    (a, b), (n, m) = accuracies, tested
    return intervals.unpaired(b, m, a, n)


def _lineage_row(pair):
    how = "same" if pair.same else pair.state or "its inputs"
    return {
        "label": pair.label,
        "a": pair.a or MISSING,
        "b": pair.b or MISSING,
        "same": pair.same,
        "how": how,
        "inherits": not pair.same and not pair.state,
    }


def _gathered(difference, part):
    """Rows of the params or sources of all pairs."""
    return _merged(
        (lineage.KEYS.get(pair.stage, {}).get(name, name), written(a), written(b), pair.stage)
        for pair in difference.pairs
        for name, a, b in pair.values(lambda manifest: manifest["spec"][part])
    )


def _merged(values):
    """Rows of (name, a, b, role); equal ones are one row with all their roles."""
    rows = {}
    for *row, role in values:
        rows.setdefault(tuple(row), []).append(role)
    return [
        {"name": name, "a": a, "b": b, "same": a == b, "roles": list(dict.fromkeys(roles))}
        for (name, a, b), roles in rows.items()
    ]


# Numbers.


def _metrics(difference):
    """Rows of the numbers in the metrics, the last stage first; detail: whether it is one of many,
    by class or layer.
    """
    rows = []
    for pair in sorted(
        reversed(difference.run), key=lambda pair: pair.label in roles.CONTROL_TITLES
    ):
        for (name, detail), a, b in pair.values(lambda manifest: _numbers(manifest["metrics"])):
            share = name.startswith(SHARES)
            rows.append(
                {
                    "role": pair.label,
                    "name": name.replace("_", " "),
                    "detail": detail,
                    "same": a == b,
                    "a": _number(a, share),
                    "b": _number(b, share),
                    "change": _change(a, b, share),
                }
            )
    return rows


def _numbers(metrics):
    """(name, whether it is one of many) -> number; for a list by epoch the last value."""
    numbers = {}
    for name, value in metrics.items():
        if name in ELSEWHERE:
            continue
        if isinstance(value, list) and value and _is_number(value[-1]):
            numbers[f"{name}, last epoch", False] = value[-1]
        elif isinstance(value, dict):
            numbers |= {
                (f"{name} {key}", True): each for key, each in value.items() if _is_number(each)
            }
        elif _is_number(value):
            numbers[name, False] = value
    return numbers


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value, share):
    if value is None:
        return MISSING
    if share:
        return templates.small_percent(value) if value < 0.01 else templates.percent(value, 2)
    return templates.count(value) if isinstance(value, int) else f"{value:,.5g}"


def _change(a, b, share):
    if a is None or b is None or a == b or not (math.isfinite(a) and math.isfinite(b)):
        return ""
    if share:
        return f"{100 * (b - a):+.2f} points".replace("-", "−")
    if not a:
        return ""
    return (
        f"{b / a:,.0f}×"
        if b / a > 10
        else f"{100 * (b - a) / abs(a):+.3g}{templates.NARROW_SPACE}%".replace("-", "−")
    )


def _named_differently(difference):
    """The number of images whose predictions differ: [{"role", "count", "of", "scored_on"}].

    Empty if the two were not scored on the same images.
    """
    same_data = [
        pair for pair in difference.run if pair.same and pair.label == "data" and pair.both
    ]
    counts = []
    for pair in difference.run if same_data else []:
        if pair.label in ("evaluate", *lineage.PRIMARY_CLASSIFIERS) and pair.both:
            try:
                a, b = (
                    _artifact(difference, version).array("predictions.npy")
                    for version in (pair.a, pair.b)
                )
            except UserError:  # damaged, or without predictions
                continue
            counts.append(
                {
                    "role": pair.label,
                    "count": int((a != b).sum()),
                    "of": len(a),
                    "scored_on": metrics.scored_on(same_data[0].manifest_a["spec"]["params"]),
                }
            )
    return counts


def _artifact(difference, version):
    return artifacts.Artifact(difference.store.folders()[version])


def _times(difference):
    """Rows of seconds and memory of the roles that differ, with the speed of B relative to A."""
    rows = []
    for pair in difference.run:
        if pair.both and not pair.same:
            a, b = pair.manifest_a, pair.manifest_b
            rows.append(
                {
                    "role": pair.label,
                    "a": templates.duration(a["seconds"]),
                    "b": templates.duration(b["seconds"]),
                    "change": _faster(a["seconds"], b["seconds"]),
                    "memory_a": templates.size(a["peak_memory_bytes"]),
                    "memory_b": templates.size(b["peak_memory_bytes"]),
                }
            )
    return rows


def _operations(difference):
    """Rows of the seconds of the training by operation."""
    for pair in difference.run:
        if pair.label == "train" and pair.both and not pair.same:
            times = pair.values(lambda manifest: timing.named(manifest["metrics"]))
            return [
                {
                    "name": name,
                    "a": templates.duration(a or 0),
                    "b": templates.duration(b or 0),
                    "change": _faster(a, b),
                }
                for name, a, b in sorted(times, key=lambda row: -(row[1] or 0))
                if a or b
            ]
    return []


def _faster(a, b):
    """The speed of b relative to a; '' if the times are too short."""
    if not a or not b or max(a, b) < 0.01:
        return ""
    return "as fast" if 0.995 < a / b < 1.005 else f"{a / b:.2f}× as fast"


def _machines(difference):
    """Rows of the facts of the machines of the roles that differ."""
    return _merged(
        (MACHINE.get(name, name), written(a) or MISSING, written(b) or MISSING, pair.label)
        for pair in difference.run
        if not pair.same
        for name, a, b in pair.values(_machine)
    )


def _machine(manifest):
    return {**manifest["machine"], "threads": manifest["threads"], **manifest["libraries"]}


# Weights.


def _weights(difference):
    """The distance between the weights of the two: {"role", "fault", "same", "bars"}; None if one
    has no weights.
    """
    pair = next(
        (
            pair
            for stage in ("train", "initial")
            for pair in difference.run
            if pair.label in (stage, roles.TITLES[stage]) and pair.stage == stage
        ),
        None,
    )
    if pair is None or not (pair.a and pair.b):
        return None
    shown = {
        "role": pair.stage,
        "a": pair.a,
        "b": pair.b,
        "fault": "",
        "same": pair.same,
        "bars": [],
    }
    if pair.same:
        return shown
    try:
        a, b = (_loaded(difference, version) for version in (pair.a, pair.b))
    except KeyError:
        return {
            **shown,
            "fault": "One of them was made by an older release, with another format of the weights.",
        }
    except UserError as error:
        return {**shown, "fault": f"The weights cannot be read: {error}."}
    if {name: value.shape for name, value in a.items()} != {
        name: value.shape for name, value in b.items()
    }:
        return {
            **shown,
            "fault": "The two networks have different layers, so their weights cannot be compared.",
        }
    distances = weights.movement(a, b)
    return {**shown, "same": not any(distances.values()), "bars": training.movement(distances)}


def _loaded(difference, version):
    artifact = _artifact(difference, version)
    network = networks.from_params(artifact.manifest["spec"]["params"])
    name = next(
        name
        for name in ("weights.bin", "weights.safetensors")
        if name in artifact.manifest["files"]
    )
    return weights.load(artifact.path(name), network)
