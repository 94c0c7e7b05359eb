"""The configuration: its values turned into their types and checked, before anything is hashed."""

import difflib
import math
import pathlib

import jsonschema
import yaml

from . import backends, runtime, variants
from .errors import UserError

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "config.schema.yaml"

# Images a dataset has (training, test); the data stage takes balanced subsets of these.
IMAGES = {"digits": (1433, 364), "cifar10": (50_000, 10_000)}


def load(raw):
    """The configuration `raw` (a dict as YAML or --config gave it) with typed values, its keys in the schema's order.

    Text that reads as the wanted type is taken for it: '1e-3', "32", 'null', 'true'. Raises UserError with one line that
    names the key, what is wrong, and the nearest key or choice.
    """
    properties = load_schema()["properties"]
    for key in raw:
        if key not in properties:
            raise UserError(f"config: there is no key '{key}'{_nearest(key, properties)}")
    for key, rule in properties.items():
        if key not in raw:
            raise UserError(f"config: the key '{key}' is missing; it must be {describe(rule)}")
    config = {key: coerce(key, raw[key], rule) for key, rule in properties.items()}
    _check_together(config)
    return config


def resolve(config):
    """The loaded `config` with what this machine makes of `auto` and of all threads: what versions are made from."""
    return {
        **config,
        "variant": variants.resolve_variant(config["variant"])[0],
        "svm_backend": backends.resolve_backend(config["svm_backend"]),
        "threads": runtime.available_cores() if config["threads"] == "all" else config["threads"],
    }


def load_schema():
    """The schema of config.yaml, with the rungs there are."""
    schema = yaml.safe_load(SCHEMA.read_text())
    schema["properties"]["variant"]["enum"] += variants.VARIANTS
    return schema


def coerce(key, value, rule):
    """`value` of `key` as the type that `rule` (a JSON schema) wants; raises UserError where it cannot be that."""
    if rule.get("type") == "array":
        value = [coerce(key, item, rule["items"]) for item in (value if isinstance(value, list) else [value])]
        if len(value) >= rule.get("minItems", 0):
            return value
    for alternative in rule.get("anyOf", [rule]):
        for reading in _readings(value, alternative):
            if jsonschema.Draft202012Validator(alternative).is_valid(reading):
                return reading
    shown = "empty" if value in (None, "", []) else f"'{value}'" if isinstance(value, str) else value
    raise UserError(f"config: {key} is {shown}, but must be {describe(rule)}{_nearest(value, _choices(rule))}")


def describe(rule):
    """What a JSON schema allows, in words."""
    if "description" in rule:
        return rule["description"]
    if "anyOf" in rule:
        return " or ".join(describe(alternative) for alternative in rule["anyOf"])
    if _choices(rule):
        *most, last = map(str, _choices(rule))
        return f"{', '.join(most)} or {last}" if most else last
    if rule["type"] == "array":
        return f"a list of at least {rule.get('minItems', 0)}, each {describe(rule['items'])}"
    limits = " and ".join(f"{words} {rule[name]}" for name, words in (
        ("minimum", "at least"), ("exclusiveMinimum", "above"), ("maximum", "at most"), ("exclusiveMaximum", "below"))
        if name in rule)
    kind = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}.get(rule["type"], rule["type"])
    return f"{kind} {limits}".strip()


def _readings(value, rule):
    """What `value` may mean where `rule` is wanted; whether that is allowed is the schema's to say."""
    if _choices(rule):
        return [choice for choice in _choices(rule) if str(choice) == str(value)]
    match rule["type"]:
        case "integer" | "number":
            return _numbers(value, rule["type"])
        case "boolean":
            return [value] if isinstance(value, bool) else [str(value).lower() == "true"] if str(value).lower() in (
                "true", "false") else []
        case "null":
            return [None] if value in (None, "null") else []
    return [value]


def _numbers(value, kind):
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return []
    try:
        number = int(value) if not isinstance(value, float) else value
    except ValueError:
        try:
            number = float(value)
        except ValueError:
            return []
    if not math.isfinite(number) or (kind == "integer" and number != int(number)):
        return []
    return [int(number) if kind == "integer" else float(number)]


def _choices(rule):
    """The fixed values a rule names, in all its alternatives."""
    alternatives = rule.get("anyOf", [rule])
    return [choice for each in alternatives for choice in each.get("enum", [each["const"]] if "const" in each else [])]


def _nearest(value, choices):
    found = difflib.get_close_matches(str(value), [str(choice) for choice in choices], n=1, cutoff=0.7)
    return f"; did you mean {found[0]}?" if found else ""


def _check_together(config):
    """Faults that no key has alone."""
    training, test = IMAGES[config["dataset"]]
    for key, available in (("train_limit", training), ("test_limit", test)):
        if config[key] != "all" and config[key] > available:
            raise UserError(f"config: {key} is {config[key]}, but {config['dataset']} has {available} such images; "
                            f"at most {available}, or all")
    images = training if config["train_limit"] == "all" else config["train_limit"]
    if config["batch_size"] > images:
        raise UserError(f"config: batch_size is {config['batch_size']}, but there are {images} training images; "
                        f"at most {images}")
