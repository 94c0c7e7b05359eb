"""The stages, and the version of each artifact: a hash of everything that may change its bytes.

An artifact lives in results/<stage>/<version>/. Its version is a hash of the stage's parameters, the text of its source
files, and its parents' versions. A chain holds the artifacts of one configuration by role; most stages have one role,
`features` and the classifiers have one more for each control.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

from ladder import sources
from ladder.executors import create
from ladder.machine import libraries
from ladder.network import networks
from ladder.rungs import counted
from ladder.sources import ROOT, closure
from ladder.store import lineage, manifests, programs
from ladder.store.versions import version
from ladder.workflow import runs
from ladder.workflow.runs import Run

SCRIPTS = "workflow/scripts"
LEAST_FOR_LINEAR = 20   # training images that classifiers/linear.py needs
START = "_start"           # suffix of the features, and their classifiers, of an encoder before labels train a head over it
DRAWN = "initial_random"   # role of the random control's weights where the run itself starts from a file


# Stage -> the rule that makes its artifacts, which is also the name of the script that the rule runs.
RULES = {
    "data": "prepare_data",
    "normalized": "normalize_images",
    "initial": "initialize_weights",
    "patches": "fit_patches",
    "train": "train_network",
    "evaluate": "evaluate_network",
    "features": "extract_features",
    "joined": "join_features",
    "shifted": "shift_features",
    "svm": "fit_svm",
    "linear": "fit_linear",
    "ridge": "fit_ridge",
    "knn": "classify_knn",
    "map": "map_features",
    "report": "make_report",
    "compare": "compare_runs",
    "multipliers": "compare_multipliers",
    "search": "search_runs",
    "network": "draw_network",
    "gradients": "check_gradients",
    "parity": "check_parity",
}
PLAN, TEMPLATES = f"{SCRIPTS}/ladder/training/plan.py", f"{SCRIPTS}/ladder/pages/templates.py"
# Settings shown for each run of the multipliers list, besides its overrides.
MULTIPLIER_CELL = ("dataset", "network", "seed", "multiplier", "multiplier_identity", "multiplier_in", "test_multiplier",
                   "test_multiplier_identity", "loss_scale")


def script(stage: str) -> str:
    """The path of the stage's script, relative to the root."""
    return f"{SCRIPTS}/{RULES[stage]}.py"


def stage_sources(stage: str, params: dict[str, Any]) -> list[str]:
    """Every file that may change the bytes of a stage's artifact with these parameters; paths relative to the root.

    These are the imports of the stage's script; if they include the plan, also the rungs that the parameters name; if they
    include the pages' templates, all templates.
    """
    found = script_sources(stage)
    variants = [*params.get("variants", []), *([params["variant"]] if "variant" in params else [])]
    rungs = [sources.that_count(create.sources(variant)) for variant in variants if PLAN in found]
    return sorted(found.union(*rungs, templates() if TEMPLATES in found else ()))


@functools.cache
def script_sources(stage: str) -> set[str]:
    """The Python files that a stage's script imports, as far as they can change its artifact."""
    return sources.that_count(closure(ROOT / script(stage)))


@functools.cache
def templates() -> frozenset[str]:
    folder = ROOT / "workflow/report"
    return frozenset(path.relative_to(ROOT).as_posix() for path in (*folder.glob("*.*"), *folder.glob("uplot/*.min.*")))


@dataclasses.dataclass(frozen=True)
class Keyed:
    """One artifact of a chain.

    spec: {stage, params, sources: {path: digest}, parents: {name: version}}, and with strict_versions also
    libraries: {package: version}.
    """

    role: str
    spec: dict[str, Any]
    parents: dict[str, "Keyed"]

    @property
    def stage(self) -> str:
        return self.spec["stage"]

    @functools.cached_property
    def version(self) -> str:
        return version(self.spec)

    @property
    def folder(self) -> str:
        return f"results/{self.stage}/{self.version}"

    @property
    def manifest(self) -> str:
        return f"{self.folder}/{manifests.MANIFEST}"


