"""Generate settings, valid, nearly valid and hostile; each has to be planned, or refused in one
line, in under three seconds.

    .venv/bin/python tests/campaigns/settings.py --settings 5000 --folder /tmp/settings

Every key of the schema takes part, alone and with others, in lists of runs and in a search too. The
configuration is read and planned in this process, as the Snakefile does; every fiftieth also by
Snakemake, with --config or --configfile, which has to come to the same verdict in the same words. A
fault is shown with the smallest settings that show it.

FOLDER keeps settings.jsonl, a line for each batch of 100 settings without a fault, and a copy of
the project: the same call goes on after the last one.
"""

import argparse
import collections
import datetime
import json
import os
import pathlib
import re
import shutil
import sys
import time
import zlib

import hypothesis
from hypothesis import strategies as st

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "workflow/scripts")]

import snakemake_server  # noqa: E402
from ladder.errors import UserError  # noqa: E402
from ladder.workflow import config as configuration  # noqa: E402
from ladder.workflow import plans  # noqa: E402
from ladder.workflow import settings as rules  # noqa: E402

BATCH = 100
SECONDS = 3
COLUMNS = 400  # of a message, which may name all rungs or networks
BY_SNAKEMAKE = 50  # one setting in as many
COPIED = ("Snakefile", "config.yaml", "workflow", "profiles", "presets", "envs")
PROPERTIES = rules.rules()
DEFAULTS = rules.Settings().by_key()
OF_RUNS = ("runs", "features_concatenate")
# Keys whose valid values the schema does not tell.
VALID = {
    "initial_weights": st.just("none"),
    "multiplier": st.sampled_from(["exact", "am32", "mit16", "fp16"]),
    "test_multiplier": st.sampled_from(["same", "exact", "acc16"]),
    "features_layer": st.sampled_from(
        ["auto", "enc1", "enc2", "enc1_pool", "latent", "fc1", "conv1"]
    ),
    **{
        f"{name}_urls": st.just(DEFAULTS[f"{name}_urls"])
        for name in ("mnist", "fashion_mnist", "svhn", "cifar100")
    },
    "cifar10_urls": st.just(["file:///here.tar.gz"]),
    "cifar10_sha256": st.just("0" * 64),
    "train_limit": st.integers(10, 1433),
    "test_limit": st.integers(10, 364),
    "validation": st.sampled_from([0, 100]),
    "batch_size": st.integers(1, 100),
    "features_pool": st.sampled_from(["none", 1, 2, 4]),
    "features_max_pool": st.sampled_from(["auto", 1, 2]),
    "features_pca": st.sampled_from(["none", 5, 100]),
}


def nested(levels, within, value=1):
    for _ in range(levels):
        value = within(value)
    return value


def cycle():
    value = [1]
    value.append(value)
    return value


