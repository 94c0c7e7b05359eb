"""The configuration: values are converted to their types and checked before anything is hashed."""

import bisect
import dataclasses
import functools
import hashlib
import itertools
import math
import pathlib

import yaml

from ladder import files
from ladder.arithmetic import multipliers
from ladder.classifiers import backends
from ladder.data import facts as dataset_facts
from ladder.data import listing, normalization
from ladder.errors import UserError, excerpt
from ladder.machine import driver, runtime
from ladder.network import networks
from ladder.pages import paper
from ladder.progress import size
from ladder.rungs import variants
from ladder.store import targets
from ladder.training import first_use, plan
from ladder.workflow import array_libraries, network_files, stages
from ladder.workflow.values import coerce, describe, nearest

SCHEMA = pathlib.Path(__file__).resolve().parents[3] / "config.schema.yaml"
LISTS = ("compare", "multipliers")   # keys that list runs
NESTED = (*LISTS, "ablation", "features_concatenate")   # keys whose entries are keys with other values
# Overrides for a nested run (part, repeat, ablation): it must not start further runs.
ALONE = {**dict.fromkeys((*LISTS, "seeds", "ablation"), []), "search": {}, "reference_variant": "none"}
MOST_BYTES = 10 ** 6   # of a configuration file
WEIGHT = {"type": "number", "exclusiveMinimum": 0, "maximum": 1e9}
# Keys that change no feature, so that a part that is appended to others would not show them.
OF_THE_WHOLE = ("svm_kernel", "svm_C", "svm_gamma", "evaluations", "knn_k", "knn_distance", "classify_shifts", "feature_map",
                "figures", "controls", "seeds", "ablation", "reference_variant", "targets", "svm_backend")
MOST_RUNS = 1000     # of all lists and a search together: each takes milliseconds of every command
MOST_VALUES, MOST_LEVELS = 20_000, 10   # of one key: the number of its values, and how deep they are nested


def load(raw):
    """The configuration `raw` (a dict from YAML or --config) with typed values, its keys in the schema's order.

    Text that can be read as the required type is converted: '1e-3', "32", 'null', 'true'. Raises UserError with one line that
    names the key, the fault, and the nearest valid key or choice.
    """
    properties = load_schema()["properties"]
    for key in raw:
        if key not in properties:
            raise UserError(f"config: there is no key {excerpt(str(key))}{_section_of(key) or nearest(key, properties)}")
        _check_size(key, raw[key])
    for key, rule in properties.items():
        if key not in raw:
            raise UserError(f"config: the key '{key}' is missing; it must be {describe(rule)}")
    config = {key: coerce(key, raw[key], rule) for key, rule in properties.items()}
    _check_together(config)
    _check_runs(config)
    return config


def read_file(path):
    """The keys and values in a YAML file; raises UserError with its name if it holds something else, or a key twice."""
    found = read_yaml(files.read(path, MOST_BYTES), path, f"{path} is not a YAML file of keys and values")
    if not isinstance(found, dict | None):
        raise UserError(f"{path} is not a YAML file of keys and values: it is a {type(found).__name__}")
    return found or {}


def read_yaml(text, where, fault):
    """The value of a text, or of the bytes of one.

    Raises UserError, which begins with `fault` if it is no YAML, and with `where` if a mapping has a key twice, of which
    readers of YAML take the last.
    """
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        twice = _key_twice(root)
        value = None if root is None or twice else loader.construct_document(root)
    except Exception as error:   # PyYAML raises its own errors and, for odd values, encodings and depths, many types of others
        raise UserError(f"{fault}: {' '.join(str(error).split())[:200]}") from error
    if twice:
        first, second = (node.start_mark.line + 1 for node in twice)
        lines = f"in line {first}" if first == second else f"in lines {first} and {second}"
        raise UserError(f"{where}: the key {excerpt(twice[0].value)} is there twice, {lines}; remove one of them")
    return value


def _key_twice(root):
    """The two nodes of a key that a mapping in a YAML document has twice; None if there is none."""
    left, seen = [root], set()
    while left:
        node = left.pop()
        if node in seen or not isinstance(node, yaml.CollectionNode):   # an alias may lead back
            continue
        seen.add(node)
        if isinstance(node, yaml.SequenceNode):
            left += node.value
            continue
        keys = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and keys.setdefault((key.tag, key.value), key) is not key:
                return keys[key.tag, key.value], key
            left.append(value)
    return None


def check_overrides(overridden):
    """Raise UserError for an empty object, which Snakemake merges into the key's value in config.yaml: it would do nothing."""
    for key, value in overridden.items():
        rule = load_schema()["properties"].get(key, {})
        if value == {} and rule and rule.get("type") != "object":
            raise UserError(f"config: {key} is {{}}, but must be {describe(rule)}")