def chain(run: Run) -> dict[str, Keyed]:
    """Every artifact of a run by role, in the order of the work.

    A network that classifies by itself is evaluated; features and their SVM exist if the run has a layer for them.
    If layers are fitted to patches, training starts from them, and the features come from them unless training changes them.
    Without a training step the features and the evaluation come from the initial weights.
    """
    roles: dict[str, Keyed] = {}
    network, strict = run.network_params, run.settings.strict_versions
    classifies, kinds = run.network.classifies, _kinds(run)
    labels, fitted = {"data": "data"} if classifies else {}, run.settings.training != "gradient"

    def add(role: str, stage: str, params: dict[str, Any], **parents: str) -> None:
        roles[role] = _keyed(role, stage, params, strict, **{name: roles[parent] for name, parent in parents.items()})

    add("data", "data", runs.data_params(run))
    add("normalized", "normalized", run.pick("normalization"), data="data")
    add("initial", "initial", {**network, **_initial(run)})
    if run.file_sha256 and "_random" in kinds:   # the control is a random draw, whatever the run starts from
        add(DRAWN, "initial", {**network, **run.pick("seed")})
    if fitted:
        add("patches", "patches", {**network, **_fit(run)}, normalized="normalized", initial="initial")
    if trains(run):
        start = {"patches": "patches"} if fitted else {"initial": "initial"}
        add("train", "train", {**network, **_train(run, classifies)}, normalized="normalized", **start, **labels)
    encoder = {**network, **run.pick("variant"), **_tested_multiplier(run)}
    if classifies:
        tested = "train" if trains(run) else _weights(run)
        add("evaluate", "evaluate", encoder, normalized="normalized", data="data", weights=tested)
    parts = [chain(part.run) for part in run.parts]
    for kind, weights in kinds.items():
        classified = f"features{kind}"
        if weights:
            read = _start_features(run, encoder) if kind == START else _features(run, encoder)
            add(classified, "features", read, normalized="normalized", weights=weights)
        else:
            add(classified, "features", _pixel_features(run), normalized="normalized")
        if parts and weights:
            classified = f"joined{kind}"
            roles |= _joined(kind, roles, parts, [part.weight for part in run.parts], strict)
        shifted, versions = _shifted(kind, roles[classified], run), {keyed.version for keyed in roles.values()}
        roles |= {keyed.role: keyed for keyed in shifted.values() if keyed.version not in versions}
        for evaluation in ("svm", *run.settings.evaluations):
            params = {**EVALUATIONS[evaluation](run), **_shifts(run)}
            role = f"{evaluation}{kind}"
            roles[role] = _keyed(role, evaluation, params, strict, features=roles[classified], data=roles["data"], **shifted)
        if run.settings.feature_map and not kind:
            add("map", "map", run.pick("seed"), features=classified)
    if classifies and "pixels" in run.settings.controls and _enough_for_linear(run):
        if "features_pixels" not in roles:
            add("features_pixels", "features", _pixel_features(run), normalized="normalized")
        if "linear_pixels" not in roles:
            add("linear_pixels", "linear", EVALUATIONS["linear"](run), features="features_pixels", data="data")

    called = {key: value for key, value in run.pick("name", "tags", "targets", "figures").items() if value}
    if run.ablated:
        called["ablation"] = _listed(run.ablated)
    shown = {**network, **run.pick("dataset", "variant", "batch_size", "seed"), **called}
    roles["report"] = _keyed("report", "report", shown, strict, **roles, **_reference(run), **_scores_of_others(run))
    return roles


def prediction_roles(chain: dict[str, Keyed]) -> list[str]:
    """The roles of a chain whose artifacts classify a picture (demo.predictor.Predictor), in the order of the work."""
    answering = lineage.answering(chain)
    wanted = [chain[role] for role in (answering, "train", *(["features"] if "evaluate" in chain else [])) if role in chain]
    needed = set()
    while wanted:
        keyed = wanted.pop()
        needed.add(keyed.version)
        # Neither the start of a training or a fit, nor the features of the shifted test images.
        wanted += (parent for name, parent in keyed.parents.items() if name != "initial" and parent.stage != "shifted")
    return [role for role, keyed in chain.items() if keyed.version in needed]


def _reference(run: Run) -> dict[str, Keyed]:
    """The same training by another rung, if the run is compared with it: role -> Keyed."""
    made = chain(run.reference) if run.reference else {}
    return {"train_reference": made["train"]} if "train" in made else {}


