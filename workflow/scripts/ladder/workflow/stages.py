"""The stages, and the version of each artifact: a hash of everything that may change its bytes.

An artifact lives in results/<stage>/<version>/. Its version is a hash of the stage's parameters, the text of its source
files, and its parents' versions. A chain holds the artifacts of one configuration by role; most stages have one role,
`features` and the classifiers have one more for each control.
"""

import dataclasses
import functools
import math
import pathlib
import string

from ladder import sources
from ladder.data import facts as dataset_facts
from ladder.data import listing
from ladder.data.facts import FOLDER
from ladder.executors import create
from ladder.machine import libraries
from ladder.network import networks
from ladder.rungs import counted
from ladder.sources import ROOT, closure
from ladder.store import lineage, manifests, programs
from ladder.store.versions import canonical, version
from ladder.workflow import network_files

SCRIPTS = "workflow/scripts"
LEGIBLE = 200   # maximum characters of a change shown in words
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


def script(stage):
    """The path of the stage's script, relative to the root."""
    return f"{SCRIPTS}/{RULES[stage]}.py"


def stage_sources(stage, params):
    """Every file that may change the bytes of a stage's artifact with these parameters; paths relative to the root.

    These are the imports of the stage's script; if they include the plan, also the rungs that the parameters name; if they
    include the pages' templates, all templates.
    """
    found = script_sources(stage)
    variants = [*params.get("variants", []), *([params["variant"]] if "variant" in params else [])]
    rungs = [sources.that_count(create.sources(variant)) for variant in variants if PLAN in found]
    return sorted(found.union(*rungs, templates() if TEMPLATES in found else ()))


@functools.cache
def script_sources(stage):
    """The Python files that a stage's script imports, as far as they can change its artifact."""
    return sources.that_count(closure(ROOT / script(stage)))


@functools.cache
def templates():
    folder = ROOT / "workflow/report"
    return frozenset(path.relative_to(ROOT).as_posix() for path in (*folder.glob("*.*"), *folder.glob("uplot/*.min.*")))


@dataclasses.dataclass(frozen=True)
class Keyed:
    """One artifact of a chain.

    spec: {stage, params, sources: {path: digest}, parents: {name: version}}, and with strict_versions also
    libraries: {package: version}.
    """

    role: str
    spec: dict
    parents: dict   # name -> Keyed

    @property
    def stage(self):
        return self.spec["stage"]

    @functools.cached_property
    def version(self):
        return version(self.spec)

    @property
    def folder(self):
        return f"results/{self.stage}/{self.version}"

    @property
    def manifest(self):
        return f"{self.folder}/{manifests.MANIFEST}"


