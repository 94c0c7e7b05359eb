"""Values that a person writes, read as the types of the settings or refused in one line with the
nearest right one.

The types are for pydantic: they convert text that can be read as the wanted type, '1e-3', "32"
or 'true', as Snakemake passes it from --config, and take a single value as a list of one.
"""

import difflib
import sys
import unicodedata
from typing import Annotated, Any, TypeVar, cast

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from ladder.errors import UserError, excerpt

UNPRINTED = {"Cc", "Cs"}  # Unicode categories: control characters, lone surrogates
MOST = 1_000_000_000  # of counts
LARGEST = 3.4e38  # a float32
MOST_NAMED, FIRST_NAMED = 16, 6  # choices that a message lists, and of more of them
RENAMED = {"holdout": "validation"}  # keys that people may know by an earlier name


def read_number(value: Any) -> float | int:
    """A finite number; raises ValueError for another value, true and false too."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("no number")
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = float(value)
    # infinite, not a number, or an integer that no float can hold
    if not abs(number) <= sys.float_info.max:
        raise ValueError("no finite number")
    return number


def read_float(value: Any) -> float:
    return float(read_number(value))


def read_integer(value: Any) -> int:
    number = read_number(value)
    if number != int(number):
        raise ValueError("no whole number")
    return int(number)


def read_flag(value: Any) -> bool:
    words = {"true": True, "yes": True, "false": False, "no": False}
    word = value.lower() if isinstance(value, str) else ""
    if not isinstance(value, bool) and word not in words:
        raise ValueError("neither true nor false")
    return value if isinstance(value, bool) else words[word]


def read_text(value: Any) -> str:
    """A text without line breaks and without what Python makes of bytes that are no text."""
    if not isinstance(value, str) or UNPRINTED & set(map(unicodedata.category, value)):
        raise ValueError("no printable text")
    return value


def expected(words: str) -> Any:
    """What a value may be, in words, where its type does not say it well."""
    return Field(json_schema_extra={"expected": words})


T = TypeVar("T")
# Of these the last in an Annotated: what stands before it is then part of the JSON schema.
INTEGER = BeforeValidator(read_integer)
NUMBER = BeforeValidator(read_float)
TEXT = BeforeValidator(read_text)
LISTED = BeforeValidator(lambda value: value if isinstance(value, list) else [value])
Flag = Annotated[bool, BeforeValidator(read_flag)]
Text = Annotated[str, TEXT]
Several = Annotated[list[T], LISTED]
Amount = Annotated[int, Field(ge=0, le=MOST), INTEGER]
Count = Annotated[int, Field(ge=1, le=MOST), INTEGER]
Positive = Annotated[float, Field(gt=0, le=LARGEST), NUMBER]
NotNegative = Annotated[float, Field(ge=0, le=LARGEST), NUMBER]


def read(key: str, value: Any, adapter: TypeAdapter[T], where: str = "config") -> T:
    """`value` of `key` in the adapter's type; raises UserError, which begins with `where`, if it
    cannot be read so.
    """
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise refusal(error, key, value, rule_of(adapter.json_schema()), where) from error


def rule_of(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema with its definitions in the places that name them."""
    definitions = schema.get("$defs", {})

    def filled(part: Any) -> Any:
        if isinstance(part, list):
            return [filled(item) for item in part]
        if not isinstance(part, dict):
            return part
        named = definitions[part["$ref"].rpartition("/")[2]] if "$ref" in part else {}
        return {
            name: filled(value)
            for name, value in {**named, **part}.items()
            if name not in ("$ref", "$defs")
        }

    return cast(dict[str, Any], filled(schema))


def refusal(
    error: ValidationError, key: str, value: Any, rule: dict[str, Any], where: str
) -> UserError:
    """The first fault that pydantic found in `value` of `key`, in one line; rule: the JSON schema
    of the key.

    Without a key the value is a dict of keys and values.
    """
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    for part in first["loc"]:
        if isinstance(part, int) and "items" in rule:
            value, rule = (value if isinstance(value, list) else [value])[part], rule["items"]
        elif not isinstance(value, dict):  # the name of an alternative
            break
        elif part in rule.get("properties", {}):
            key, value, rule = (
                f"{key}.{part}" if key else str(part),
                value[part],
                rule["properties"][part],
            )
        elif first["type"] == "extra_forbidden":
            return UserError(
                f"{where}: {key} has no {excerpt(str(part))}{nearest(part, rule['properties'])}"
            )
    shown = "empty" if value in (None, "", []) else excerpt(value)
    return UserError(
        f"{where}: {key} is {shown}, but must be {allowed(rule, where)}{nearest(value, choices(rule))}"
    )


def allowed(rule: dict[str, Any], where: str) -> str:
    """As `describe`, of many choices the first ones and the page that has all; where: as in `read`,
    the configuration or a line of a network's file.
    """
    names = list(map(str, choices(rule)))
    if len(names) <= MOST_NAMED:
        return describe(rule)
    page = "configuration" if where == "config" else "networks"
    more = f"one of {len(names) - FIRST_NAMED} more that docs/{page}.md has"
    return f"{', '.join(names[:FIRST_NAMED])} or {more}"


def describe(rule: dict[str, Any]) -> str:
    """The values that a JSON schema allows, in words: its `expected`, else its type and limits."""
    if "expected" in rule:
        return str(rule["expected"])
    if "anyOf" in rule:
        return " or ".join(map(describe, rule["anyOf"]))
    if choices(rule):
        *most, last = map(str, choices(rule))
        return f"{', '.join(most)} or {last}" if most else last
    if rule["type"] == "array":
        return f"a list{_length(rule)}, each {describe(rule['items'])}{', none twice' if rule.get('uniqueItems') else ''}"
    limits = " and ".join(
        f"{words} {rule[name]:{',' if rule[name] < 1e12 else 'g'}}"
        for name, words in (
            ("minimum", "at least"),
            ("exclusiveMinimum", "above"),
            ("maximum", "at most"),
            ("exclusiveMaximum", "below"),
        )
        if name in rule
    )
    kind = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}.get(
        rule["type"], rule["type"]
    )
    return f"{kind} {limits}".strip()


def _length(rule: dict[str, Any]) -> str:
    """How many elements an array may have, in words."""
    least, most = rule.get("minItems", 0), rule.get("maxItems")
    if most is None:
        return f" of at least {least}" if least else ""
    return (
        f" of {most}"
        if least == most
        else f" of {least} to {most}"
        if least
        else f" of at most {most}"
    )


def choices(rule: dict[str, Any]) -> list[Any]:
    """The fixed values of a rule, in all its alternatives."""
    alternatives = rule.get("anyOf", [rule])
    return [
        choice
        for each in alternatives
        for choice in each.get("enum", [each["const"]] if "const" in each else [])
    ]


def nearest(value: Any, names: Any) -> str:
    """'; did you mean x?' with the closest of the names, '' if none is close."""
    # the search takes the square of the length
    text = value if isinstance(value, str) and len(value) < 100 else ""
    matches = difflib.get_close_matches(RENAMED.get(text, text), map(str, names), n=1, cutoff=0.7)
    return f"; did you mean {matches[0]}?" if matches else ""