def _scores_of_others(run: Run) -> dict[str, Keyed]:
    """The scores of other runs that the report shows, by role: svm_seed2, score_ablation1 -> Keyed."""
    found: dict[str, Keyed] = {}
    for repeat in run.repeats:
        seed = repeat.settings.seed
        found |= {f"{role}_seed{seed}": keyed for role, keyed in chain(repeat).items() if keyed.stage in SCORING}
    for number, entry in enumerate(run.ablated, 1):
        scores = chain(entry.run) if entry.run and not entry.reason else {}
        if role := lineage.answering(scores):
            found[f"score_ablation{number}"] = scores[role]
    return found


def _kinds(run: Run) -> dict[str, str | None]:
    """Role suffix of each kind of features -> the role of its weights; None for raw pixels.

    A run of random weights is its own control.
    """
    if not run.features_layer:
        return {}
    controls = {"random": ("_random", DRAWN if run.file_sha256 else "initial"), "pixels": ("_pixels", None)}
    asked = set(run.settings.controls) - ({"random"} if _random(run) else set())
    start = {START: _start(run)} if _has_start(run) else {}
    own = _start(run) if start and _keeps_encoder(run) else _weights(run)
    return {"": own, **start, **dict(of for name, of in controls.items() if name in asked)}


def _has_start(run: Run) -> bool:
    """Whether labels train a head over an encoder that was there before, whose own features are then classified too."""
    is_there = run.file_sha256 or _start(run) != "initial"
    return run.settings.network in networks.HEADED and trains(run) and bool(is_there)


def _keeps_encoder(run: Run) -> bool:
    """Whether the training leaves the encoder as it was."""
    return run.settings.freeze_encoder or run.settings.training == "patches"


def _start(run: Run) -> str:
    """The role of the weights that a training starts from."""
    return "initial" if run.settings.training == "gradient" else "patches"


def _enough_for_linear(run: Run) -> bool:
    return run.settings.train_limit == "all" or run.settings.train_limit >= LEAST_FOR_LINEAR


def trains(run: Run) -> bool:
    """Whether the run makes a training step, of the decoder alone included."""
    length = run.settings.epochs if run.settings.steps == "none" else run.settings.steps
    return run.network.trains and bool(run.settings.training != "gradient" or length)


def _weights(run: Run) -> str:
    """The role of the weights that the run's features and evaluation come from."""
    return "patches" if run.settings.training == "patches" else "train" if trains(run) else "initial"


def _random(run: Run) -> bool:
    """Whether all features of the run, those joined to its own included, come from random weights."""
    own = _weights(run) == "initial" and not run.file_sha256
    return own and all(_random(part.run) for part in run.parts)


def _joined(kind: str, roles: dict[str, Keyed], parts: list[dict[str, Keyed]], weights: list[float],
            strict: bool) -> dict[str, Keyed]:
    """The role of this kind's features concatenated with those of other chains (the parts), and their ancestors' roles."""
    own = f"features{kind}"
    found: dict[str, Keyed] = {}
    joined_to = [part.get(own, part["features"]) for part in parts]   # a part of random weights has no control beside it
    for number, features in enumerate(joined_to, 2):
        for keyed in ancestry(features):
            if keyed.version not in {one.version for one in (*roles.values(), *found.values())}:
                found[f"{keyed.role}_part{number}"] = keyed
    joined = _keyed(f"joined{kind}", "joined", {"weights": [1, *weights]}, strict,
                    part1=roles[own], **{f"part{number}": features for number, features in enumerate(joined_to, 2)})
    return {**found, joined.role: joined}


def _shifted(kind: str, classified: Keyed, run: Run) -> dict[str, Keyed]:
    """The features of the shifted test images for each part of this kind's features: shifted1, shifted2, ... -> Keyed."""
    if not _shifts(run):
        return {}
    parts, found = classified.parents.values() if classified.stage == "joined" else [classified], {}
    for number, features in enumerate(parts, 1):
        role = f"shifted{kind}" + (f"_part{number}" if number > 1 else "")
        checked = {key: value for key, value in features.spec["params"].items() if key in ("variant", "array_library")}
        found[f"shifted{number}"] = _keyed(role, "shifted", {**checked, **_shifts(run)}, run.settings.strict_versions,
                                           features=features, **features.parents)
    return found