def _section_of(key):
    """'; it is a key of search: search={strategy: ...}' for a key of a section, '' for another."""
    found = (name for name, rule in load_schema()["properties"].items() if key in rule.get("properties", {}))
    return next((f"; it is a key of {name}: {name}={{{key}: ...}}" for name in found), "")


def _check_size(key, value):
    """Refuse a value that is nested too deep, or in itself, or holds too many values to be read one by one."""
    level, count = [value], 0
    for _ in range(MOST_LEVELS + 1):
        level = [item for one in level if isinstance(one, (list, dict))
                 for item in (one if isinstance(one, list) else (*one, *one.values()))]
        count += len(level)
        if not level:
            return
        if count > MOST_VALUES:
            raise UserError(f"config: {key} holds more than {MOST_VALUES:,} values")
    raise UserError(f"config: {key} is nested more than {MOST_LEVELS} levels deep")


def resolve(config):
    """The loaded `config` with `auto` and `all` resolved on this machine: the settings that versions are computed from."""
    variant = chosen_variant(config)[0]
    _check_memory(config, variant)
    return {
        **config,
        "variant": variant,
        "features_variant": variant if config["features_variant"] == "same" else config["features_variant"],
        "svm_backend": backends.resolve_backend(config["svm_backend"]),
        "array_library": array_libraries.resolve(config["array_library"]),
        "threads": runtime.available_cores() if config["threads"] == "all" else config["threads"],
        "features_layer": _features_layer(config),
        "file_sha256": _sha256(config["initial_weights"]) if config["initial_weights"] != "none" else None,
        "folder_sha256": listing.of(config["folder"]).digest if config["dataset"] == dataset_facts.FOLDER else None,
        **_multipliers(config),
        "parts": _parts(config),
        "repeats": _repeats(config),
        "reference": _reference(config, variant),
        "ablated": _ablated(config),
    }


def chosen_variant(config):
    """(variant, reason) of the loaded or resolved `config`: see first_use.choose."""
    plan = first_use.described(stages.network_params(config), config["batch_size"])
    return first_use.choose(config["variant"], config["precision"], plan)


@dataclasses.dataclass(frozen=True)
class Entry:
    """One run of a list: its overrides, its resolved settings, and the reason it cannot run here, or ''."""

    overrides: dict
    settings: dict
    reason: str


def entries(config, key="compare"):
    """The Entry of every run in the list `key` (one of LISTS) of the loaded `config`, in order.

    A list for a key that takes a single value, or a list of lists for a key that takes a list, stands for one run per element;
    several such lists stand for all combinations. Raises UserError with one line that names the entry.
    """
    return [one for _, one in _entries(key, config[key], {**config, **ALONE})]


def _entries(key, listed, config):
    """(number, Entry) of every run of the list, each the `config` with its overrides; key: the name of the list."""
    found = []
    for number, named in enumerate(listed, 1):
        for overrides in _combinations(named):
            try:
                found.append((number, entry(config, overrides)))
            except UserError as error:
                raise UserError(f"{error} (entry {number} of {key})") from error
    return found


def entry(config, overrides):
    """The Entry of the loaded `config` with these overrides; raises UserError if they are invalid."""
    properties, settings = load_schema()["properties"], resolve(load({**config, **overrides}))
    reason = (variants.unavailable(settings["variant"]) or variants.unavailable(settings["features_variant"])
              or backends.unavailable(settings["svm_backend"]) or array_libraries.unavailable(settings["array_library"]) or "")
    reason = "" if runtime.jobs_run_elsewhere() else reason
    return Entry({key: coerce(key, value, properties[key]) for key, value in overrides.items()}, settings, reason)


# Nested runs.

@dataclasses.dataclass(frozen=True)
class Part:
    """Features appended to a run's own: their weight, and the resolved settings of the run that computes them."""

    weight: float
    settings: dict


def every(settings):
    """The resolved `settings`, and those of every nested run, recursively."""
    yield settings
    ablated = [one.settings for one in settings["ablated"] if not one.reason]
    reference = [settings["reference"]] if settings["reference"] else []
    for needed in (*(part.settings for part in settings["parts"]), *settings["repeats"], *ablated, *reference):
        yield from every(needed)


def _reference(config, variant):
    """The resolved settings of the same run by the rung `reference_variant`, None for none; variant: the run's own."""
    other = config["reference_variant"]
    if other == "none":
        return None
    if other == variant:
        raise UserError(f"config: reference_variant is {other}, but so is the variant of the run, which would be compared with "
                        "itself; name another rung, or none")
    return resolve(load({**config, **ALONE, "variant": other}))


