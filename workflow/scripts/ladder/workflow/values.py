"""Values that a person writes, converted to the types of a JSON schema or refused in one line with the nearest right one."""

import difflib
import sys
import unicodedata

import jsonschema

from ladder.errors import UserError, excerpt

UNPRINTED = {"Cc", "Cs"}   # Unicode categories: control characters, lone surrogates


def coerce(key, value, rule, where="config"):
    """`value` of `key` converted to the type that `rule` (a JSON schema) requires; raises UserError if that is impossible.

    where: what the message begins with, the configuration or a line of a file.
    """
    read = value
    if rule.get("type") == "array":
        read = [coerce(key, item, rule["items"], where) for item in (value if isinstance(value, list) else [value])]
    if "properties" in rule and isinstance(value, dict):
        for name in value:
            if name not in rule["properties"]:
                raise UserError(f"{where}: {key} has no {excerpt(str(name))}{nearest(name, rule['properties'])}")
        return {name: coerce(f"{key}.{name}", one, rule["properties"][name], where) for name, one in value.items()}
    for alternative in rule.get("anyOf", [rule]):
        for reading in _readings(read, alternative):
            if jsonschema.Draft202012Validator(alternative).is_valid(reading):
                return reading
    shown = "empty" if value in (None, "", []) else excerpt(value)
    raise UserError(f"{where}: {key} is {shown}, but must be {describe(rule)}{nearest(value, _choices(rule))}")


def describe(rule):
    """The values that a JSON schema allows, in words: its `expected`, else its type and limits."""
    if "expected" in rule:
        return rule["expected"]
    if "anyOf" in rule:
        return " or ".join(describe(alternative) for alternative in rule["anyOf"])
    if _choices(rule):
        *most, last = map(str, _choices(rule))
        return f"{', '.join(most)} or {last}" if most else last
    if rule["type"] == "array":
        return f"a list{_length(rule)}, each {describe(rule['items'])}{', none twice' if rule.get('uniqueItems') else ''}"
    limits = " and ".join(f"{words} {rule[name]:{',' if rule[name] < 1e12 else 'g'}}" for name, words in (
        ("minimum", "at least"), ("exclusiveMinimum", "above"), ("maximum", "at most"), ("exclusiveMaximum", "below"))
        if name in rule)
    kind = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}.get(rule["type"], rule["type"])
    return f"{kind} {limits}".strip()


def _length(rule):
    """How many elements an array may have, in words."""
    least, most = rule.get("minItems", 0), rule.get("maxItems")
    if most is None:
        return f" of at least {least}" if least else ""
    return f" of {most}" if least == most else f" of {least} to {most}" if least else f" of at most {most}"


def _readings(value, rule):
    """Possible readings of `value` for `rule`; the schema decides which are valid."""
    if _choices(rule):
        return [choice for choice in _choices(rule) if choice == value and not isinstance(value, bool)]   # True == 1
    match rule["type"]:
        case "integer" | "number":
            return _numbers(value, rule["type"])
        case "boolean":
            words = {"true": True, "yes": True, "false": False, "no": False}
            word = value.lower() if isinstance(value, str) else ""
            return [value] if isinstance(value, bool) else [words[word]] if word in words else []
        case "null":
            return [None] if value in (None, "null") else []
        case "object":
            return [value] if isinstance(value, dict) else []
        case "string":   # without line breaks and what Python makes of bytes that are no text
            return [value] if isinstance(value, str) and not UNPRINTED & set(map(unicodedata.category, value)) else []
    return [value]


def _numbers(value, kind):
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return []
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        try:
            number = float(value)
        except ValueError:
            return []
    if not abs(number) <= sys.float_info.max:   # infinite, not a number, or an integer that no float can hold
        return []
    if kind == "integer":
        return [int(number)] if number == int(number) else []
    return [float(number)]


def _choices(rule):
    """The fixed values of a rule, in all its alternatives."""
    alternatives = rule.get("anyOf", [rule])
    return [choice for each in alternatives for choice in each.get("enum", [each["const"]] if "const" in each else [])]


def nearest(value, choices):
    """'; did you mean x?' with the closest of the choices, '' if none is close."""
    text = value if isinstance(value, str) and len(value) < 100 else ""   # the search takes the square of the length
    found = difflib.get_close_matches(text, map(str, choices), n=1, cutoff=0.7)
    return f"; did you mean {found[0]}?" if found else ""