def _shifts(run: Run) -> dict[str, Any]:
    """The parameter of the stages that shift images or classify shifted ones; empty if images are not shifted."""
    return {} if run.settings.classify_shifts == "none" else run.pick("classify_shifts")


def ancestry(keyed: Keyed) -> list[Keyed]:
    """Its ancestors and itself, in the order of the work."""
    return [one for parent in keyed.parents.values() for one in ancestry(parent)] + [keyed]


def comparison(entries: Sequence[runs.Entry], stage: str = "compare", **params: Any) -> Keyed:
    """The page of several runs, of the compare list or of a search; entries: runs.Entry; params: further parameters."""
    return _runs_together(stage, entries, {**params, "entries": _listed(entries)})


def multiplier_comparison(entries: Sequence[runs.Entry]) -> Keyed:
    """The page of the runs of the multipliers list; entries: runs.Entry.

    Its `settings` are those by which two runs can differ: MULTIPLIER_CELL and the overrides of all entries.
    """
    keys = dict.fromkeys((*MULTIPLIER_CELL, *(key for entry in entries for key in entry.overrides)))
    return _runs_together("multipliers", entries, {"entries": [
        {"overrides": entry.overrides, "settings": entry.run.pick(*keys), "reason": entry.reason}
        for entry in entries if entry.run]})


def _runs_together(stage: str, entries: Sequence[runs.Entry], params: dict[str, Any]) -> Keyed:
    """The parents of entry n are report<n> and train<n>, the weights (fitted or initial ones if the network is not trained).

    An entry that cannot run here has none.
    """
    parents: dict[str, Keyed] = {}
    for number, entry in enumerate(entries):
        if entry.run and not entry.reason:
            roles = chain(entry.run)
            made = next(roles[role] for role in ("train", "patches", "initial") if role in roles)
            parents |= {f"report{number}": roles["report"], f"train{number}": made}
    return _keyed(stage, stage, params, False, **parents)


def _listed(entries: Sequence[runs.Entry]) -> list[dict[str, Any]]:
    return [{"overrides": entry.overrides, "reason": entry.reason} for entry in entries]


def network_page(run: Run) -> Keyed:
    """The drawing of the network, which is part of no chain."""
    shown = run.pick("batch_size", "optimizer", "variant", *(["recompute"] if run.settings.recompute else []))
    return _keyed("network", "network", {**run.network_params, **shown})


def gradients_page(run: Run) -> Keyed:
    """The check of the network's backward pass, which is part of no chain."""
    params = {**run.network_params, **run.pick("variant"), "variants": ["cpu_sequential"]}   # of the reference
    return _keyed("gradients", "gradients", params)


def parity(run: Run, variants: list[str], machine: dict[str, Any]) -> Keyed:
    """The comparison of these variants on this machine, which is part of no chain; machine: see variants.machine()."""
    params = {**run.network_params, **run.pick("batch_size"), "variants": variants, "machine": machine,
              "predictions": counted.predictions()}
    return _keyed("parity", "parity", params)


def _keyed(role: str, stage: str, params: dict[str, Any], strict: bool = False, **parents: Keyed) -> Keyed:
    """parents: name -> Keyed; strict: the versions of libraries count."""
    files = stage_sources(stage, params)
    return Keyed(role, {
        "stage": stage,
        "params": params,
        "sources": {path: programs.digest(path) for path in files},
        **({"libraries": libraries.installed(files)} if strict else {}),
        "parents": {name: parent.version for name, parent in parents.items()},
    }, parents)


def _initial(run: Run) -> dict[str, Any]:
    """A head over an encoder from a file is drawn by the seed."""
    if run.file_sha256 and run.settings.network in networks.HEADED:
        return run.pick("file_sha256", "seed")
    return run.pick("file_sha256" if run.file_sha256 else "seed")


def _fit(run: Run) -> dict[str, Any]:
    keys = ["variant", "array_library", "patches_atoms", "patches_samples", "patches_whitening", "seed"]
    return run.pick(*keys, *(["patches_iterations"] if run.settings.patches_atoms == "kmeans" else []))