def chain(config):
    """Every artifact of the resolved `config` by role, in the order of the work.

    A network that classifies by itself is evaluated; features and their SVM exist if the configuration names a layer for them.
    If layers are fitted to patches, training starts from them, and the features come from them unless training changes them.
    Without a training step the features and the evaluation come from the initial weights.
    """
    roles, network, strict = {}, network_params(config), config["strict_versions"]
    classifies, kinds = networks.from_params(network).classifies, _kinds(config)
    labels, fitted = {"data": "data"} if classifies else {}, config["training"] != "gradient"

    def add(role, stage, params, **parents):
        roles[role] = _keyed(role, stage, params, strict, **{name: roles[parent] for name, parent in parents.items()})

    add("data", "data", data_params(config))
    add("normalized", "normalized", _pick(config, "normalization"), data="data")
    add("initial", "initial", {**network, **_initial(config)})
    if config["file_sha256"] and "_random" in kinds:   # the control is a random draw, whatever the run starts from
        add(DRAWN, "initial", {**network, **_pick(config, "seed")})
    if fitted:
        add("patches", "patches", {**network, **_fit(config)}, normalized="normalized", initial="initial")
    if trains(config):
        start = {"patches": "patches"} if fitted else {"initial": "initial"}
        add("train", "train", {**network, **_train(config, classifies)}, normalized="normalized", **start, **labels)
    encoder = {**network, **_pick(config, "variant"), **_tested_multiplier(config)}
    if classifies:
        weights = "train" if trains(config) else _weights(config)
        add("evaluate", "evaluate", encoder, normalized="normalized", data="data", weights=weights)
    parts = [chain({**part.settings, "controls": config["controls"]}) for part in config["parts"]]
    for kind, weights in kinds.items():
        classified = f"features{kind}"
        if weights:
            read = _start_features(config, encoder) if kind == START else _features(config, encoder)
            add(classified, "features", read, normalized="normalized", weights=weights)
        else:
            add(classified, "features", _pixel_features(config), normalized="normalized")
        if parts and weights:
            classified = f"joined{kind}"
            roles |= _joined(kind, roles, parts, [part.weight for part in config["parts"]], strict)
        shifted, versions = _shifted(kind, roles[classified], config), {keyed.version for keyed in roles.values()}
        roles |= {keyed.role: keyed for keyed in shifted.values() if keyed.version not in versions}
        for evaluation in ("svm", *config["evaluations"]):
            params = {**EVALUATIONS[evaluation](config), **_shifts(config)}
            role = f"{evaluation}{kind}"
            roles[role] = _keyed(role, evaluation, params, strict, features=roles[classified], data=roles["data"], **shifted)
        if config["feature_map"] and not kind:
            add("map", "map", _pick(config, "seed"), features=classified)
    if classifies and "pixels" in config["controls"] and _enough_for_linear(config):
        if "features_pixels" not in roles:
            add("features_pixels", "features", _pixel_features(config), normalized="normalized")
        if "linear_pixels" not in roles:
            add("linear_pixels", "linear", EVALUATIONS["linear"](config), features="features_pixels", data="data")

    called = _pick(config, *(key for key in ("name", "tags", "targets", "figures") if config[key]))
    if config["ablated"]:
        called["ablation"] = _listed(config["ablated"])
    run = {**network, **_pick(config, "dataset", "variant", "batch_size", "seed"), **called}
    roles["report"] = _keyed("report", "report", run, strict, **roles, **_reference(config), **_scores_of_others(config))
    return roles


def prediction_roles(chain):
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


def _reference(config):
    """The same training by another rung, if the run is compared with it: role -> Keyed."""
    made = chain(config["reference"]) if config["reference"] else {}
    return {"train_reference": made["train"]} if "train" in made else {}


def _scores_of_others(config):
    """The scores of other runs that the report shows, by role: svm_seed2, score_ablation1 -> Keyed."""
    found = {}
    for repeat in config["repeats"]:
        found |= {f"{role}_seed{repeat['seed']}": keyed for role, keyed in chain(repeat).items() if keyed.stage in SCORING}
    for number, entry in enumerate(config["ablated"], 1):
        scores = {} if entry.reason else chain(entry.settings)
        if role := lineage.answering(scores):
            found[f"score_ablation{number}"] = scores[role]
    return found


def _kinds(config):
    """Role suffix of each kind of features -> the role of its weights; None for raw pixels.

    A run of random weights is its own control.
    """
    if not config["features_layer"]:
        return {}
    controls = {"random": ("_random", DRAWN if config["file_sha256"] else "initial"), "pixels": ("_pixels", None)}
    asked = set(config["controls"]) - ({"random"} if _random(config) else set())
    start = {START: _start(config)} if _has_start(config) else {}
    own = _start(config) if start and _keeps_encoder(config) else _weights(config)
    return {"": own, **start, **dict(of for name, of in controls.items() if name in asked)}


def _has_start(config):
    """Whether labels train a head over an encoder that was there before, whose own features are then classified too."""
    is_there = config["file_sha256"] or _start(config) != "initial"
    return config["network"] in networks.HEADED and trains(config) and bool(is_there)


def _keeps_encoder(config):
    """Whether the training leaves the encoder as it was."""
    return config["freeze_encoder"] or config["training"] == "patches"


