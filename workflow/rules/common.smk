# What the rules are made of: the configuration, the artifact of every role with its version, and what the command asks for.
# What may change an artifact's bytes, and so its version, is told in workflow/scripts/ladder/workflow/stages.py.

import atexit
import filecmp
import functools
import json
import os
import pathlib
import shlex
import sys
import time

import yaml

sys.path.insert(0, os.path.join(workflow.basedir, "workflow", "scripts"))

import ladder
from ladder.classifiers import backends
from ladder.errors import UserError
from ladder.machine import driver, runtime
from ladder.rungs import variants
from ladder.workflow import config as configuration, search, stages

# The fixed names by role, copies of what lies in the artifact. The report's always show the active configuration; the others
# stay until they are asked for again: `variant: auto` goes by those of parity.
FIXED = {
    "report": ["results/report.html", "results/summary.json"],
    "parity": ["results/parity.html", "results/parity.json"],
    "network": ["results/network.html"],
    "compare": ["results/compare.html", "results/compare.json", "results/compare.csv"],
    "multipliers": [
        "results/multipliers.html",
        "results/multipliers.json",
        "results/multipliers.csv",
    ],
    "search": [
        "results/search.html",
        "results/search.json",
        "results/search.csv",
        "results/best.yaml",
    ],
}
# Stages whose artifact says what another machine computed; they run here whatever this one lacks.
PAGES = ("report", "network", "compare", "multipliers", "search")


# Snakemake's internals: all that this workflow reads of Snakemake beyond its documentation, which has no other way to tell a
# Snakefile what the command line asks for. tests/workflow/test_snakemake_internals.py names what a release has changed.


class Command:
    """The command line, as far as rules depend on it. Snakemake knows it only once the Snakefile is read: for functions."""

    @property
    def targets(self):
        return set(workflow.dag_settings.targets or [])

    @property
    def forced(self):
        """Rules, targets and files that -R, or -f with targets, names."""
        named = set(workflow.dag_settings.forcerun)
        return named | (self.targets if workflow.dag_settings.forcetargets else set())

    @property
    def forces_all(self):
        return bool(workflow.dag_settings.forceall)


def runs_elsewhere():
    """Whether other machines run the jobs: Snakemake counts nodes, not cores, for an executor of a cluster."""
    return workflow.resource_settings.nodes is not None


def load_settings():
    """(settings, chain) of the active configuration, then of every entry of its lists that can run here."""
    try:
        loaded = configuration.load(config)
        settings = configuration.resolve(loaded)
        lists = {key: configuration.entries(loaded, key) for key in configuration.LISTS}
        entries = [entry for listed in lists.values() for entry in listed]
        searched = search.entries(loaded)
        runs = [
            settings,
            *(entry.settings for entry in (*entries, *searched) if not entry.reason),
        ]
        _, *chains = [
            (needed, stages.chain(needed))
            for run in runs
            for needed in configuration.every(run)
        ]
        active = stages.chain(settings) | {
            "parity": stages.parity(settings, variants.available(), variants.machine()),
            "network": stages.network_page(settings),
            "compare": stages.comparison(lists["compare"]),
            "multipliers": stages.multiplier_comparison(lists["multipliers"]),
            "search": stages.comparison(
                searched, "search", search=search.params(loaded)
            ),
        }
        return [(settings, active), *chains]
    except UserError as error:
        sys.exit(str(error))


def say(text):
    print(text, file=sys.stderr, flush=True)


if ladder.RELEASED:
    say(ladder.RELEASED)
# On a cluster the machines that run the jobs may have what this one lacks.
if runs_elsewhere():
    os.environ |= {"LADDER_ELSEWHERE": "yes"}
# Rules call `python3`: the one that runs Snakemake, or that of the environment where Snakemake activates one (--sdm conda).
os.environ |= {
    "PATH": f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
}
COMMAND = Command()
CHAINS = load_settings()
SETTINGS, CHAIN = CHAINS[0]  # CHAIN: role -> stages.Keyed
BY_VERSION = {
    keyed.version: keyed for _, chain in reversed(CHAINS) for keyed in chain.values()
}
SETTINGS_OF = {
    keyed.version: settings
    for settings, chain in reversed(CHAINS)
    for keyed in chain.values()
}
VERSIONS = "|".join(BY_VERSION)
if config["variant"] == "auto":
    say("variant auto: {} ({})".format(*variants.resolve_variant("auto")))
if config["svm_backend"] == "auto":
    say(f"svm_backend auto: {SETTINGS['svm_backend']}")


# Inputs. Manifests are ancient, because versions say what has to run and file times do not. What has to run although it is there
# takes one more input, a file that is as old as this command, and so newer than any output; what depends on it takes its
# manifest as it is.