def _train(run: Run, classifies: bool) -> dict[str, Any]:
    keys = ["training", "variant", "batch_size", "optimizer", "learning_rate", "weight_decay", "gradient_clip", "schedule",
            "warmup_steps", "augment_flip", "augment_crop", "augment_rotate", "augment_colour", "seed"]
    keys += ["decoder_epochs"] if run.settings.training != "gradient" else []
    keys += ["epochs" if run.settings.steps == "none" else "steps"] if run.settings.training != "patches" else []
    keys += [] if classifies else ["gradient_scale"]
    keys += ["freeze_encoder"] if run.settings.network in networks.HEADED else []
    keys += ["momentum"] if run.settings.optimizer == "momentum" else []
    keys += ["schedule_step_epochs", "schedule_step_factor"] if run.settings.schedule == "step" else []
    keys += ["patience"] if run.settings.holdout else []
    return {**run.pick(*keys), **_multiplier(run)}


def _multiplier(run: Run) -> dict[str, Any]:
    """What the training multiplies; empty if that is exact. float16 needs loss scaling."""
    name, used = run.multiplier_identity, run.settings.multiplier_in
    if name == "exact" or not used:
        return _precision(run)
    scaled = name == "fp16" and used != ["forward"]
    return {"multiplier": name, "multiplier_in": used, **(run.pick("loss_scale") if scaled else {})}


def _tested_multiplier(run: Run) -> dict[str, Any]:
    name = run.test_multiplier_identity
    return _precision(run) if name == "exact" else {"multiplier": name}


def _precision(run: Run) -> dict[str, Any]:
    return {} if run.settings.precision == "float32" else run.pick("precision")


# Feature options that enter the version only when enabled; the values mean "off".
OFF = {"features_two_polarity": "none", "features_polarity_scale": "none", "features_max_pool": 1, "features_pca": "none"}
OFF_FOR_PIXELS = {"features_standardize": False, "features_flip": False, "features_pca": "none"}


def _features(run: Run, encoder: dict[str, Any]) -> dict[str, Any]:
    params = {"encoder": "network", **encoder, "variant": run.settings.features_variant,
              **run.pick("features_layer", "features_standardize", "features_pool", "features_flip")}
    on = {key for key, value in run.pick(*OFF).items() if value != OFF[key]}
    if "features_two_polarity" not in on:
        on -= {"features_polarity_scale"}
    return {**params, **_with_what_is_fitted(run, on)}


def _start_features(run: Run, encoder: dict[str, Any]) -> dict[str, Any]:
    """The features of an encoder before a head was trained over it: its own output, whatever layer the run names."""
    return {**_features(run, encoder), "features_layer": run.network.features}


def _pixel_features(run: Run) -> dict[str, Any]:
    """Raw pixels take only the options that need no feature maps, and no PCA with as many components as pixels."""
    on = {key for key, value in run.pick(*OFF_FOR_PIXELS).items() if value != OFF_FOR_PIXELS[key]}
    if "features_pca" in on and run.settings.features_pca >= math.prod(run.facts.shape):
        on -= {"features_pca"}
    return {"encoder": "pixels", **_with_what_is_fitted(run, on)}


def _with_what_is_fitted(run: Run, on: set[str]) -> dict[str, Any]:
    sampled = ["features_fit_rows", "seed"] if on & {"features_polarity_scale", "features_pca"} else []
    computed = ["array_library"] if "features_pca" in on else []
    return run.pick(*sorted(on), *sampled, *computed)


def _svm(run: Run) -> dict[str, Any]:
    params = {"backend": run.settings.svm_backend, "kernel": run.settings.svm_kernel, "C": run.settings.svm_C}
    return params if run.settings.svm_kernel == "linear" else {**params, "gamma": run.settings.svm_gamma}


# The classifiers of the features: stage -> its parameters.
EVALUATIONS = {"svm": _svm, "linear": lambda run: run.pick("seed"),
               "ridge": lambda run: run.pick("seed", "array_library"),
               "knn": lambda run: run.pick("knn_k", "knn_distance", "array_library")}
SCORING = ("evaluate", *EVALUATIONS)   # stages that end in an accuracy