def _start(config):
    """The role of the weights that a training starts from."""
    return "initial" if config["training"] == "gradient" else "patches"


def _enough_for_linear(config):
    return config["train_limit"] == "all" or config["train_limit"] >= LEAST_FOR_LINEAR


def trains(config):
    """Whether the run makes a training step, of the decoder alone included."""
    length = config["epochs"] if config["steps"] == "none" else config["steps"]
    return networks.from_params(network_params(config)).trains and bool(config["training"] != "gradient" or length)


def _weights(config):
    """The role of the weights that the run's features and evaluation come from."""
    return "patches" if config["training"] == "patches" else "train" if trains(config) else "initial"


def _random(config):
    """Whether all features of the run, those joined to its own included, come from random weights."""
    own = _weights(config) == "initial" and not config["file_sha256"]
    return own and all(_random(part.settings) for part in config["parts"])


def _joined(kind, roles, parts, weights, strict):
    """The role of this kind's features concatenated with those of other chains (the parts), and their ancestors' roles."""
    own, found = f"features{kind}", {}
    joined_to = [part.get(own, part["features"]) for part in parts]   # a part of random weights has no control beside it
    for number, features in enumerate(joined_to, 2):
        for keyed in _ancestry(features):
            if keyed.version not in {one.version for one in (*roles.values(), *found.values())}:
                found[f"{keyed.role}_part{number}"] = keyed
    joined = _keyed(f"joined{kind}", "joined", {"weights": [1, *weights]}, strict,
                    part1=roles[own], **{f"part{number}": features for number, features in enumerate(joined_to, 2)})
    return {**found, joined.role: joined}


def _shifted(kind, classified, config):
    """The features of the shifted test images for each part of this kind's features: shifted1, shifted2, ... -> Keyed."""
    if not _shifts(config):
        return {}
    parts, found = classified.parents.values() if classified.stage == "joined" else [classified], {}
    for number, features in enumerate(parts, 1):
        role = f"shifted{kind}" + (f"_part{number}" if number > 1 else "")
        checked = {key: value for key, value in features.spec["params"].items() if key in ("variant", "array_library")}
        found[f"shifted{number}"] = _keyed(role, "shifted", {**checked, **_shifts(config)}, config["strict_versions"],
                                           features=features, **features.parents)
    return found


def _shifts(config):
    """The parameter of the stages that shift images or classify shifted ones; empty if images are not shifted."""
    return {} if config["classify_shifts"] == "none" else _pick(config, "classify_shifts")


def _ancestry(keyed):
    """Its ancestors and itself, in the order of the work."""
    return [one for parent in keyed.parents.values() for one in _ancestry(parent)] + [keyed]


def comparison(entries, stage="compare", **params):
    """The page of several runs, of the compare list or of a search; entries: config.Entry; params: further parameters."""
    return _runs_together(stage, entries, {**params, "entries": _listed(entries)})


def multiplier_comparison(entries):
    """The page of the runs of the multipliers list; entries: config.Entry.

    Its `settings` are those by which two runs can differ: MULTIPLIER_CELL and the overrides of all entries.
    """
    keys = dict.fromkeys((*MULTIPLIER_CELL, *(key for entry in entries for key in entry.overrides)))
    return _runs_together("multipliers", entries, {"entries": [
        {"overrides": entry.overrides, "settings": _pick(entry.settings, *keys), "reason": entry.reason} for entry in entries]})


def _runs_together(stage, entries, params):
    """The parents of entry n are report<n> and train<n>, the weights (fitted or initial ones if the network is not trained).

    An entry that cannot run here has none.
    """
    parents = {}
    for number, entry in enumerate(entries):
        if not entry.reason:
            roles = chain(entry.settings)
            made = next(roles[role] for role in ("train", "patches", "initial") if role in roles)
            parents |= {f"report{number}": roles["report"], f"train{number}": made}
    return _keyed(stage, stage, params, **parents)