def _repeats(config):
    """The resolved settings of the same run with each other seed of `seeds`."""
    others = [seed for seed in dict.fromkeys(config["seeds"]) if seed != config["seed"]]
    return [resolve(load({**config, **ALONE, "seed": seed})) for seed in others]


def _ablated(config):
    """The Entry of every run of the ablation list."""
    found = _entries("ablation", config["ablation"], {**config, **ALONE})
    for number, one in found:
        _check_same_images(one.settings, config, f"(entry {number} of ablation)")
    return [one for _, one in found]


def _parts(config):
    """The Part of every entry of features_concatenate."""
    listed, alone = config["features_concatenate"], {**config, **ALONE, "features_concatenate": []}
    weights = [coerce("weight", named.get("weight", 1), WEIGHT) for named in listed]
    others = [{key: value for key, value in named.items() if key != "weight"} for named in listed]
    for number, named in enumerate(others, 1):
        if idle := [key for key in OF_THE_WHOLE if key in named]:
            raise UserError(f"config: {idle[0]} changes no feature, so it has no effect in what is appended; set it outside "
                            f"(entry {number} of features_concatenate)")
    found = _entries("features_concatenate", others, alone)
    for number, one in found:
        where = f"(entry {number} of features_concatenate)"
        _check_same_images(one.settings, config, where)
        if one.settings["features_layer"] is None:
            raise UserError(f"config: {one.settings['network']} has no features unless features_layer names a layer {where}")
    return [Part(weights[number - 1], one.settings) for number, one in found]


def _check_same_images(settings, config, where):
    if stages.data_params(settings) != stages.data_params(config):
        raise UserError(f"config: dataset and limits must stay as they are, for the same images {where}")


def _combinations(entry):
    return (dict(zip(entry, values, strict=True)) for values in itertools.product(*_values(entry)))


def _values(entry):
    """The values of each key of a list's entry: a list stands for several, of a key that takes a list a list of lists."""
    properties, found = load_schema()["properties"], []
    for key, value in entry.items():
        is_list = properties.get(key, {}).get("type") == "array"
        several = isinstance(value, list) and (not is_list or any(isinstance(item, list) for item in value))
        if several and not value:
            raise UserError(f"config: {key} is an empty list, which stands for no run")
        found.append(value if several else [value])
    return found


def _check_runs(config):
    """Refuse lists that stand for too many runs, before the first of them is resolved."""
    for key in NESTED:
        if (count := sum(math.prod(map(len, _values(entry))) for entry in config[key])) > MOST_RUNS:
            raise UserError(f"config: {key} stands for {count:,} runs; at most {MOST_RUNS:,}")
    check_runs([config])


def check_runs(configs):
    """Refuse configurations that are too many runs with those nested in them; their nested values need not be valid."""
    runs = itertools.chain.from_iterable(map(_nested, configs))
    if sum(1 for _ in itertools.islice(runs, MOST_RUNS + 2)) > MOST_RUNS + 1:
        raise UserError(f"config: {', '.join(NESTED)}, seeds and search together stand for more than {MOST_RUNS:,} runs, the "
                        "largest number; take fewer")


def _nested(config):
    """`config`, and each run that is resolved with it, recursively."""
    yield config
    alone = {**config, **ALONE}
    for seed in _as_list(config["seeds"]):
        yield from _nested({**alone, "seed": seed})
    for key in NESTED:
        without = {"features_concatenate": []} if key == "features_concatenate" else {}
        for entry in _as_list(config[key]):
            for overrides in _combinations(entry if isinstance(entry, dict) else {}):
                yield from _nested({**alone, **without, **overrides})


def _as_list(value):
    return value if isinstance(value, list) else [value]


@functools.cache
def load_schema():
    """The schema of config.yaml with the available rungs; cached, not to be modified."""
    schema = yaml.load(SCHEMA.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))   # in C: six times as fast
    for key in ("variant", "features_variant", "reference_variant"):
        schema["properties"][key]["enum"] += variants.VARIANTS
    return schema


