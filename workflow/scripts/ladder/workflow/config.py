"""The configuration as a person writes it: files, keys and values become Settings, or one line that
says what is wrong.
"""

import pathlib
from typing import Any

import yaml
from pydantic import ValidationError

from ladder import files
from ladder.errors import UserError, excerpt
from ladder.sources import ROOT
from ladder.workflow import lists, removed, settings, values
from ladder.workflow.settings import Settings
from ladder.workflow.values import nearest

MOST_BYTES = 10**6  # of a configuration file
# of one key: the number of its values, and how deep they are nested
MOST_VALUES, MOST_LEVELS = 20_000, 10


def base(here: bool = True) -> dict[str, Any]:
    """The keys of config.yaml where the command runs, or else of the workflow's own.

    here: whether a config.yaml where the command runs is one of this workflow.
    """
    path = pathlib.Path("config.yaml")
    return read_file(path if here and path.exists() else ROOT / "config.yaml")


def load(raw: dict[Any, Any]) -> Settings:
    """The settings of `raw`, a dict from YAML or --config; keys that it lacks have their defaults.

    Raises UserError with one line that names the key, the fault, and the nearest valid key or
    choice.
    """
    for key, value in raw.items():
        if key not in settings.KEYS:
            raise UserError(f"config: {_unknown(key)}")
        _check_size(key, value)
    try:
        loaded = Settings.model_validate(raw)
    except ValidationError as error:
        raise values.refusal(error, "", raw, {"properties": settings.rules()}, "config") from error
    lists.check(loaded)
    return loaded


def changed(loaded: Settings, overrides: dict[str, Any]) -> Settings:
    """The settings with other values for some keys, checked as if a person had written these. The
    rules of recipe.py may choose anew for keys that nobody wrote.
    """
    written = {
        key: value for key, value in loaded.by_key().items() if key in loaded.model_fields_set
    }
    return load({**written, **overrides})


def read_file(path: str | pathlib.Path) -> dict[Any, Any]:
    """The keys and values in a YAML file.

    Raises UserError with its name if it holds something else, or a key twice, and with the nearest
    name if there is none.
    """
    if not pathlib.Path(path).exists():
        folders = pathlib.Path(path).parent, ROOT / "presets"  # a person's own files first
        known = list(
            dict.fromkeys(each.name for folder in folders for each in sorted(folder.glob("*.yaml")))
        )
        near = nearest(pathlib.Path(path).name, known) or f"; there are {', '.join(known)}"
        raise UserError(f"there is no file {files.shown(path)}{near}")
    content = read_yaml(
        files.read(path, MOST_BYTES), path, f"{path} is not a YAML file of keys and values"
    )
    if not isinstance(content, dict | None):
        raise UserError(
            f"{path} is not a YAML file of keys and values: it is a {type(content).__name__}"
        )
    return content or {}


def read_yaml(text: str | bytes, where: str | pathlib.Path, fault: str) -> Any:
    """The value of a text, or of the bytes of one.

    Raises UserError, which begins with `fault` if it is no YAML, and with `where` if a mapping has
    a key twice, of which readers of YAML take the last.
    """
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        twice = _key_twice(root)
        value = None if root is None or twice else loader.construct_document(root)
    # PyYAML raises its own errors and, for odd values, encodings and depths, many types of others
    except Exception as error:
        raise UserError(f"{fault}: {' '.join(str(error).split())[:200]}") from error
    if twice:
        first, second = (node.start_mark.line + 1 for node in twice)
        lines = f"in line {first}" if first == second else f"in lines {first} and {second}"
        raise UserError(
            f"{where}: the key {excerpt(twice[0].value)} is there twice, {lines}; remove one of them"
        )
    return value


def _key_twice(root: yaml.Node | None) -> tuple[yaml.ScalarNode, yaml.ScalarNode] | None:
    """The two nodes of a key that a mapping in a YAML document has twice; None if there is none."""
    left, seen = [root], set()
    while left:
        node = left.pop()
        if node in seen or not isinstance(node, yaml.CollectionNode):  # an alias may lead back
            continue
        seen.add(node)
        if isinstance(node, yaml.SequenceNode):
            left += node.value
            continue
        keys: dict[tuple[str, str], yaml.ScalarNode] = {}
        for key, value in node.value:
            if (
                isinstance(key, yaml.ScalarNode)
                and keys.setdefault((key.tag, key.value), key) is not key
            ):
                return keys[key.tag, key.value], key
            left.append(value)
    return None


def check_overrides(overridden: dict[str, Any]) -> None:
    """Raise UserError for an empty object, which Snakemake merges into the key's value in
    config.yaml: it would do nothing.
    """
    for key, value in overridden.items():
        rule = settings.rules().get(key, {}) if value == {} else {}
        if rule and rule.get("type") != "object":
            raise UserError(f"config: {key} is {{}}, but must be {values.allowed(rule, 'config')}")


def _unknown(key: Any) -> str:
    """What is said of a key that does not exist."""
    near = _section_of(key) or nearest(key, settings.KEYS)
    return removed.key(str(key)) or f"there is no key {excerpt(str(key))}{near}"


def _section_of(key: Any) -> str:
    """'; it is a key of search: search={strategy: ...}' for a key of a section, '' for another."""
    sections = (
        name for name, rule in settings.rules().items() if key in rule.get("properties", {})
    )
    return next((f"; it is a key of {name}: {name}={{{key}: ...}}" for name in sections), "")


def _check_size(key: Any, value: Any) -> None:
    """Refuse a value that is nested too deep, or in itself, or holds too many values to be read one
    by one.
    """
    level, count = [value], 0
    for _ in range(MOST_LEVELS + 1):
        level = [
            item
            for container in level
            if isinstance(container, (list, dict))
            for item in (
                container if isinstance(container, list) else (*container, *container.values())
            )
        ]
        count += len(level)
        if not level:
            return
        if count > MOST_VALUES:
            raise UserError(f"config: {key} holds more than {MOST_VALUES:,} values")
    raise UserError(f"config: {key} is nested more than {MOST_LEVELS} levels deep")