# Made anew for each setting, because some cannot be written and hypothesis writes all that it
# draws.
HOSTILE = {
    "10^30": lambda: 10**30,
    "-10^400": lambda: -(10**400),
    "10^5000": lambda: 10**5000,
    "1e308": lambda: 1e308,
    "text 10^400": lambda: str(10**400),
    "1e-320": lambda: 1e-320,
    "inf": lambda: float("inf"),
    "nan": lambda: float("nan"),
    "'nan'": lambda: "nan",
    "-1": lambda: -1,
    "0": lambda: 0,
    "true": lambda: True,
    "null": lambda: None,
    "''": lambda: "",
    "[]": lambda: [],
    "{}": lambda: {},
    "[[]]": lambda: [[]],
    "[null]": lambda: [None],
    "[{}]": lambda: [{}],
    "{1: 2}": lambda: {1: 2},
    "{null: []}": lambda: {None: []},
    "a date": lambda: datetime.date(2020, 1, 1),
    "bytes": lambda: b"\xff\0",
    "a set": lambda: {1},
    "two lines": lambda: "two\nlines",
    "tab": lambda: "\t",
    "NUL": lambda: "nul\0",
    "half": lambda: "\ud800",
    "escape": lambda: "\x1b[31m",
    "separator": lambda: "a\u2028b",
    "braces": lambda: "{wildcards} {{",
    "quotes": lambda: "'\"$(exit)`",
    "option": lambda: "--help",
    "long": lambda: "x" * 300_000,
    "long name": lambda: "x" * 300,
    "long path": lambda: "x/" * 3000,
    "folder": lambda: "/",
    "device": lambda: "/dev/zero",
    "home": lambda: "~nobody-here/x",
    "parents": lambda: "../" * 50,
    "cycle": cycle,
    "many": lambda: list(range(100_000)),
    "deep list": lambda: nested(10_000, lambda inner: [inner]),
    "deeper than is read": lambda: nested(9, lambda inner: [inner]),
    "deep object": lambda: nested(10_000, lambda inner: {"runs": [inner]}),
    "aliases": lambda: nested(9, lambda inner: [inner] * 10),
    "thousand": lambda: list(range(1, 1001)),
    "million runs": lambda: [{"seed": list(range(1000)), "epochs": list(range(1, 1001))}],
    "thousand lists": lambda: [{"seed": list(range(1, 1000))}] * 1000,
    "nested runs": lambda: nested(
        3, lambda inner: [{"seed": list(range(9)), "features_concatenate": [inner]}], []
    ),
    "big search": lambda: {
        "keys": {"seed": list(range(999)), "epochs": list(range(1, 999))},
        "strategy": "grid",
    },
    "big budget": lambda: {"keys": {"learning_rate": {"min": 0.1, "max": 0.2}}, "budget": 10**7},
}
UNWRITABLE = (
    "10^5000",
    "a date",
    "bytes",
    "a set",
    "{1: 2}",
    "{null: []}",
    "deep list",
    "deep object",
    "cycle",
    "aliases",
    "long",
    "many",
    "thousand lists",
)