def _check_together(config):
    """Check combinations of keys."""
    facts = dataset_facts.of(config)
    for key, available in (("train_limit", facts.train), ("test_limit", facts.test)):
        if config[key] != "all" and not facts.classes <= config[key] <= available:
            raise UserError(f"config: {key} is {config[key]}, but {config['dataset']} has {available} such images in "
                            f"{facts.classes} classes; {facts.classes} to {available}, or all")
    images = facts.train if config["train_limit"] == "all" else config["train_limit"]
    if config["holdout"] and not facts.classes <= config["holdout"] <= images - facts.classes:
        raise UserError(f"config: holdout is {config['holdout']}, but of {images} training images in {facts.classes} classes "
                        f"it must leave some of each on both sides; {facts.classes} to {images - facts.classes}, or 0 for none")
    pixels = math.prod(facts.shape)
    if config["normalization"] == "zca" and pixels > normalization.MOST_WHITENED:
        raise UserError(f"config: normalization is zca, but an image of {'x'.join(map(str, facts.shape))} has {pixels:,} "
                        f"values, at most {normalization.MOST_WHITENED:,} can be whitened; standardize, or smaller images")
    if config["patience"] and not config["holdout"]:
        raise UserError(f"config: patience is {config['patience']}, but there is no hold-out set to measure the loss on; set "
                        "holdout to a number of training images, or patience to 0")
    left = training_images(config)
    if config["batch_size"] > left:
        raise UserError(f"config: batch_size is {config['batch_size']}, but there are {left} training images"
                        f"{' beside the hold-out' if config['holdout'] else ''}; at most {left}")
    if config["figures"] and paper.missing():
        raise UserError(f"config: {paper.missing()}")
    _check_targets(config)
    _check_training(config)
    _check_features(config)
    _check_precision(config)


def _check_targets(config):
    """Check that each metric begins with a number or a group of numbers of summary.json."""
    for target in config["targets"]:
        first = target["metric"].partition(".")[0]
        if first not in targets.METRICS:
            raise UserError(f"config: targets has the metric {excerpt(target['metric'])}, but summary.json has no such number"
                            f"{nearest(first, targets.METRICS) or '; results/summary.json of a run has them all'}")


def _check_training(config):
    """Check that the network supports the kind of training."""
    network, training = networks.from_params(stages.network_params(config)), config["training"]
    if config["variational"] and network.name != "autoencoder":
        raise UserError(f"config: variational is true, but network is {network.name}; set network to autoencoder, or "
                        "variational to false")
    if config["variational"] and training != "gradient":
        raise UserError(f"config: variational is true, but training is {training}, and distributions cannot be fitted to "
                        "patches; set training to gradient, or variational to false")
    for key in ("autoencoder_residual", "autoencoder_attention"):
        having = [name for name, options in networks.OPTIONS.items() if key in options.values()]
        if config[key] and network.name not in having:
            raise UserError(f"config: {key} is true, but network is {network.name}; set network to {' or '.join(having)}, or "
                            f"{key} to false")
        if config[key] and training != "gradient":
            raise UserError(f"config: {key} is true, but training is {training}, and its layers cannot be fitted to patches; "
                            f"set training to gradient, or {key} to false")
    if training != "gradient" and not network.fits:
        raise UserError(f"config: training is {training}, but {network.name} has no layers that are fitted to patches; set "
                        "training to gradient, or network to autoencoder or patch_net")
    if training != "patches" and not network.trains:
        raise UserError(f"config: training is {training}, but {network.name} is fitted to patches alone; set training to "
                        "patches")
    if config["freeze_encoder"] and config["network"] not in networks.HEADED:
        raise UserError(f"config: freeze_encoder is true, but {network.name} has no head that could be trained alone; set "
                        f"network to {' or '.join(networks.HEADED)}, or freeze_encoder to false")
    key = "epochs" if config["steps"] == "none" else "steps"
    if training == "patches_then_gradient" and not config[key]:
        raise UserError(f"config: {key} is 0, but training is {training}; set training to patches to train only the decoder")


def _check_memory(config, variant):
    """Check that a training step of a person's own network fits this machine, before anything runs."""
    if not network_files.is_file(config["network"]) or runtime.jobs_run_elsewhere() or variants.unavailable(variant):
        return
    network, batch = networks.from_params(stages.network_params(config)), config["batch_size"]
    on_gpu = variants.uses_gpu(variant)
    most, where = (driver.gpu().memory_bytes, "GPU") if on_gpu else (runtime.memory_bytes(), "machine")

    def needed(images, recompute=config["recompute"]):
        return plan.one_step(network, variant, images, config["optimizer"], recompute).bytes

    if needed(batch) <= most:
        return
    fits = bisect.bisect(range(1, batch), most, key=needed)
    advice = f"batch_size {fits} or less fits" if fits else f"not even 1 fits, with {network.parameter_count:,} parameters"
    advice += ", and this one with recompute=true" if needed(batch, True) <= most else ""
    raise UserError(f"config: a training step of {network.name} with batch_size {batch} takes {size(needed(batch))}, but "
                    f"this {where} has {size(most)}; {advice}")


