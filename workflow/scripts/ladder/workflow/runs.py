"""A run: its settings with `auto` resolved on this machine, what follows from them, and the runs
that it needs beside it.
"""

import bisect
import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from ladder import files
from ladder.arithmetic import multipliers
from ladder.classifiers import backends
from ladder.data import facts as dataset_facts
from ladder.data.facts import Facts
from ladder.errors import UserError, excerpt
from ladder.machine import driver, runtime
from ladder.network.networks import Network
from ladder.plan import plan
from ladder.progress import size
from ladder.rungs import catalog
from ladder.store.roles import RANDOM, STRONG
from ladder.store.versions import canonical
from ladder.verify import first_use
from ladder.workflow import (
    array_libraries,
    checks,
    config,
    lists,
    network_files,
    reasons,
    recipe,
    settings,
    values,
)
from ladder.workflow.settings import Settings

WEIGHT: TypeAdapter[float] = TypeAdapter(
    Annotated[float, Field(gt=0, le=values.MOST), values.NUMBER]
)
OF_CLASSIFIERS = ("svm_kernel", "svm_C", "svm_gamma", "svm_backend", "knn_k")
OF_THE_PAGE = (
    "evaluations",
    "classify_rows",
    "label_counts",
    "classify_shifts",
    "feature_map",
    "controls",
    "targets",
)
# Keys that change no feature, so that a part that is appended to others would not show them.
OF_THE_WHOLE = (*OF_CLASSIFIERS, *OF_THE_PAGE)
# it is not trained; its scores stand beside the run's
SHARED_BY_CONTROL = ("seed", "epochs", "steps", *OF_THE_PAGE)


@dataclasses.dataclass(frozen=True)
class Run:
    """One run, made once by `resolve` and then passed on.

    given           the settings as they were written
    settings        those with `auto`, `same` and `all` resolved
    choices, declined
                    what rules have set of them, and would have set (recipe.Filled)
    network_params  of networks.from_params
    features_layer  None if the network classifies by itself and no layer is named
    file_sha256     of the file of initial weights
    folder_sha256   of the pictures of a folder
    multiplier_identity, test_multiplier_identity
                    what a version has of a multiplier
    parts           features appended to the run's own
    listed          the runs of its list, which the report compares with this one
    others          kind of control -> the run whose untrained network it is, where that is not this
                    one's own
    """

    given: Settings
    settings: Settings
    choices: tuple[recipe.Choice, ...]
    declined: tuple[recipe.Choice, ...]
    why_variant: str
    facts: Facts
    network_params: dict[str, Any]
    network: Network
    features_layer: str | None
    file_sha256: str | None
    folder_sha256: str | None
    multiplier_identity: str
    test_multiplier_identity: str
    parts: tuple["Part", ...] = ()
    listed: tuple["Entry", ...] = ()
    others: "dict[str, Run]" = dataclasses.field(default_factory=dict)

    @property
    def training_images(self) -> int:
        """Number of training images without the validation set."""
        return recipe.training_images(self.settings, self.facts)

    @property
    def controls(self) -> dict[str, dict[str, Any]]:
        """Kind of control -> the settings that it alone has."""
        return settings.own_settings(self.settings.controls)

    @property
    def label_counts(self) -> list[int]:
        """Numbers of labels, fewer than the images, ascending; none where labels have made the
        features.
        """
        if self.network.classifies or any(part.run.network.classifies for part in self.parts):
            return []
        return sorted(
            count
            for count in self.settings.label_counts
            if self.facts.classes <= count < self.classified
        )

    @property
    def classified(self) -> int:
        """Number of training images that classifiers are fitted to."""
        labelled, most = self.training_images - self.facts.unlabelled, self.settings.classify_rows
        return labelled if most == "all" else min(labelled, most)

    @property
    def plan(self) -> str:
        """The text that names the network and its batches: see first_use.described."""
        return first_use.described(self.network_params, self.settings.batch_size)

    def pick(self, *keys: str) -> dict[str, Any]:
        """The values of settings, or of fields of the run, by their keys."""
        return {
            key: getattr(self, key) if key in FIELDS else getattr(self.settings, key)
            for key in keys
        }


FIELDS = (
    "features_layer",
    "file_sha256",
    "folder_sha256",
    "label_counts",
    "multiplier_identity",
    "test_multiplier_identity",
)


@dataclasses.dataclass(frozen=True)
class Part:
    """Features appended to a run's own: their weight, and the run that computes them."""

    weight: float
    run: Run


@dataclasses.dataclass(frozen=True)
class Entry:
    """One run of a list, or of a search.

    overrides   key -> value; of the list only those that differ from the active run's
    run         None for the active run itself, which has no overrides, and for settings that are
                no run
    reason      why it cannot run here, or ''
    name, tags  its own, and the tags of the configuration
    """

    overrides: dict[str, Any]
    run: Run | None
    reason: str
    name: str = ""
    tags: tuple[str, ...] = ()