class Hostile:
    """The name of a value of HOSTILE, in place of the value."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"<{self.name}>"


def built(value):
    """A drawn value with every Hostile replaced by its value."""
    if isinstance(value, Hostile):
        return HOSTILE[value.name]()
    if isinstance(value, list):
        return [built(item) for item in value]
    return {key: built(item) for key, item in value.items()} if isinstance(value, dict) else value


# What a key may hold.


def valid(rule):
    """A strategy for the values that a JSON schema allows."""
    if "anyOf" in rule:
        return st.one_of([valid(one) for one in rule["anyOf"]])
    if "enum" in rule or "const" in rule:
        return st.sampled_from(rule.get("enum", [rule.get("const")]))
    match rule["type"]:
        case "integer":
            least = rule.get("minimum", 0)
            return st.integers(least, min(rule.get("maximum", 100), least + 40)) | st.sampled_from(
                [least, rule["maximum"]]
            )
        case "number":
            least, most = (
                rule.get(name, rule.get(f"exclusive{name.title()}"))
                for name in ("minimum", "maximum")
            )
            return st.floats(
                least,
                min(most, least + 10),
                exclude_min="exclusiveMinimum" in rule,
                exclude_max="exclusiveMaximum" in rule,
            )
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            return st.lists(
                valid(rule["items"]),
                min_size=rule.get("minItems", 0),
                max_size=rule.get("maxItems", 3),
                unique_by=repr if rule.get("uniqueItems") else None,
            )
    return st.text(st.characters(categories=["L", "N", "P", "Zs"]), min_size=1, max_size=12)


def near(value):
    """A strategy for what people write in place of `value`."""
    text = json.dumps(value, default=repr) if not isinstance(value, str) else value
    return st.sampled_from(
        [
            text,
            f" {text} ",
            text.upper(),
            text[:-1],
            text + text[-1:],
            text.replace("e", "a"),
            [value],
            [value, value],
            {"value": value},
            -value if isinstance(value, int) else text,
            value,
        ]
    )


def of_key(key):
    """A strategy for the values of a key: half of them valid."""
    lists = dict.fromkeys(OF_RUNS, st.deferred(lambda: RUNS)) | {
        "search": st.deferred(lambda: SEARCH)
    }
    given = {**VALID, **lists}
    good = given[key] if key in given else valid(PROPERTIES[key])
    return st.one_of(good, good, good.flatmap(near), HOSTILE_VALUES)


HOSTILE_VALUES = st.sampled_from(sorted(HOSTILE)).map(Hostile)
KEYS = st.sampled_from(sorted(PROPERTIES))
ODD_KEYS = st.sampled_from(
    ["batch_sise", "", "x" * 5000, "two\nlines", "weight", "keys", "None", "Seed"]
)


@st.composite
def overrides(draw, most=3):
    """Keys with values; rarely a key that does not exist."""
    keys = draw(st.lists(KEYS, min_size=1, max_size=most, unique=True))
    found = {key: draw(of_key(key)) for key in keys}
    if draw(st.integers(0, 19)) == 0:
        found[draw(ODD_KEYS)] = draw(HOSTILE_VALUES)
    return found


@st.composite
def entry(draw):
    """The entry of a list of runs: single values, or lists of them."""
    found = {}
    for key in draw(st.lists(KEYS, max_size=3, unique=True)):
        several = draw(st.booleans())
        found[key] = draw(st.lists(of_key(key), max_size=3) if several else of_key(key))
    return {
        **found,
        **({"weight": draw(st.floats(0.1, 2))} if draw(st.integers(0, 9)) == 0 else {}),
    }


@st.composite
def a_search(draw):
    """A `search`, with keys that have lists of values or ranges, and perhaps with its other
    settings.
    """
    keys = {}
    for key in draw(st.lists(KEYS, min_size=1, max_size=3, unique=True)):
        limits = st.fixed_dictionaries(
            {"min": of_key(key), "max": of_key(key)},
            optional={
                "scale": st.sampled_from(["log", "linear", "lin"]),
                "points": st.integers(0, 5),
                "integer": st.booleans(),
            },
        )
        keys[key] = draw(st.lists(of_key(key), max_size=4) | limits | of_key(key))
    rules = PROPERTIES["search"]["properties"]
    others = draw(
        st.lists(st.sampled_from(sorted(rules.keys() - {"keys"})), max_size=2, unique=True)
    )
    return {
        "keys": keys,
        **{
            name: draw(st.one_of(valid(rules[name]), valid(rules[name]), HOSTILE_VALUES))
            for name in others
        },
    }


RUNS, SEARCH = st.lists(entry(), max_size=2), a_search()


# What has to hold.


def plan(settings):
    """What the Snakefile computes from the configuration before the first rule."""
    configuration.check_overrides(settings)
    return plans.load(settings)


def verdict(settings):
    """'' if the settings are planned, else the message that refuses them."""
    try:
        plan(built(settings))
    except UserError as error:
        return str(error)
    return ""


def fault_of(message):
    """What is wrong with a message; '' if nothing is."""
    if len(message) > COLUMNS:
        return f"it has {len(message)} characters"
    return "" if message.isprintable() else "it is not one line of printable text"


def check(settings):
    """The verdict; raises AssertionError if it is late or badly put."""
    for _ in range(3):  # a cache may be cold
        started = time.process_time()
        message = verdict(settings)
        seconds = time.process_time() - started
        if seconds < SECONDS:
            break
    assert seconds < SECONDS, f"{seconds:.1f} s for {settings}"
    assert not fault_of(message), f"{fault_of(message)}: {message!r} for {settings}"
    return message


def writable(value):
    """Whether Snakemake can be given the value as JSON: what it reads itself, before the Snakefile,
    is not ours to refuse.
    """
    if isinstance(value, Hostile):
        return value.name not in UNWRITABLE
    if isinstance(value, dict):
        return all(map(writable, value.values()))
    return not isinstance(value, list) or all(map(writable, value))


def check_by_snakemake(project, settings, expected, in_a_file):
    """Raises AssertionError unless `snakemake -n` plans, or ends in one line, from a file in the
    `expected` one.
    """
    if in_a_file:
        (project / "overrides.json").write_text(json.dumps(built(settings)))
        arguments = ["--configfile", "overrides.json"]
    else:
        arguments = [
            "--config",
            *(f"{key}={json.dumps(built(value))}" for key, value in settings.items()),
        ]
    status, output = snakemake_server.run(["-n", "report", *arguments], project)
    lines = output.strip().splitlines()
    assert "Traceback" not in output, f"{output[-3000:]} for {settings}"
    assert status in (0, 1) and not (status and fault_of(lines[-1])), (
        f"{output[-1000:]} for {settings}"
    )
    if expected and in_a_file:  # after --config, Snakemake reads numbers within lists as text
        assert status == 1 and lines[-1] == expected, (
            f"{expected!r}, but by Snakemake {lines[-1]!r} for {settings}"
        )


# The campaign.


def causes(error):
    """The messages of an exception or of those in a group of them."""
    if isinstance(error, ExceptionGroup):
        return [text for one in error.exceptions for text in causes(one)]
    return [f"{type(error).__name__}: {str(error)[:2000]}"]


class Campaign:
    """Batches of settings, each drawn from its number."""

    def __init__(self, folder, seed=1):
        self.folder, self.seed = folder, seed
        folder.mkdir(parents=True, exist_ok=True)
        self.project = folder / "project"
        if not self.project.exists():
            self.project.mkdir()
            for name in COPIED:
                (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(
                    ROOT / name, self.project / name
                )

    def batch(self, number):
        """The counts of a batch: planned, refused, by_snakemake, and the messages by their kind;
        AssertionError for a fault.

        Batch 0 is every key alone with each of the HOSTILE values; the others are drawn.
        """
        counts, kinds = collections.Counter(), collections.Counter()

        def tried(message):
            counts["settings"] += 1
            counts["refused" if message else "planned"] += 1
            kinds[re.sub(r"'[^']*'|[\d.,]+|\[.*\]|\{.*\}", "_", message)[:80]] += 1

        def alone():
            for key in PROPERTIES:
                for name in HOSTILE:
                    tried(check({key: Hostile(name)}))

        @hypothesis.seed(self.seed * 100_000 + number)
        @hypothesis.settings(
            max_examples=BATCH,
            database=None,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
            phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        )
        @hypothesis.given(overrides())
        def run(settings):
            message = check(settings)
            tried(message)
            # the same for the same settings
            chance = zlib.crc32(repr(settings).encode(errors="replace"))
            if chance % BY_SNAKEMAKE == 0 and writable(settings):
                counts["by_snakemake"] += 1
                in_a_file = chance // BY_SNAKEMAKE % 2 == 0 or not all(
                    re.fullmatch(r"\w+", key) for key in settings
                )
                check_by_snakemake(self.project, settings, message, in_a_file)

        before = os.getcwd()
        os.chdir(self.folder)  # as in the project's copy: without results
        try:
            run() if number else alone()
        finally:
            os.chdir(before)
        return counts, kinds

    def run(self, wanted, say=lambda line: None, first=0):
        """Run batches, from number `first` on, until `wanted` settings were tried; returns the
        faults.
        """
        journal, faults, number = self.folder / "settings.jsonl", [], first
        done = (
            {line["batch"]: line for line in map(json.loads, journal.read_text().splitlines())}
            if journal.exists()
            else {}
        )
        while sum(line["settings"] for line in done.values()) < wanted and len(faults) < 10:
            if number not in done:
                try:
                    counts, kinds = self.batch(number)
                    done[number] = {"batch": number, **counts, "kinds": kinds}
                    with open(journal, "a") as file:
                        file.write(json.dumps(done[number]) + "\n")
                    say(f"batch {number}: {dict(counts)}")
                except Exception as error:  # whatever the code under test raises is a fault
                    faults.append(f"batch {number}: {' | '.join(causes(error))}")
                    say(faults[-1])
            number += 1
        totals = sum(
            (
                collections.Counter(
                    {
                        key: line.get(key, 0)
                        for key in ("settings", "planned", "refused", "by_snakemake")
                    }
                )
                for line in done.values()
            ),
            collections.Counter(),
        )
        kinds = {kind for line in done.values() for kind in line["kinds"]}
        say(f"{dict(totals)}, {len(kinds)} kinds of messages, {len(faults)} batches with a fault")
        return faults


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder",
        type=pathlib.Path,
        required=True,
        help="for the copy of the project and the journal",
    )
    parser.add_argument(
        "--settings", type=int, default=5000, metavar="N", help="end after N settings"
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    faults = Campaign(arguments.folder.absolute(), arguments.seed).run(
        arguments.settings, lambda line: print(line, flush=True)
    )
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
