"""Make docs/configuration.md, docs/config.schema.json and the comments of config.yaml from
ladder/workflow/settings.py, the table of docs/networks.md and the layers of docs/math.md from
ladder/network/layers.py, and docs/summary.schema.json from ladder/pages/summary_keys.py.

    python docs/generate.py

The page has every key's default, what it may be, and its description; the schema is for editors.
With --check nothing is written; it ends with 1 where a file is not up to date.
"""

import argparse
import inspect
import json
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

from ladder.network import layers  # noqa: E402  (after sys.path)
from ladder.pages import summary_keys  # noqa: E402
from ladder.rungs import catalog  # noqa: E402
from ladder.workflow import settings, values  # noqa: E402

PAGE, SCHEMA, CONFIG = (
    ROOT / "docs/configuration.md",
    ROOT / "docs/config.schema.json",
    ROOT / "config.yaml",
)
NETWORKS, FORMULAS = ROOT / "docs/networks.md", ROOT / "docs/math.md"
SUMMARY_SCHEMA = ROOT / "docs/summary.schema.json"
COLUMNS = 100
MOST_CHOICES = 8  # that a comment lists
OPENING = """\
<!-- Made by docs/generate.py (make docs) from ladder/workflow/settings.py; do not edit. -->

# Configuration

Every key has a default. `config.yaml` has those that a person edits first; any other one can be
written there too. `--config key=value` overrides one for a single command, a file of overrides such
as those in `presets/` is named with `--configfile`, and a wrong key or value ends with one line
that names it and the nearest right one.

```sh
.venv/bin/snakemake report --config batch_size=32 seed=7   # the target comes before --config
.venv/bin/snakemake -n --config batch_size=32              # what would run, and why
.venv/bin/snakemake settings                               # the settings that are not the default
.venv/bin/snakemake all_settings                           # every setting
```

`docs/config.schema.json` describes the keys to editors that know JSON schemas.
"""


def rules():
    """The JSON schema of every key, without rungs of a person's own."""
    own = {name for name, entry in catalog.RUNGS.items() if entry.role == "own"}
    return {
        key: {**rule, "enum": [name for name in rule["enum"] if name not in own]}
        if "enum" in rule
        else rule
        for key, rule in settings.rules().items()
    }


def page():
    """The text of docs/configuration.md."""
    return "\n".join([OPENING, *sections(rules())])


def sections(rules):
    """A heading for each section of the settings, and below it each of its keys."""
    defaults, above = settings.Settings(), ""
    for section in settings.SECTIONS:
        first, second = section.heading
        yield from [f"## {first}\n"] * (first != above) + [f"### {second}\n"] * bool(second)
        above = first
        level = "####" if second else "###"
        for key in section.model_fields:
            yield f"{level} `{key}`\n\n" + entry(getattr(defaults, key), rules[key])


def schema():
    """The text of docs/config.schema.json, a line for each key."""
    return (
        '{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": false, '
        f'"properties": {{\n{lines(rules())}\n}}}}\n'
    )


def lines(parts):
    """The inside of a JSON object, a line for each key."""
    return ",\n".join(
        f" {json.dumps(key)}: {json.dumps(part, ensure_ascii=False)}" for key, part in parts.items()
    )


def config(text):
    """config.yaml's text with a comment behind every key's value, in the same column."""
    every, lines = rules(), []
    for line in text.splitlines():
        if found := re.match(r"(\w+): (.*?)(?: +#.*)?$", line):
            line = f"{f'{found[1]}: {found[2]}':<32} # {comment(every[found[1]])}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def comment(rule):
    """What a key is, in a few words: its choices, or the beginning of its description."""
    named = values.choices(rule.get("items", rule))
    if 1 < len(named) <= MOST_CHOICES and all(map(values.choices, rule.get("anyOf", [rule]))):
        return " | ".join(map(str, named))
    return re.split(r"[.:;] ", rule["description"].rstrip(".") + ". ")[0].replace("`", "")


def entry(default, rule):
    """What is said of a key; of one with properties of its own, of these too."""
    lines = [facts(default, rule), "", paragraph(rule["description"])]
    lines += [""] if "properties" in rule else []
    for name, part in rule.get("properties", {}).items():
        lines += [f"- `{name}`: " + paragraph(part["description"], "  ", len(name) + 6)]
    return "\n".join(lines) + "\n"


def facts(default, rule):
    shown = (
        default
        if isinstance(default, str) and default
        else re.sub(r"\.0\b", "", json.dumps(default))
    )
    first = f"Default: `{shown}`."
    if isinstance(default, list) and len(first) > COLUMNS:
        first = "Default:\n" + "\n".join(
            f"`{item}`" + ("," if item != default[-1] else ".") for item in default
        )
    return first + "\n" + paragraph(f"Allowed: {values.describe(rule)}.")


def paragraph(text, indent="", first=0):
    return textwrap.fill(
        text,
        COLUMNS,
        initial_indent=" " * first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ).lstrip()


def kinds(text):
    """docs/networks.md's text with the keys of each kind of layer."""
    head, rule, rest = text.partition("|---|---|\n")
    rows = (f"| `{kind}` | {listed(kind)} |\n" for kind in layers.KINDS)
    return "".join([head, rule, *rows, "\n", rest.partition("\n\n")[2]])


def listed(kind):
    return ", ".join(f"`{key}`" for key in keys(kind)) or "none"


def keys(kind):
    """The keys of a kind of layer, each with its default if it has one."""
    return [
        name if default is inspect.Parameter.empty else f"{name}: {json.dumps(default)}"
        for name, default in layers.arguments(kind).items()
    ]


def formulas(text):
    """docs/math.md's text with what the function of each kind of layer says of it."""
    head, _, rest = text.partition("## Layers\n")
    parts = (f"### {kind}\n\n{inspect.getdoc(maker)}\n" for kind, maker in layers.MAKERS.items())
    return "\n".join([head + "## Layers\n", *parts, "## Losses" + rest.partition("## Losses")[2]])


def summary_schema():
    """The text of docs/summary.schema.json."""
    parts = summary_keys.schema()
    inner = {name: lines(parts.pop(name)) for name in ("$defs", "properties")}
    return (
        json.dumps(parts)[:-1]
        + "".join(f', "{name}": {{\n{text}\n}}' for name, text in inner.items())
        + "}\n"
    )


def write(made, description):
    """The command line of a program that writes texts, path -> text; with --check nothing is
    written.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    for path, text in made.items():
        if not check:
            path.write_text(text, "utf-8")
        elif not path.exists() or path.read_text("utf-8") != text:
            sys.exit(f"{path.relative_to(ROOT)} is not up to date: run `make docs`")


def documents():
    """{path: its text}"""
    return {
        PAGE: page(),
        SCHEMA: schema(),
        CONFIG: config(CONFIG.read_text("utf-8")),
        SUMMARY_SCHEMA: summary_schema(),
        NETWORKS: kinds(NETWORKS.read_text("utf-8")),
        FORMULAS: formulas(FORMULAS.read_text("utf-8")),
    }


if __name__ == "__main__":
    write(documents(), __doc__)
