# What the rules of the Snakefile are made of: the configuration, and the artifact of every role with its version.
# What may change an artifact's bytes, and so its version, is told in workflow/scripts/ladder/stages.py.

import atexit
import filecmp
import functools
import json
import os
import pathlib
import sys
import time

import yaml
from snakemake_interface_logger_plugins.common import LogEvent

sys.path.insert(0, os.path.join(workflow.basedir, "workflow", "scripts"))

import ladder
from ladder import (
    backends,
    config as configuration,
    driver,
    runtime,
    search,
    stages,
    variants,
)
from ladder.errors import UserError

PYTHON = sys.executable
RULES = {
    "data": "prepare_data",
    "normalized": "normalize_images",
    "initial": "initialize_weights",
    "fit": "fit_patches",
    "train": "train_network",
    "evaluate": "evaluate_network",
    "features": "extract_features",
    "joined": "join_features",
    "svm": "fit_svm",
    "linear": "fit_linear",
    "ridge": "fit_ridge",
    "knn": "classify_knn",
    "map": "map_features",
    "report": "make_report",
    "parity": "compare_rungs",
    "network": "draw_network",
    "compare": "compare_runs",
    "multipliers": "compare_multipliers",
    "search": "search_runs",
}
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
# Pages about whatever is in results/ just then: made each time they are asked for.
PAGES_OF_RESULTS = [
    "results/diff.html",
    "results/history.html",
    "results/predictions.html",
]
# Options with which Snakemake only looks.
LOOKING = set(
    "--lint --list -l --list-rules --list-target-rules --summary --detailed-summary --dag --rulegraph --filegraph"
    " --d3dag --print-compilation --unlock --list-untracked".split()
)


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
if workflow.resource_settings.nodes:
    os.environ |= {"LADDER_ELSEWHERE": "yes"}
CHAINS = load_settings()
SETTINGS, CHAIN = CHAINS[0]  # CHAIN: role -> stages.Keyed
EVERY = [keyed for _, chain in CHAINS for keyed in chain.values()]
BY_VERSION = {keyed.version: keyed for keyed in reversed(EVERY)}
SETTINGS_OF = {
    keyed.version: settings
    for settings, chain in reversed(CHAINS)
    for keyed in chain.values()
}
VERSIONS = "|".join(BY_VERSION)
if driver.gpu_count() and "gpu" not in workflow.global_resources:
    workflow.register_resource("gpu", driver.gpu_count())
if config["variant"] == "auto":
    say("variant auto: {} ({})".format(*variants.resolve_variant("auto")))
if config["svm_backend"] == "auto":
    say(f"svm_backend auto: {SETTINGS['svm_backend']}")


# Inputs. They are ancient, because versions say what has to run and file times do not; but what is made again takes along
# what depends on it.


def made(*roles):
    """Input function of a target: the manifests of these roles. Ends with one line where the configuration has none of them."""

    def inputs(wildcards):
        for role in roles:
            if role not in CHAIN:
                there = ", ".join(one for one in RULES if one in CHAIN)
                sys.exit(
                    f"{role}: this configuration has no such stage; it has {there}"
                )
        return manifests(*(CHAIN[role] for role in roles))

    return inputs


def parent(name):
    """Input function of a stage: the manifest of its parent `name`; nothing where it has no such parent."""

    def inputs(wildcards):
        parents = BY_VERSION[wildcards.version].parents
        return manifests(parents[name]) if name in parents else []

    return inputs


def parents(wildcards):
    """Input function of a stage: the manifests of all its parents."""
    return manifests(*BY_VERSION[wildcards.version].parents.values())


def every_time(wildcards):
    """Input function of a page of PAGES_OF_RESULTS."""
    force_what_was_asked()
    return []


def manifests(*wanted):
    force_what_was_asked()
    return [
        keyed.manifest if keyed.version in remade() else ancient(keyed.manifest)
        for keyed in wanted
    ]


def sources(stage):
    specs = [keyed.spec for keyed in EVERY if keyed.stage == stage]
    return [
        ancient(path)
        for path in sorted({path for spec in specs for path in spec["sources"]})
    ]


# Parameters of a stage's command line.


def spec(wildcards):
    return stages.canonical(BY_VERSION[wildcards.version].spec)


def inputs(wildcards):
    """--input NAME=FOLDER for each parent."""
    parents = BY_VERSION[wildcards.version].parents
    return " ".join(f"--input {name}={keyed.folder}" for name, keyed in parents.items())


def remake(wildcards):
    """--remake where the user asked for it: without it a stage takes what another run has finished meanwhile."""
    return "--remake" if wildcards.version in remade() else ""


def threads_of(wildcards):
    """CPU threads of a job: the configuration's, never by --cores, because sums over threads depend on their number."""
    version = getattr(wildcards, "version", None)
    return SETTINGS_OF.get(version, SETTINGS)["threads"]


def stage_threads(wildcards, threads):
    """What the stage is told. Snakemake takes no more than --cores, which is about jobs, for `threads`; --set-threads counts."""
    wanted, cores = threads_of(wildcards), workflow.global_resources["_cores"].value
    return wanted if threads == min(wanted, cores or wanted) else threads


def gpus(wildcards):
    """How many GPUs a job computes with."""
    params = BY_VERSION[wildcards.version].spec["params"]
    return int(variants.computes_on_gpu(params.get("variant"), params.get("backend")))


def setting(key):
    """What the configuration that an artifact belongs to says."""
    return lambda wildcards: SETTINGS_OF[wildcards.version][key]