def training_images(config):
    """Number of training images without the hold-out set."""
    images = dataset_facts.of(config).train if config["train_limit"] == "all" else config["train_limit"]
    return images - config["holdout"]


def _check_features(config):
    """Check that the features' layer exists and that its output can be pooled as configured."""
    network = networks.from_params(stages.network_params(config))
    names = [layer.name for layer in network.layers]
    if config["features_layer"] not in ("auto", *names):
        raise UserError(f"config: features_layer is {excerpt(config['features_layer'])}, but {network.name} has no such layer"
                        f"{nearest(config['features_layer'], names) or '; `snakemake results/network.html` draws them all'}")
    if config["features_flip"] == "apart" and "ridge" not in config["evaluations"]:
        raise UserError("config: features_flip is apart, but only kernel ridge uses both halves; add ridge to evaluations, or "
                        "set features_flip to true")
    if layer := _features_layer(config):
        _check_maps(config, layer, network.layer(layer).output_shape)
    if config["classify_shifts"] != "none":
        _check_shifts(config, network)


def _check_shifts(config, network):
    """Check that a classifier of features decides, and that shifted images still show a part of what they showed."""
    distance, side = config["classify_shifts"], min(dataset_facts.of(config).shape[:2])
    if not _features_layer(config):
        raise UserError(f"config: classify_shifts is {distance}, but {network.name} classifies by itself, and only classifiers "
                        "of features take shifted images; set features_layer to a layer's name, or classify_shifts to none")
    if distance >= side:
        raise UserError(f"config: classify_shifts is {distance}, but the images have only {side} pixels on a side; at most "
                        f"{side - 1}, or none")


def _check_maps(config, layer, shape):
    """Check that the output of `layer`, (H, W, C), can be pooled and projected as configured."""
    height, width, channels = shape
    for key, off in (("features_max_pool", 1), ("features_pool", "none")):
        size = config[key]
        if size != off and (height % size or width % size):
            put_out = f"layer {layer} puts out" if (height, width) == shape[:2] else "features_max_pool leaves"
            raise UserError(f"config: {key} is {size}, but {put_out} {height}x{width} pixels, which that does not divide")
        if size != off:
            height, width = (size, size) if key == "features_pool" else (height // size, width // size)
    values = height * width * channels * (1 if config["features_two_polarity"] == "none" else 2)
    rows = min(config["features_fit_rows"], training_images(config))
    for most, what in ((values, f"{values} features"), (rows - 1, f"{rows} training images to fit it to (features_fit_rows)")):
        if config["features_pca"] != "none" and config["features_pca"] > most:
            raise UserError(f"config: features_pca is {config['features_pca']}, but there are {what}; at most {most}, or none")


def _check_precision(config):
    """Check that one key alone says what products are, and that the rung forms such products."""
    precision, variant = config["precision"], config["variant"]
    for key in ("multiplier", "test_multiplier"):
        if precision != "float32" and config[key] not in ("exact", "same"):
            raise UserError(f"config: precision is {precision}, but {key} is {excerpt(config[key])}, which says what products "
                            f"are too; set precision to float32, or {key} to exact")
    made_for = variants.VARIANTS[variant].precision if variant != "auto" else "float32"
    if made_for not in ("float32", precision):
        raise UserError(f"config: variant {variant} multiplies {made_for}, but precision is {precision}; set precision to "
                        f"{made_for}, or variant to auto")


def _multipliers(config):
    """The test multiplier as multipliers.find takes it, and the identities of both multipliers in versions."""
    trained = config["multiplier"] if "forward" in config["multiplier_in"] else "exact"
    tested = trained if config["test_multiplier"] == "same" else config["test_multiplier"]
    identities = {}
    for key, name in (("multiplier", config["multiplier"]), ("test_multiplier", tested)):
        try:
            identities[f"{key}_identity"] = multipliers.identity(name)
        except UserError as error:
            raise UserError(f"config: {key}: {error}") from error
    used = [direction for direction in multipliers.DIRECTIONS if direction in config["multiplier_in"]]
    return {"multiplier_in": used, "test_multiplier": tested, **identities}


def _features_layer(config):
    """The layer whose output the SVM classifies; None if the network classifies by itself and no layer is named."""
    network = networks.from_params(stages.network_params(config))
    if config["features_layer"] == "auto":
        return None if network.classifies and network.name not in networks.HEADED else network.features
    return config["features_layer"]


def _sha256(path):
    try:
        return hashlib.sha256(files.read(path)).hexdigest()
    except UserError as error:
        raise UserError(f"config: initial_weights: {error}") from error
