"""Make docs/configuration.md from workflow/config.schema.yaml and config.yaml: python docs/generate.py

Every key's default, what it may be, and its description, under the headings of config.yaml. With --check nothing is written;
it ends with 1 where the file is not up to date.
"""

import argparse
import json
import pathlib
import re
import sys
import textwrap

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

from ladder.rungs import variants  # noqa: E402  (after sys.path)
from ladder.workflow import config as configuration  # noqa: E402
from ladder.workflow import values  # noqa: E402

PAGE = ROOT / "docs" / "configuration.md"
COLUMNS = 100
OPENING = """\
<!-- Made by docs/generate.py (make docs) from config.yaml and its schema; do not edit. -->

# Configuration

`config.yaml` holds every key. `--config key=value` overrides one for a single command, a file of
overrides such as those in `presets/` is named with `--configfile`, and a wrong key or value ends
with one line that names it and the nearest right one.

```sh
.venv/bin/snakemake report --config batch_size=32 seed=7   # the target comes before --config
.venv/bin/snakemake -n --config batch_size=32              # what would run, and why
```
"""


def page():
    """The text of docs/configuration.md."""
    text = (ROOT / "config.yaml").read_text("utf-8")
    defaults, rules = yaml.safe_load(text), configuration.load_schema()["properties"]
    documented = [name for name in rules["variant"]["enum"] if name == "auto" or variants.VARIANTS[name].role != "own"]
    rules = {**rules, "variant": {**rules["variant"], "enum": documented},
             "features_variant": {**rules["features_variant"], "enum": ["same", *documented[1:]]},
             "reference_variant": {**rules["reference_variant"], "enum": ["none", *documented[1:]]}}
    return "\n".join([OPENING, *sections(text.split("\n\n", 1)[1], defaults, rules)])


def sections(text, defaults, rules):
    """A heading for each one of config.yaml after its opening comment, a section for each key, in its order."""
    for line in text.splitlines():
        if ruled := re.fullmatch(r"# =+ (.*?) =+", line):
            yield f"## {ruled[1]}\n"
        elif named := re.fullmatch(r"# (.*)", line):
            yield f"### {named[1]}\n"
        elif key := re.match(r"(\w+):", line):
            yield entry(key[1], defaults[key[1]], rules[key[1]])


def entry(key, default, rule):
    """The section of a key; of one with properties of its own, theirs too."""
    lines = [f"#### `{key}`\n", facts(default, rule), "", paragraph(rule["description"])]
    lines += [""] if "properties" in rule else []
    for name, part in rule.get("properties", {}).items():
        lines += [f"- `{name}`: " + paragraph(part["description"], "  ", len(name) + 6)]
    return "\n".join(lines) + "\n"


def facts(default, rule):
    shown = json.dumps(default) if isinstance(default, (list, dict, bool)) or default in (None, "") else str(default)
    first = f"Default: `{shown}`."
    if isinstance(default, list) and len(first) > COLUMNS:
        first = "Default:\n" + "\n".join(f"`{item}`" + ("," if item != default[-1] else ".") for item in default)
    return first + "\n" + paragraph(f"Allowed: {values.describe(rule)}.")


def paragraph(text, indent="", first=0):
    return textwrap.fill(text, COLUMNS, initial_indent=" " * first, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False).lstrip()


def write(path, made, description):
    """The command line of a program that writes the text `made` to `path`; with --check nothing is written."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        path.write_text(made, "utf-8")
    elif not path.exists() or path.read_text("utf-8") != made:
        sys.exit(f"docs/{path.name} is not up to date: run `make docs`")


def main():
    write(PAGE, page(), __doc__)


if __name__ == "__main__":
    main()