def urls(wildcards):
    settings = SETTINGS_OF[wildcards.version]
    return json.dumps(settings.get(f"{settings['dataset']}_urls", []))


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
    targets = set(workflow.dag_settings.targets or [])
    return bool(targets) and targets <= {
        page for name in (*configuration.LISTS, "search") for page in FIXED[name]
    }


def failed_before():
    """Manifests of the active configuration that a list has kept although its run failed."""
    for keyed in CHAIN.values():
        path = pathlib.Path(keyed.manifest)
        if path.exists() and '"failed":' in path.read_text():
            yield keyed.manifest


# What the user asked to make again.


@functools.cache
def remade():
    """Versions that -F, -f TARGET or -R RULE name, and all that is made from them."""
    asked = set(workflow.dag_settings.forcerun)
    if workflow.dag_settings.forcetargets:
        asked |= set(workflow.dag_settings.targets)
    versions = {CHAIN[role].version for role in asked & CHAIN.keys()}

    @functools.cache
    def again(version):
        keyed = BY_VERSION[version]
        named = asked & {RULES[keyed.stage], keyed.manifest} or version in versions
        inherited = (again(parent.version) for parent in keyed.parents.values())
        return bool(workflow.dag_settings.forceall or named or any(inherited))

    return {version for version in BY_VERSION if again(version)}


@functools.cache
def force_what_was_asked():
    """Tell Snakemake what it does not see: that naming a target means its artifact, and fixed copies that are out of date."""
    workflow.dag.forcefiles.update(BY_VERSION[version].manifest for version in remade())
    for role in FIXED:
        workflow.dag.forcefiles.update(stale_copies(role))
    workflow.dag.forcefiles.update(PAGES_OF_RESULTS)
    if asked_for_lists():
        os.environ |= {"LADDER_KEEP_FAILED": "yes"}  # the stages look there
        cores = workflow.global_resources["_cores"].value or 1
        if cores > 1 and config["threads"] == "all":
            say(f"threads all: one run at a time; threads=1 makes {cores} at a time")
    elif "LADDER_KEEP_FAILED" not in os.environ:
        workflow.dag.forcefiles.update(failed_before())


# The fixed names, also where results/ was copied here or the configuration was switched.


def stale_copies(role):
    keyed = pathlib.Path(CHAIN[role].folder)
    copies = [pathlib.Path(copy) for copy in FIXED[role] if os.path.exists(copy)]
    return [str(copy) for copy in copies if not same(copy, keyed / copy.name)]


def same(copy, original):
    return original.exists() and filecmp.cmp(copy, original, shallow=False)


def inputs_of_rules():
    return {
        path for keyed in EVERY for path in (keyed.manifest, *keyed.spec["sources"])
    }


if not (workflow.output_settings.dryrun or LOOKING & set(sys.argv)):
    for copy in stale_copies("report"):
        os.unlink(copy)
    # Files from a machine whose clock runs ahead: Snakemake fails a job whose input is newer than its output.
    for path in inputs_of_rules():
        if os.path.exists(path) and os.path.getmtime(path) > time.time():
            os.utime(path)


# Faults.


def cannot_run_here(jobs):
    """Say in one line, and stop, where a job has to run that this machine cannot run."""
    for job in () if runtime.jobs_run_elsewhere() else jobs:
        keyed = BY_VERSION.get(getattr(job.wildcards, "version", None))
        params = keyed.spec["params"] if keyed else {}
        for key, module in (("backend", backends), ("variant", variants)):
            if (
                key in params
                and keyed.stage not in ("report", "network", "compare", "search")
                and (reason := module.unavailable(params[key]))
            ):
                sys.exit(reason)


def cannot_find_pictures(jobs):
    """Say in one line, and stop, where pictures are asked for that are not there: before the model is trained for them."""
    if any(job.rule.name == "predictions" for job in jobs):
        from ladder import pictures

        try:
            pictures.find(SETTINGS["predict"])
        except UserError as error:
            sys.exit(str(error))


# Lines of Snakemake's that say nothing about the work. A failed stage has said why itself, and says it again at the end;
# the command line is in the log of .snakemake/log and shown with --printshellcmds.
NOISE = (
    "Assuming unrestricted shared filesystem usage",
    "Building DAG of jobs",
    "Conda environments: ignored",
    "Execute ",
    "RuleException:\nCalledProcessError",
    "Select jobs to execute",
    "Using shell:",
)


FAILED = []  # rules whose jobs did


def worth_reading(record):
    failed_job = getattr(record, "event", None) == LogEvent.JOB_ERROR
    if failed_job:
        FAILED.append(record.rule_name)
    return not failed_job and not record.getMessage().startswith(NOISE)


if not (workflow.output_settings.verbose or workflow.output_settings.printshellcmds):
    for handler in workflow.logger_manager.logger.handlers:
        if handler.name == "DefaultStreamHandler":
            handler.addFilter(worth_reading)


ERRORS = pathlib.Path("logs", f".errors.{os.getpid()}")
os.environ |= {"LADDER_ERRORS": str(ERRORS.absolute())}
atexit.register(ERRORS.unlink, missing_ok=True)


def repeat_errors():
    """Print the failed stages' own messages once more; at exit, so that they are the last lines."""
    if ERRORS.exists():
        say(f"\n{ERRORS.read_text().strip()}")
    elif FAILED:
        say(
            f"\n{FAILED[0]} was killed before it could say why, perhaps for want of memory; "
            "run the same command again: what is finished stays"
        )
