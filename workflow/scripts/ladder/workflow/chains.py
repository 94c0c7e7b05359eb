"""The chain of a run: its artifacts by role, in the order of the work.

Most stages have one role; `features` and what reads them have one more for each control.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from ladder.data.facts import FOLDER
from ladder.network import networks
from ladder.store import lineage
from ladder.store.roles import (
    CONTROLS,
    PIXELS,
    RANDOM,
    REFERENCE,
    RUN,
    SCORE,
    START,
    STRONG,
    Role,
)
from ladder.workflow import parameters, runs
from ladder.workflow.planning import Parents, PlannedArtifact, Stage, ancestry, planned
from ladder.workflow.runs import Run

Chain = dict[str, PlannedArtifact]
LEAST_FOR_LINEAR = 20  # training images that classifiers/linear.py needs


def chain(run: Run) -> Chain:
    """Every artifact of a run by role, in the order of the work.

    A network that classifies by itself is evaluated; features and their SVM exist if the run has a
    layer for them. If layers are fitted to patches, training starts from them, and the features
    come from them unless training changes them. Without a training step the features and the
    evaluation come from the initial weights.
    """
    draft = Draft(run)
    draft.add(*_roles_before_features(run))
    for kind in _kinds(run):
        if kind in run.others:
            draft.add_control(kind, chain(run.others[kind]))
        else:
            draft.add_features(kind)
    if run.network.classifies and PIXELS in run.controls and _has_enough_for_linear(run):
        draft.add(
            *(
                role
                for role in (Role("features", PIXELS), Role("linear", PIXELS))
                if str(role) not in draft.artifacts
            )
        )
    if not run.facts.classes:
        draft.add(Role("neighbours"))
    draft.add(Role("report"))
    return draft.artifacts


def prediction_roles(chain: Chain) -> list[str]:
    """The roles of a chain whose artifacts classify a picture (demo.predictor.Predictor), in the
    order of the work; of pictures without labels those that give its features.
    """
    answering = lineage.answering(chain) or features_role(chain)
    wanted = [
        chain[role]
        for role in (answering, "train", *(["features"] if "evaluate" in chain else []))
        if role in chain
    ]
    needed = set()
    while wanted:
        artifact = wanted.pop()
        needed.add(artifact.version)
        # Neither the start of a training or a fit, nor the features of the shifted test images.
        wanted += (
            parent
            for name, parent in artifact.parents.items()
            if name != "initial" and parent.stage != "shifted"
        )
    return [role for role, artifact in chain.items() if artifact.version in needed]


def features_role(chain: Chain) -> str:
    """The role of the features of all parts together."""
    return "joined" if "joined" in chain else "features"


class Draft:
    """A chain that is being planned.

    artifacts  role -> the artifact, of those so far
    appended   the chains of the runs whose features are appended
    copies     by stage (shifted or changed) and kind, the features of copies of the test images for
               each part of what is classified
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.artifacts: Chain = {}
        self.appended = [chain(part.run) for part in run.parts]
        self.copies: dict[tuple[str, str], list[PlannedArtifact]] = {}

    def add(self, *roles: Role) -> None:
        for role in roles:
            self.artifacts[str(role)] = self._planned(role)

    def add_features(self, kind: str) -> None:
        """Add the features of a kind, and what reads them."""
        if kind == PIXELS and self.run.settings.dataset == FOLDER:
            self._add_raw()
        self.add(Role("features", kind))
        if len(self.parts(kind)) > 1:
            self._add_appended(kind)
            self.add(Role("joined", kind))
        if self.run.facts.classes:
            self._add_classifiers(kind)
        else:
            self._add_copies("changed", kind)
        if self.run.settings.feature_map and not kind:
            self.add(Role("map"))

    def _add_classifiers(self, kind: str) -> None:
        if self.run.settings.classify_shifts != "none":
            self._add_copies("shifted", kind)
        self.add(*(Role(classifier, kind) for classifier in classifiers(self.run)))
        if self.run.label_counts:
            self.add(Role("labels", kind))

    def _add_raw(self) -> None:
        """Add the pixels as they are, unless the run's own normalisation leaves them so."""
        if self.run.settings.normalization != "unit":
            self.add(Role("normalized", PIXELS))

    def add_control(self, kind: str, chain: Chain) -> None:
        """Add the random features of a run with other settings as this kind, what reads them, and
        their ancestors that are not here yet.
        """
        for role, artifact in chain.items():
            if Role.parse(role).kind == RANDOM:
                for needed in ancestry(artifact):
                    if needed.version not in self._versions():
                        named = str(dataclasses.replace(Role.parse(needed.role), kind=kind))
                        self.artifacts[named] = dataclasses.replace(needed, role=named)

    def parts(self, kind: str) -> list[PlannedArtifact]:
        """The features of a kind and those appended to them; a run of random weights has no control
        beside it.
        """
        role = str(Role("features", kind))
        appended = (
            []
            if kind == PIXELS
            else [artifacts.get(role, artifacts["features"]) for artifacts in self.appended]
        )
        return [self.artifacts[role], *appended]

    def classified(self, kind: str) -> PlannedArtifact:
        """The features of a kind as classifiers read them."""
        return (
            self.artifacts.get(str(Role("joined", kind)))
            or self.artifacts[str(Role("features", kind))]
        )

    def _planned(self, role: Role) -> PlannedArtifact:
        stage = STAGES[role.stage]
        return planned(stage, role, stage.params(self.run, role), stage.parents(self, role))

    def _add_appended(self, kind: str) -> None:
        """Add the features that are appended to this kind's and their ancestors, but for those that
        have a role already.
        """
        for number, features in enumerate(self.parts(kind)[1:], 2):
            for artifact in ancestry(features):
                if artifact.version not in self._versions():
                    self.artifacts[
                        str(dataclasses.replace(Role.parse(artifact.role), part=number))
                    ] = artifact

    def _add_copies(self, stage: str, kind: str) -> None:
        """Add the features of copies of images for each part of a kind, but for those that another
        kind has too.
        """
        versions = self._versions()
        self.copies[stage, kind] = [
            self._planned(Role(stage, kind, part)) for part, _ in enumerate(self.parts(kind), 1)
        ]
        self.artifacts |= {
            artifact.role: artifact
            for artifact in self.copies[stage, kind]
            if artifact.version not in versions
        }

    def _versions(self) -> set[str]:
        return {artifact.version for artifact in self.artifacts.values()}