def _listed(entries):
    return [{"overrides": entry.overrides, "reason": entry.reason} for entry in entries]


# Options of a network that enter the version only with another value; these mean "off", or what was before there was an option.
OFF_IN_NETWORK = {"input_noise": 0, "latent_penalty": 0, "variational": False, "autoencoder_residual": False,
                  "autoencoder_attention": False, "patch_net_kernel": 6}
OF_ANOTHER = {"variational_beta": "variational"}   # option -> the option without which it is left out


def network_params(config):
    """The parameters of networks.from_params: the network's name, input and options, or the table in a person's own file."""
    if network_files.is_file(config["network"]):
        facts = dataset_facts.of(config)
        params = {**network_files.params(config["network"], facts.shape, facts.classes), "image": list(facts.shape)}
        return {**params, "classes": facts.classes} if params["table"]["loss"] == "cross_entropy" else params
    facts, options = dataset_facts.of(config), networks.OPTIONS.get(config["network"], {}).values()
    off = {key for key, value in OFF_IN_NETWORK.items() if config[key] == value}
    options = [key for key in options if key not in off and OF_ANOTHER.get(key) not in off]
    params = {**_pick(config, "network", *options), "image": list(facts.shape)}
    return {**params, "classes": facts.classes} if networks.from_params(params).classifies else params


def network_page(config):
    """The drawing of the network, which is part of no chain."""
    shown = _pick(config, "batch_size", "optimizer", "variant", *(["recompute"] if config["recompute"] else []))
    return _keyed("network", "network", {**network_params(config), **shown})


def gradients_page(config):
    """The check of the network's backward pass, which is part of no chain."""
    params = {**network_params(config), **_pick(config, "variant"), "variants": ["cpu_sequential"]}   # of the reference
    return _keyed("gradients", "gradients", params)


def parity(config, variants, machine):
    """The comparison of these variants on this machine, which is part of no chain; machine: see variants.machine()."""
    params = {**network_params(config), **_pick(config, "batch_size"), "variants": variants, "machine": machine,
              "predictions": counted.predictions()}
    return _keyed("parity", "parity", params)


def _keyed(role, stage, params, strict=False, **parents):
    """parents: name -> Keyed; strict: the versions of libraries count."""
    files = stage_sources(stage, params)
    return Keyed(role, {
        "stage": stage,
        "params": params,
        "sources": {path: programs.digest(path) for path in files},
        **({"libraries": libraries.installed(files)} if strict else {}),
        "parents": {name: parent.version for name, parent in parents.items()},
    }, parents)


def _pick(config, *keys):
    return {key: config[key] for key in keys}


def data_params(config):
    """The parameters that determine the images and their order."""
    keys = ["dataset", "train_limit", "holdout" if config["holdout"] else "test_limit"]
    if config["dataset"] == "cifar10":
        # Without a checksum only the addresses identify the archive.
        keys += ["cifar10_sha256"] if config["cifar10_sha256"] else ["cifar10_sha256", "cifar10_urls"]
    if config["dataset"] == FOLDER:
        own_test = listing.of(config["folder"]).has_test
        keys += ["folder_sha256", "image_size", "image_channels", *([] if own_test else ["test_share"])]
    return _pick(config, *keys)


def _initial(config):
    """A head over an encoder from a file is drawn by the seed."""
    if config["file_sha256"] and config["network"] in networks.HEADED:
        return _pick(config, "file_sha256", "seed")
    return _pick(config, "file_sha256" if config["file_sha256"] else "seed")


def _fit(config):
    keys = ["variant", "array_library", "patches_atoms", "patches_samples", "patches_whitening", "seed"]
    return _pick(config, *keys, *(["patches_iterations"] if config["patches_atoms"] == "kmeans" else []))