def resolve(given: Settings) -> Run:
    """The Run of loaded settings; raises UserError with one line where keys do not go together, or
    with this machine.
    """
    filled, choices, declined = recipe.fill(given)
    basis = checks.check(filled)
    described, layer = (
        first_use.described(basis.params, filled.batch_size),
        checks.features_layer(filled, basis.network),
    )
    rung, why = first_use.choose(given.variant, given.precision, described)
    _check_memory(filled, basis.network, rung)
    resolved = filled.model_copy(
        update={
            "variant": rung,
            "features_variant": rung
            if given.features_variant == "same"
            else given.features_variant,
            "svm_backend": backends.resolve_backend(given.svm_backend),
            "array_library": array_libraries.resolve(given.array_library),
            "threads": runtime.available_cores() if given.threads == "all" else given.threads,
            "multiplier_in": [
                direction
                for direction in multipliers.DIRECTIONS
                if direction in given.multiplier_in
            ],
            "test_multiplier": _tested_multiplier(given),
            "features_max_pool": checks.features_window(filled, basis.network.layer(layer))
            if layer
            else 1,
        }
    )
    run = Run(
        given,
        resolved,
        choices,
        declined,
        why,
        *basis,
        layer,
        _sha256(given.initial_weights) if given.initial_weights != "none" else None,
        dataset_facts.pictures(given).digest if given.dataset == dataset_facts.FOLDER else None,
        _identity("multiplier", resolved),
        _identity("test_multiplier", resolved),
    )
    return dataclasses.replace(
        run, parts=_parts(run, filled), listed=_listed(run), others=_control_runs(run, filled)
    )


def entry(
    given: Settings, overrides: dict[str, Any], within: dict[str, Any] | None = None
) -> Entry:
    """The Entry of loaded settings with these overrides, and those of the list `within`; raises
    UserError if it is no run.
    """
    run = resolve(config.changed(given, {**(within or {}), **overrides}))
    chosen = run.settings
    reason = (
        ""
        if runtime.jobs_run_elsewhere()
        else (
            catalog.unavailable(chosen.variant)
            or catalog.unavailable(chosen.features_variant)
            or backends.unavailable(chosen.svm_backend)
            or array_libraries.unavailable(chosen.array_library)
            or ""
        )
    )
    return Entry(
        {key: values.read(key, value, settings.adapter(key)) for key, value in overrides.items()},
        run,
        reason,
    )