# What a run has.


def _roles_before_features(run: Run) -> list[Role]:
    return [
        Role("data"),
        Role("normalized"),
        Role("initial"),
        *([Role("initial", RANDOM)] if run.file_sha256 and RANDOM in _kinds(run) else []),
        *([Role("patches")] if run.settings.training != "gradient" else []),
        *([Role("train")] if trains(run) else []),
        *([Role("evaluate")] if run.network.classifies else []),
    ]


def _kinds(run: Run) -> list[str]:
    """The kinds of features that are classified; a run of random weights is its own control."""
    if not run.features_layer:
        return []
    wanted = set(run.controls)
    if STRONG not in run.others:
        wanted.discard(STRONG)
    if _is_random(run):
        wanted -= {RANDOM, STRONG}
    controls = [kind for kind in CONTROLS if kind in wanted]
    return ["", *([START] if _has_start(run) else []), *controls]


def classifiers(run: Run) -> list[str]:
    """The stages that classify the run's features."""
    svm = [] if run.settings.svm_kernel == "none" else ["svm"]
    return [*svm, *run.settings.evaluations]


def _has_start(run: Run) -> bool:
    """Whether labels train a head over an encoder that was there before, whose own features are
    then classified too.
    """
    is_there = run.file_sha256 or _start(run) != "initial"
    return run.settings.network in networks.HEADED and trains(run) and bool(is_there)


def _has_enough_for_linear(run: Run) -> bool:
    return run.settings.train_limit == "all" or run.settings.train_limit >= LEAST_FOR_LINEAR


def trains(run: Run) -> bool:
    """Whether the run makes a training step, of the decoder alone included."""
    length = run.settings.epochs if run.settings.steps == "none" else run.settings.steps
    return run.network.trains and bool(run.settings.training != "gradient" or length)


def _is_random(run: Run) -> bool:
    """Whether all features of the run, those appended to its own included, come from random
    weights.
    """
    own = _weights(run) == "initial" and not run.file_sha256
    return own and all(_is_random(part.run) for part in run.parts)


# Where weights come from, as roles.


def _start(run: Run) -> str:
    """The weights that a training starts from."""
    return "initial" if run.settings.training == "gradient" else "patches"


def _weights(run: Run) -> str:
    """The weights that the run's features and evaluation come from."""
    return (
        "patches" if run.settings.training == "patches" else "train" if trains(run) else "initial"
    )


def _weights_of_features(run: Run, kind: str) -> str:
    """The weights of a kind of features: the run's own ones are those of the start if a head alone
    was trained over them.
    """
    if kind == RANDOM:
        return str(Role("initial", RANDOM if run.file_sha256 else ""))
    keeps_encoder = run.settings.freeze_encoder or run.settings.training == "patches"
    return _start(run) if kind == START or (_has_start(run) and keeps_encoder) else _weights(run)


# Parents.


def _own(*roles: str) -> Callable[[Draft, Role], Parents]:
    """Parents by the names of their roles."""
    return lambda draft, role: {parent: draft.artifacts[parent] for parent in roles}


def _train(draft: Draft, role: Role) -> Parents:
    labels = ["data"] if draft.run.network.classifies else []
    return _own("normalized", _start(draft.run), *labels)(draft, role)


def _evaluate(draft: Draft, role: Role) -> Parents:
    weights = "train" if trains(draft.run) else _weights(draft.run)
    return {**_own("normalized", "data")(draft, role), "weights": draft.artifacts[weights]}