def _train(config, classifies):
    keys = ["training", "variant", "batch_size", "optimizer", "learning_rate", "weight_decay", "gradient_clip", "schedule",
            "warmup_steps", "augment_flip", "augment_crop", "augment_rotate", "augment_colour", "seed"]
    keys += ["decoder_epochs"] if config["training"] != "gradient" else []
    keys += ["epochs" if config["steps"] == "none" else "steps"] if config["training"] != "patches" else []
    keys += [] if classifies else ["gradient_scale"]
    keys += ["freeze_encoder"] if config["network"] in networks.HEADED else []
    keys += ["momentum"] if config["optimizer"] == "momentum" else []
    keys += ["schedule_step_epochs", "schedule_step_factor"] if config["schedule"] == "step" else []
    keys += ["patience"] if config["holdout"] else []
    return {**_pick(config, *keys), **_multiplier(config)}


def _multiplier(config):
    """What the training multiplies; empty if that is exact. float16 needs loss scaling."""
    name, used = config["multiplier_identity"], config["multiplier_in"]
    if name == "exact" or not used:
        return _precision(config)
    scaled = name == "fp16" and used != ["forward"]
    return {"multiplier": name, "multiplier_in": used, **(_pick(config, "loss_scale") if scaled else {})}


def _tested_multiplier(config):
    name = config["test_multiplier_identity"]
    return _precision(config) if name == "exact" else {"multiplier": name}


def _precision(config):
    return {} if config["precision"] == "float32" else _pick(config, "precision")


# Feature options that enter the version only when enabled; the values mean "off".
OFF = {"features_two_polarity": "none", "features_polarity_scale": "none", "features_max_pool": 1, "features_pca": "none"}
OFF_FOR_PIXELS = {"features_standardize": False, "features_flip": False, "features_pca": "none"}


def _features(config, encoder):
    params = {"encoder": "network", **encoder, "variant": config["features_variant"],
              **_pick(config, "features_layer", "features_standardize", "features_pool", "features_flip")}
    on = {key for key, off in OFF.items() if config[key] != off}
    if "features_two_polarity" not in on:
        on -= {"features_polarity_scale"}
    return {**params, **_with_what_is_fitted(config, on)}


def _start_features(config, encoder):
    """The features of an encoder before a head was trained over it: its own output, whatever layer the run names."""
    return {**_features(config, encoder), "features_layer": networks.from_params(encoder).features}


def _pixel_features(config):
    """Raw pixels take only the options that need no feature maps, and no PCA with as many components as pixels."""
    on = {key for key, off in OFF_FOR_PIXELS.items() if config[key] != off}
    if "features_pca" in on and config["features_pca"] >= math.prod(dataset_facts.of(config).shape):
        on -= {"features_pca"}
    return {"encoder": "pixels", **_with_what_is_fitted(config, on)}


def _with_what_is_fitted(config, on):
    sampled = ["features_fit_rows", "seed"] if on & {"features_polarity_scale", "features_pca"} else []
    computed = ["array_library"] if "features_pca" in on else []
    return _pick(config, *sorted(on), *sampled, *computed)


def _svm(config):
    params = {"backend": config["svm_backend"], "kernel": config["svm_kernel"], "C": config["svm_C"]}
    return params if config["svm_kernel"] == "linear" else {**params, "gamma": config["svm_gamma"]}


# The classifiers of the features: stage -> its parameters.
EVALUATIONS = {"svm": _svm, "linear": lambda config: _pick(config, "seed"),
               "ridge": lambda config: _pick(config, "seed", "array_library"),
               "knn": lambda config: _pick(config, "knn_k", "knn_distance", "array_library")}
SCORING = ("evaluate", *EVALUATIONS)   # stages that end in an accuracy


def why(keyed, results="results"):
    """Why `keyed` would be made: its differences from the most similar existing artifact of its kind; '' if it exists.

    'batch_size 64 -> 32', 'workflow/scripts/train_network.py changed', 'parent train changed', or 'first run'.
    """
    if _read_spec(results, keyed.stage, keyed.version):
        return ""
    kind = _kind(keyed.spec, results, {one.version: one.spec for one in _ancestry(keyed)})
    found = [spec for spec in _existing_specs(results, keyed.stage) if _kind(spec, results, {}) == kind]
    stages = {name: parent.stage for name, parent in keyed.parents.items()}
    return ", ".join(min((_differences(spec, keyed.spec, stages) for spec in found), key=len, default=["first run"]))