def made(*roles):
    """Input function of a target: the manifests of these roles. Ends with one line where the configuration has none of them."""

    def inputs(wildcards):
        for role in roles:
            if role not in CHAIN:
                there = ", ".join(stage for stage in stages.RULES if stage in CHAIN)
                sys.exit(
                    f"{role}: this configuration has no such stage; it has {there}"
                )
        return manifests(*(CHAIN[role] for role in roles))

    return inputs


def parent(name):
    """Input function of a stage: the manifest of its parent `name`; nothing where it has no such parent."""

    def inputs(wildcards):
        parents = BY_VERSION[wildcards.version].parents
        found = manifests(parents[name]) if name in parents else []
        return found + asked_for_again(wildcards)

    return inputs


def parents(wildcards):
    """Input function of a stage: the manifests of all its parents."""
    keyed = BY_VERSION[wildcards.version]
    return manifests(*keyed.parents.values()) + asked_for_again(wildcards)


def asked_for_again(wildcards):
    """Input function of a stage: `this_command` where the user asked for what is there to be made again."""
    keyed = BY_VERSION[wildcards.version]
    again = runs_although_there(keyed)
    if again or not os.path.exists(keyed.manifest):
        stop_where_it_cannot_run(keyed)
    return this_command(wildcards) if again else []


def outdated(role):
    """Input function of a role's copies in results/: `this_command` where they are of another configuration, or damaged."""

    def inputs(wildcards):
        folder = pathlib.Path(CHAIN[role].folder)
        copies = [pathlib.Path(copy) for copy in FIXED[role] if os.path.exists(copy)]
        settle(*copies)
        same = all(
            (folder / copy.name).exists()
            and filecmp.cmp(copy, folder / copy.name, shallow=False)
            for copy in copies
        )
        return [] if same else this_command(wildcards)

    return inputs


@functools.cache
def command_started():
    """Make the file that is as old as this command; it goes when the command ends."""
    path = pathlib.Path("logs", f".command.{os.getpid()}")
    path.parent.mkdir(exist_ok=True)
    path.touch()
    atexit.register(path.unlink, missing_ok=True)
    return str(path)


def this_command(wildcards):
    """Input function of what is made each time it is asked for."""
    if asked_for_lists():
        keep_failed_runs()
    return [command_started()]


def manifests(*wanted):
    if asked_for_lists():
        keep_failed_runs()
    settle(*(keyed.manifest for keyed in wanted))
    return [
        keyed.manifest if runs_although_there(keyed) else ancient(keyed.manifest)
        for keyed in wanted
    ]


def settle(*paths):
    """Files of a machine whose clock runs ahead become as old as now: Snakemake fails a job whose input is newer than its output."""
    for path in paths:
        if os.path.exists(path) and os.path.getmtime(path) > time.time():
            os.utime(path)


# Parameters of a stage's command line.


def script(wildcards):
    return stages.script(BY_VERSION[wildcards.version].stage)


def folder(wildcards):
    return BY_VERSION[wildcards.version].folder


def spec(wildcards):
    return stages.canonical(BY_VERSION[wildcards.version].spec)


def inputs(wildcards):
    return input_options(BY_VERSION[wildcards.version].parents)


def input_options(parents):
    """--input NAME=FOLDER for each of the parents, name -> stages.Keyed."""
    return " ".join(f"--input {name}={keyed.folder}" for name, keyed in parents.items())


def options(*keys, **others):
    """--option NAME=VALUE for each key of the artifact's configuration; others: NAME=KEY, or a fixed value."""

    def texts(wildcards):
        settings = SETTINGS_OF[wildcards.version]
        urls = settings.get(f"{settings['dataset']}_urls", [])
        settings = settings | {"urls": json.dumps(urls)}
        values = {key: settings[key] for key in keys}
        values |= {name: settings.get(key, key) for name, key in others.items()}
        return " ".join(
            f"--option {shlex.quote(f'{name}={value}')}"
            for name, value in values.items()
        )

    return texts


def remake(wildcards):
    """--remake where the user asked for it: without it a stage takes what another run has finished meanwhile."""
    return "--remake" if wildcards.version in remade() else ""


def threads_of(wildcards):
    """CPU threads of a job: the configuration's, never by --cores, because sums over threads depend on their number."""
    version = getattr(wildcards, "version", None)
    return SETTINGS_OF.get(version, SETTINGS)["threads"]


def stage_threads(wildcards, threads):
    """What the stage is told. Snakemake takes no more than --cores, which is about jobs, for `threads`; --set-threads counts."""
    wanted, cores = threads_of(wildcards), workflow.cores
    return wanted if threads == min(wanted, cores or wanted) else threads