@contextlib.contextmanager
def _located(where: str) -> Iterator[None]:
    """Name the place in the configuration behind what is wrong there."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{error} ({where})") from error


def every(run: Run) -> Iterator[Run]:
    """The run, and every nested run, recursively."""
    yield run
    listed = (entry.run for entry in run.listed if entry.run and not entry.reason)
    for needed in (*(part.run for part in run.parts), *listed, *run.others.values()):
        yield from every(needed)


# Nested runs.


def _listed(run: Run) -> tuple[Entry, ...]:
    """The runs of the list, each once. Entries that differ from this run in the same way are one
    run; an entry that does not differ is this run.
    """
    entries: dict[str, Entry] = {}
    for number, named in enumerate(run.settings.runs, 1):
        with _located(f"entry {number} of runs"):
            name, tags, grid = lists.labels(named, run.settings.tags)
            for overrides in lists.combinations(grid):
                beside = {**lists.lean(run.given, overrides), "name": name, "tags": tags}
                other = entry(run.given, overrides, {**lists.ALONE, **beside})
                listed = _against(run, dataclasses.replace(other, name=name, tags=tuple(tags)))
                same = entries.setdefault(canonical(listed.overrides), listed)
                if name and same is not listed and same.name:
                    raise UserError(
                        f"config: this is the run {excerpt(same.name)} once more; leave one out"
                    )
                entries[canonical(listed.overrides)] = dataclasses.replace(
                    same,
                    name=same.name or name,
                    tags=tuple(dict.fromkeys([*same.tags, *tags])),
                )
    names = [listed.name for listed in entries.values() if listed.name]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"config: two entries of runs have the name {excerpt(twice[0])}")
    return tuple(entries.values())


def _against(run: Run, other: Entry) -> Entry:
    """An entry with what differs from the active run alone; without any it is that run."""
    assert other.run  # for the type checker: settings that are no run have raised an error
    own = run.pick(*other.overrides)
    values_there = other.run.pick(*own)
    differing = {key: value for key, value in values_there.items() if value != own[key]}
    if not differing:
        other = dataclasses.replace(other, run=None, reason="")
    return dataclasses.replace(other, overrides=differing)


def _control_runs(run: Run, filled: Settings) -> dict[str, Run]:
    """The runs of the controls `random`, where it has settings of its own, and `strong`; filled:
    the run's settings without `auto`. Pictures without labels have their own start beside them.
    """
    wanted = run.controls
    if idle := [key for key in SHARED_BY_CONTROL if key in wanted.get(RANDOM, ())]:
        raise UserError(
            f"config: {idle[0]} cannot differ in the untrained control; leave it out (controls)"
        )
    own = {kind: keys for kind, keys in wanted.items() if keys}
    own |= {STRONG: recipe.untrained(run.facts.shape)} if STRONG in wanted else {}
    return {
        kind: _control(run, filled, keys, "strong" if kind == STRONG else "controls")
        for kind, keys in own.items()
        if run.features_layer and run.facts.classes
    }


def _control(run: Run, filled: Settings, overrides: dict[str, Any], where: str) -> Run:
    with _located(where):
        control = entry(filled, overrides, {**lists.ALONE, "controls": [RANDOM]})
        return _with_features(_check_same_images(control, run))


def _parts(run: Run, filled: Settings) -> tuple[Part, ...]:
    parts = []
    alone = {**lists.ALONE, "features_concatenate": [], "controls": list(run.controls)}
    for number, named in enumerate(run.settings.features_concatenate, 1):
        with _located(f"entry {number} of features_concatenate"):
            weight = values.read("weight", named.get("weight", 1), WEIGHT)
            others = {key: value for key, value in named.items() if key != "weight"}
            if idle := [key for key in OF_THE_WHOLE if key in named]:
                raise UserError(
                    f"config: {idle[0]} changes no feature, so it has no effect in what is appended; set it outside"
                )
            for overrides in lists.combinations(others):
                appended = _check_same_images(entry(filled, overrides, alone), run)
                parts.append(Part(weight, _with_features(appended)))
    return tuple(parts)


def _with_features(run: Run) -> Run:
    if run.features_layer is None:
        raise UserError(
            f"config: {run.settings.network} has no features unless features_layer names a layer"
        )
    return run


def _check_same_images(nested: Entry, run: Run) -> Run:
    if nested.run is None or data_params(nested.run) != data_params(run):
        raise UserError("config: dataset and limits must stay as they are, for the same images")
    return nested.run


def data_params(run: Run) -> dict[str, Any]:
    """The parameters that determine the images and their order."""
    chosen = run.settings
    keys = ["dataset", "train_limit", "validation" if chosen.validation else "test_limit"]
    if chosen.dataset == "cifar10":
        keys.append("cifar10_sha256")
    if chosen.dataset == dataset_facts.FOLDER:
        own_test = dataset_facts.pictures(chosen).has_test
        keys += [
            "folder_sha256",
            "image_size",
            "image_channels",
            *([] if own_test else ["test_share"]),
        ]
    return run.pick(*keys)


# What settings stand for on this machine.


def _check_memory(given: Settings, network: Network, rung: str) -> None:
    """Check that a training step of a person's own network fits this machine, before anything
    runs.
    """
    if (
        not network_files.is_file(given.network)
        or runtime.jobs_run_elsewhere()
        or catalog.unavailable(rung)
    ):
        return
    batch, on_gpu = given.batch_size, catalog.uses_gpu(rung)
    most, where = (
        (driver.gpu().memory_bytes, "GPU") if on_gpu else (runtime.memory_bytes(), "machine")
    )

    def needed(images: int) -> int:
        return plan.one_step(network, rung, images, given.optimizer).bytes

    if needed(batch) <= most:
        return
    fits = bisect.bisect(range(1, batch), most, key=needed)
    advice = (
        f"batch_size {fits} or less fits"
        if fits
        else f"not even 1 fits, with {network.parameter_count:,} parameters"
    )
    raise UserError(
        f"config: a training step of {network.name} with batch_size {batch} takes {size(needed(batch))}, but "
        f"this {where} has {size(most)}; {advice}"
    )


def _tested_multiplier(given: Settings) -> str:
    """The test multiplier as multipliers.find takes it."""
    trained = given.multiplier if "forward" in given.multiplier_in else "exact"
    return trained if given.test_multiplier == "same" else given.test_multiplier


def _identity(key: str, resolved: Settings) -> str:
    try:
        if not resolved.multiplier_as_it_is:
            multipliers.check_reading(getattr(resolved, key))
        identity = multipliers.identity(getattr(resolved, key))
    except UserError as error:
        raise UserError(f"config: {key}: {error}") from error
    reasons.FILES[identity] = getattr(resolved, key)
    return identity


def _sha256(path: str) -> str:
    try:
        return hashlib.sha256(files.read(path)).hexdigest()
    except UserError as error:
        raise UserError(f"config: initial_weights: {error}") from error