def other_libraries(keyed, results="results"):
    """'numpy 2.4.5 -> 2.4.6' for each library of which `keyed`, if it exists, was made with another version than here."""
    manifest = manifests.read_if_whole(pathlib.Path(results, keyed.stage, keyed.version))
    return libraries.changed(manifest["libraries"], libraries.installed(keyed.spec["sources"])) if manifest else []


def _existing_specs(results, stage):
    """Specs of the finished artifacts of a stage, the latest first."""
    found = sorted(pathlib.Path(results, stage).glob("*/manifest.json"), key=lambda path: -path.stat().st_mtime)
    specs = (_read_spec(results, stage, path.parent.name) for path in found)
    return [spec for spec in specs if spec]


def _read_spec(results, stage, version):
    """The spec in an artifact's manifest, None without one or if it is damaged."""
    manifest = manifests.read_if_whole(pathlib.Path(results, stage, version))
    return manifest and manifest["spec"]


def _kind(spec, results, known):
    """(encoder, kind of weights) of an artifact's features, so that a control is not compared with the trained network."""
    while spec and (parent := spec["parents"].get("features") or spec["parents"].get("part1")):
        spec = known.get(parent) or _read_spec(results, "joined" if parent[0] == "j" else "features", parent)
    if spec is None or spec["stage"] != "features":
        return None
    return spec["params"]["encoder"], spec["parents"].get("weights", "")[:1]


def changes(keyed, version, results="results"):
    """How `keyed` and its ancestors differ from the finished artifact `version` of its stage: ['batch_size 64 -> 32'].

    Files of the program count as one change; ancestors that are no longer there say nothing.
    """
    settings, others, seen = {}, {}, set()

    def visit(one, version):
        spec = _read_spec(results, one.stage, version)
        if version == one.version or (one.version, version) in seen or not spec:
            return
        seen.add((one.version, version))
        settings.update(dict.fromkeys(_changed_params(spec, one.spec)))
        others.update({"the program": None} if spec["sources"] != one.spec["sources"] else {})
        others.update({f"with {name}": None for name in one.parents.keys() - spec["parents"].keys()})
        others.update({f"without {name}": None for name in spec["parents"].keys() - one.parents.keys()})
        for name, parent in one.parents.items():
            if name in spec["parents"]:
                visit(parent, spec["parents"][name])

    visit(keyed, version)
    return [*settings, *sorted(others)]


def _changed_params(old, new):
    words = []
    for key in sorted(old["params"].keys() | new["params"].keys()):
        before, after = (_shown(spec["params"].get(key, "unused")) for spec in (old, new))
        if before != after:
            text = f"{key} {before} -> {after}"
            words.append(text if len(text) <= LEGIBLE else f"{key} changed")
    return words


def _differences(old, new, stages):
    """The changes from one spec to the other in words, one entry each; stages: the parents' stages by name."""
    words = _changed_params(old, new)
    edited = [path for path in sorted(old["sources"].keys() | new["sources"].keys())
              if old["sources"].get(path) != new["sources"].get(path)]
    if edited:
        words.append(f"{edited[0]}{f' and {len(edited) - 1} more sources' if len(edited) > 1 else ''} changed")
    if "libraries" in new:
        words += libraries.changed(old.get("libraries", {}), new["libraries"])
    for name in sorted(old["parents"].keys() | new["parents"].keys()):
        if old["parents"].get(name) != new["parents"].get(name):
            words.append(f"parent {stages.get(name, name.rstrip(string.digits))} changed")   # of a list: report0, report1
    return list(dict.fromkeys(words))


def _shown(value):
    return value if isinstance(value, str) else canonical(value)