def gpus(wildcards):
    """How many GPUs a job computes with."""
    params = BY_VERSION[wildcards.version].spec["params"]
    return int(variants.computes_on_gpu(params.get("variant"), params.get("backend")))


def role(wildcards):
    return BY_VERSION[wildcards.version].role


def why(wildcards):
    keyed = BY_VERSION[wildcards.version]
    if keyed.version in remade():
        return "asked for"
    return stages.why(keyed) or "made again"


def reached():
    """JSON list of what `gc` leaves alone: "stage/version" of this configuration, its lists, presets/ and keep."""
    chains = [chain for _, chain in CHAINS]
    for preset in sorted(pathlib.Path(workflow.basedir, "presets").glob("*.yaml")):
        overrides = yaml.safe_load(preset.read_text())
        settings = configuration.resolve(configuration.load({**config, **overrides}))
        chains.append(stages.chain(settings))
    artifacts = {
        f"{keyed.stage}/{keyed.version}" for chain in chains for keyed in chain.values()
    }
    for version in SETTINGS["keep"]:
        found = pathlib.Path("results").glob(f"*/{version}")
        artifacts |= {f"{folder.parent.name}/{folder.name}" for folder in found}
    return json.dumps(sorted(artifacts))


# Lists of runs.


def asked_for_lists():
    """Whether only pages of lists of runs are asked for: then a run that fails by itself stops no other."""
    pages = {page for name in (*configuration.LISTS, "search") for page in FIXED[name]}
    return bool(COMMAND.targets) and COMMAND.targets <= pages


@functools.cache
def keep_failed_runs():
    os.environ |= {"LADDER_KEEP_FAILED": "yes"}  # the stages look there
    cores = workflow.cores or 1
    if cores > 1 and config["threads"] == "all":
        say(f"threads all: one run at a time; threads=1 makes {cores} at a time")


@functools.cache
def failed_in_a_list():
    """Versions of the active configuration that a list has kept although their run failed; asked for alone, they say why."""
    if asked_for_lists() or "LADDER_KEEP_FAILED" in os.environ:
        return set()
    found = [keyed for keyed in CHAIN.values() if os.path.exists(keyed.manifest)]
    return {
        keyed.version
        for keyed in found
        if '"failed":' in pathlib.Path(keyed.manifest).read_text()
    }


# What the user asked to make again.


def runs_although_there(keyed):
    return keyed.version in remade() | failed_in_a_list()


@functools.cache
def remade():
    """Versions that -F, -f TARGET or -R RULE name, and all that is made from them."""
    forced = COMMAND.forced
    versions = {CHAIN[role].version for role in forced & CHAIN.keys()}

    @functools.cache
    def again(version):
        keyed = BY_VERSION[version]
        named = (
            forced & {stages.RULES[keyed.stage], keyed.manifest} or version in versions
        )
        inherited = (again(parent.version) for parent in keyed.parents.values())
        return bool(COMMAND.forces_all or named or any(inherited))

    return {version for version in BY_VERSION if again(version)}


# Faults.


def stop_where_it_cannot_run(keyed):
    """Say in one line, before any work, that a job of this run cannot run on this machine."""
    params = keyed.spec["params"]
    for key, module in (("backend", backends), ("variant", variants)):
        if (
            key in params
            and keyed.stage not in PAGES
            and not runtime.jobs_run_elsewhere()
            and (reason := module.unavailable(params[key]))
        ):
            sys.exit(reason)


def pictures_are_there(wildcards):
    """Input function: nothing; ends in one line where no pictures are named or found, before a model is trained for them."""
    from ladder.data import pictures

    try:
        pictures.find(SETTINGS["predict"])
    except UserError as error:
        sys.exit(str(error))
    return []


# A stage says why it failed, in its log, and in this file for the end of the output; one that a signal ended cannot.
ERRORS = pathlib.Path("logs", f".errors.{os.getpid()}")
os.environ |= {"LADDER_ERRORS": str(ERRORS.absolute())}
atexit.register(ERRORS.unlink, missing_ok=True)


def killed(wildcards):
    """The end of a stage's shell command: says so where a signal other than Ctrl-C's has ended the stage, which could not."""
    name = stages.RULES[BY_VERSION[wildcards.version].stage]
    text = (
        f"{name} was killed before it could say why, perhaps for want of memory; "
        "run the same command again: what is finished stays"
    )
    return (
        "{ status=$?; [ $status -le 128 ] || [ $status = 130 ] ||"
        f' echo {shlex.quote(text)} >> "$LADDER_ERRORS"; exit $status; }}'
    )


def repeat_errors():
    """Print the failed stages' own messages once more; at exit, so that they are the last lines."""
    if ERRORS.exists():
        say(f"\n{ERRORS.read_text().strip()}")