def _features(draft: Draft, role: Role) -> Parents:
    normalized = _own("normalized")(draft, role)
    if role.kind == PIXELS:
        raw = draft.artifacts.get(str(Role("normalized", PIXELS)))
        return {"normalized": raw} if raw else normalized
    return {**normalized, "weights": draft.artifacts[_weights_of_features(draft.run, role.kind)]}


def _joined(draft: Draft, role: Role) -> Parents:
    return {f"part{number}": features for number, features in enumerate(draft.parts(role.kind), 1)}


def _shifted(draft: Draft, role: Role) -> Parents:
    features = draft.parts(role.kind)[role.part - 1]
    return {"features": features, **features.parents}


def _changed(draft: Draft, role: Role) -> Parents:
    return {**_shifted(draft, role), "data": draft.artifacts["data"]}


def _neighbours(draft: Draft, role: Role) -> Parents:
    """The features of each kind and those of changed copies, changed1_random of the first part."""
    kinds = [kind for _, kind in draft.copies]
    copies = {
        str(Role(f"changed{part}", kind)): features
        for (_, kind), parts in draft.copies.items()
        for part, features in enumerate(parts, 1)
    }
    features = {str(Role("features", kind)): draft.classified(kind) for kind in kinds}
    return {"data": draft.artifacts["data"], **features, **copies}


def _classifier(draft: Draft, role: Role) -> Parents:
    shifted = (
        draft.copies["shifted", role.kind] if parameters.decides_by_shifts(draft.run, role) else []
    )
    return {
        "features": draft.classified(role.kind),
        "data": draft.artifacts["data"],
        **{f"shifted{number}": features for number, features in enumerate(shifted, 1)},
    }


def _map(draft: Draft, role: Role) -> Parents:
    return {"features": draft.classified(role.kind)}


def _labels(draft: Draft, role: Role) -> Parents:
    return {"features": draft.classified(role.kind), "data": draft.artifacts["data"]}


def _report(draft: Draft, role: Role) -> Parents:
    """All of the chain, and what it is compared with: the runs of its list with the same images."""
    beside: Parents = {}
    for number, entry in enumerate(draft.run.listed, 1):
        if (
            entry.run
            and not entry.reason
            and runs.data_params(entry.run) == runs.data_params(draft.run)
        ):
            beside |= _compared(number, entry.overrides, chain(entry.run), beside)
    return {**draft.artifacts, **beside}


def _compared(number: int, changed: dict[str, Any], other: Chain, beside: Parents) -> Parents:
    """The artifacts of other runs that the report reads, by role.

    score_run<n>      what answers for run n of the list
    svm_seed2, ...    each score of a run that differs in its seed alone
    train_reference   the training of the first run by another rung
    """
    parents, answer = {}, lineage.answering(other)
    if answer:
        parents[str(Role(SCORE, f"{RUN}{number}"))] = other[answer]
    if changed.keys() == {"seed"}:
        parents |= {
            str(dataclasses.replace(Role.parse(role), seed=changed["seed"])): artifact
            for role, artifact in other.items()
            if artifact.stage in SCORING
        }
    training = str(Role("train", REFERENCE))
    if changed.keys() == {"variant"} and "train" in other and training not in beside:
        parents[training] = other["train"]
    return parents


STAGES = {
    stage.name: stage
    for stage in (
        Stage("data", "prepare_data", lambda run, role: runs.data_params(run), _own()),
        Stage("normalized", "normalize_images", parameters.normalized, _own("data")),
        Stage("initial", "initialize_weights", parameters.initial, _own()),
        Stage("patches", "fit_patches", parameters.patches, _own("normalized", "initial")),
        Stage("train", "train_network", parameters.train, _train),
        Stage("evaluate", "evaluate_network", parameters.evaluate, _evaluate),
        Stage("features", "extract_features", parameters.features, _features),
        Stage(
            "joined",
            "join_features",
            lambda run, role: {"weights": [1, *(part.weight for part in run.parts)]},
            _joined,
        ),
        Stage("shifted", "shift_features", parameters.shifted, _shifted),
        Stage("changed", "change_pictures", parameters.changed, _changed),
        Stage("neighbours", "find_neighbours", parameters.neighbours, _neighbours),
        Stage("svm", "fit_svm", parameters.svm, _classifier),
        Stage("linear", "fit_linear", parameters.classifier("seed"), _classifier),
        Stage("ridge", "fit_ridge", parameters.classifier("seed", "array_library"), _classifier),
        Stage(
            "knn",
            "classify_knn",
            parameters.classifier("knn_k", "array_library"),
            _classifier,
        ),
        Stage("labels", "measure_labels", parameters.labels, _labels),
        Stage("map", "map_features", parameters.feature_map, _map),
        Stage(
            "report",
            "make_report",
            parameters.report,
            _report,
            ("report.html", "summary.json", "scored_images.csv"),
            anywhere=True,
        ),
    )
}
# they end in an accuracy
SCORING = {"evaluate", *(name for name, stage in STAGES.items() if stage.parents is _classifier)}
