# The functions that rules use: the configuration, the artifact of every role with its version, and the command line.
# What enters an artifact's version is defined in workflow/scripts/ladder/workflow/stages.py.

import atexit
import contextlib
import functools
import json
import logging
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(workflow.basedir, "workflow", "scripts"))

import ladder
from ladder import command
from ladder.classifiers import backends
from ladder.errors import UserError
from ladder.machine import driver, processes, readers, runtime
from ladder.rungs import variants
from ladder.store import (
    first_use as checks,
    manifests as kept,
    shorter as shorter_trainings,
)
from ladder.store.versions import canonical
from ladder.training import first_use, schedules
from ladder.workflow import (
    array_libraries,
    config as configuration,
    copies as published,
    places,
    search,
    stages,
)

# Snakemake's own files, whose names it formats with wildcards: a brace in the project's path is doubled.
ENVIRONMENT = os.path.join(workflow.basedir, "envs", "cpu.yaml")
ENVIRONMENT = ENVIRONMENT.replace("{", "{{").replace("}", "}}")
# Fixed names by role: copies of the artifact's files. They stay until they are requested again; `variant: auto` reads
# results/parity.json.
FIXED = {
    "report": ["results/report.html", "results/summary.json"],
    "parity": ["results/parity.html", "results/parity.json"],
    "network": ["results/network.html"],
    "gradients": ["results/gradients.html", "results/gradients.json"],
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
# The configuration for the scripts of a search by TPE.
TRIALS = "logs/search.json"
# Stages that only describe runs: they need neither the rung nor the libraries that their parameters name.
PAGES = ("report", "network", "compare", "multipliers", "search")


# Snakemake's internals: everything that this workflow reads of Snakemake beyond its documentation, which offers a Snakefile no
# way to read the command line. tests/workflow/test_snakemake_internals.py names the part that a release has changed.


class Command:
    """The command line, as far as rules depend on it. Snakemake fills it in after parsing: for use in functions only."""

    @property
    def targets(self):
        return set(workflow.dag_settings.targets or [])

    @property
    def forced(self):
        """Rules, targets and files named by -R, and the targets if -f is given."""
        named = set(workflow.dag_settings.forcerun)
        return named | (self.targets if workflow.dag_settings.forcetargets else set())

    @property
    def forces_all(self):
        return bool(workflow.dag_settings.forceall)

    @property
    def runs(self):
        """Whether jobs run, where there are any: not with -n or --touch, and not inside a job. For use at the end."""
        idle = workflow.scheduler is None or workflow.dryrun or workflow.touch
        return workflow.is_main_process and not idle


def runs_elsewhere():
    """True if other machines run the jobs: for a cluster's executor Snakemake counts nodes, not cores."""
    return workflow.resource_settings.nodes is not None


def cores():
    """--cores; None if other machines run the jobs, where Snakemake has no such number."""
    return None if runs_elsewhere() else workflow.cores


def overridden():
    """The keys of --config and --configfile with their values, before Snakemake merges them into those of config.yaml."""
    return workflow.config_settings.overwrite_config


def configuration_files():
    """The files that the configuration comes from, which Snakemake has read: of a key that is twice in one it takes the last."""
    return ["config.yaml", *workflow.config_settings.configfiles]


def dry_run():
    return workflow.dryrun


def load_settings():
    """(settings, chain) of the active configuration, then of every entry of its lists that can run on this machine; the search.Plan."""
    try:
        for file in configuration_files():
            configuration.read_file(file)
        configuration.check_overrides(overridden())
        loaded = configuration.load(config)
        settings = configuration.resolve(loaded)
        lists = {key: configuration.entries(loaded, key) for key in configuration.LISTS}
        entries = [entry for listed in lists.values() for entry in listed]
        searched = search.plan(loaded)
        entries += searched.entries
        runs = [
            settings,
            *(entry.settings for entry in entries if not entry.reason),
            *searched.probes,
        ]
        _, *chains = [
            (needed, stages.chain(needed))
            for run in runs
            for needed in configuration.every(run)
        ]
        active = stages.chain(settings) | {
            "parity": stages.parity(settings, variants.available(), variants.machine()),
            "network": stages.network_page(settings),
            "gradients": stages.gradients_page(settings),
            "compare": stages.comparison(lists["compare"]),
            "multipliers": stages.multiplier_comparison(lists["multipliers"]),
            "search": stages.comparison(
                searched.entries, "search", search=search.params(loaded)
            ),
        }
        return [(settings, active), *chains], searched
    except UserError as error:
        sys.exit(str(error))


def say(text):
    print(text, file=sys.stderr, flush=True)


def stop_unless(check, *arguments):
    """Exit with one line if the check raises a UserError."""
    try:
        check(*arguments)
    except UserError as error:
        sys.exit(str(error))


def remove_leftovers():
    """Remove the files and folders of commands that were killed. What is left in an artifact goes when the stage makes it."""
    for pattern in ("logs/.*", "logs/*/.*.tmp", "results/.*.tmp"):
        for path in filter(processes.is_left, pathlib.Path().glob(pattern)):
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


logging.raiseExceptions = False  # no traceback for each line that a full disk refuses
if workflow.is_main_process:
    readers.watch()
stop_unless(places.check_memory)
stop_unless(places.check_kind, "results", "logs")
stop_unless(places.check_writable, ".snakemake")
remove_leftovers()
if ladder.RELEASED:
    say(ladder.RELEASED)
# The nodes of a cluster may have a GPU or libraries that this machine lacks.
if runs_elsewhere():
    os.environ |= {"LADDER_ELSEWHERE": "yes"}
# Rules call `python3`: the one that runs Snakemake or, with --sdm conda, that of the environment that Snakemake activates.
SEARCHED = [str(pathlib.Path(sys.executable).parent), *os.get_exec_path()]
os.environ |= {"PATH": os.pathsep.join(SEARCHED)}
COMMAND = Command()
# What `auto` takes is checked before its first use, by a command that runs jobs here; dry_run() is not known yet.
DRY = re.compile(r"-[a-zA-Z]*n[a-zA-Z]*|--dry.*")  # -n, also as in -np
if not (runs_elsewhere() or any(map(DRY.fullmatch, sys.argv))):
    os.environ |= {checks.CHECKS: "yes"}
CHAINS, SEARCHED = load_settings()
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
    auto = {**SETTINGS, "variant": "auto"}
    say("variant auto: {} ({})".format(*configuration.chosen_variant(auto)))
if config["svm_backend"] == "auto":
    say(f"svm_backend auto: {SETTINGS['svm_backend']}")
if config["array_library"] == "auto" and any(
    "array_library" in keyed.spec["params"] for keyed in CHAIN.values()
):
    say(f"array_library auto: {SETTINGS['array_library']}")
if "train" in CHAIN and not os.path.exists(CHAIN["train"].manifest):
    for line in schedules.misfits(SETTINGS, configuration.training_images(SETTINGS)):
        say(line)


def say_other_libraries():
    """Say which artifacts of the active configuration other versions of libraries than the installed ones have made."""
    found = {}
    for keyed in CHAIN.values():
        for change in stages.other_libraries(keyed):
            found.setdefault(change, []).append(keyed.role)
    for change, roles in found.items():
        say(
            f"{change} since {', '.join(roles)} {'were' if len(roles) > 1 else 'was'} made; "
            "strict_versions=true would make this count"
        )


if not runs_elsewhere():
    say_other_libraries()


# Inputs. Manifests are ancient: versions decide which jobs run, not file times. A job that must run although its output exists
# gets an extra input, a file that this command creates and so newer than any output; its manifest is not ancient for the jobs
# that depend on it.


def made(*roles):
    """Input function of a target: the manifests of these roles. Exits with one line if the configuration lacks one of them."""

    def inputs(wildcards):
        for role in roles:
            if role not in CHAIN:
                there = ", ".join(stage for stage in stages.RULES if stage in CHAIN)
                sys.exit(
                    f"{role}: this configuration has no such stage; it has {there}"
                )
        joined = ["joined"] if "features" in roles and "joined" in CHAIN else []
        wanted = [CHAIN[role] for role in (*roles, *joined)]
        return with_others(damaged_of(wanted), manifests(*wanted))

    return inputs


def parent(name):
    """Input function of a stage: the manifest of its parent `name`, if it has such a parent."""

    def inputs(wildcards):
        parents = BY_VERSION[wildcards.version].parents
        found = manifests(parents[name]) if name in parents else []
        return with_others(asked_for_again(wildcards), found)

    return inputs


def parents(wildcards):
    """Input function of a stage: the manifests of all its parents."""
    keyed = BY_VERSION[wildcards.version]
    return with_others(asked_for_again(wildcards), manifests(*keyed.parents.values()))


def asked_for_again(wildcards):
    """Input function of a stage: `this_command` if the stage has to run although its artifact exists."""
    keyed = BY_VERSION[wildcards.version]
    again = runs_although_there(keyed)
    if not again and os.path.exists(keyed.manifest):
        return []
    stop_where_nothing_can_be_written()
    stop_where_it_cannot_run(keyed)
    above = damaged_of(keyed.parents.values())
    return above + (this_command(wildcards) if again else [])


def outdated(role):
    """Input function of a role's copies in results/: `this_command` if they differ from the artifact's files."""

    def inputs(wildcards):
        folder = pathlib.Path(CHAIN[role].folder)
        copies = [pathlib.Path(copy) for copy in FIXED[role] if os.path.exists(copy)]
        for folder_there in filter(pathlib.Path.is_dir, copies):
            sys.exit(f"{folder_there} is a folder; move it away: a page goes there")
        settle(*copies)
        same = all(published.is_published(folder, copy) for copy in copies)
        return [] if same else this_command(wildcards)

    return inputs


@functools.cache
def command_started():
    """Create the file that exists while this command runs; returns its path."""
    stop_where_nothing_can_be_written()
    path = pathlib.Path("logs", f".command.{processes.owner()}")
    path.parent.mkdir(exist_ok=True)
    path.touch()
    atexit.register(path.unlink, missing_ok=True)
    return str(path)


def this_command(wildcards):
    """Input function of rules that run every time they are requested."""
    if asked_for_lists():
        keep_failed_runs()
    return [command_started()]


def after_runs(wildcards):
    """Input function of pages on the content of results/: the pages of runs that this command makes too come first."""
    pages = {
        page
        for role, found in FIXED.items()
        for page in found
        if COMMAND.targets & {role, *found}
    }
    return this_command(wildcards) + sorted(pages)


def manifests(*wanted):
    if asked_for_lists():
        keep_failed_runs()
    settle(*(keyed.manifest for keyed in wanted))
    return [
        keyed.manifest if changes_what_is_there(keyed) else ancient(keyed.manifest)
        for keyed in wanted
    ]


def with_others(files, others):
    """The inputs `files` and `others`; one that is in both is not ancient."""
    return files + [other for other in others if other not in files]


def damaged_of(wanted):
    """The manifests of the damaged artifacts among these and their ancestors, for all that runs because of something else.

    Snakemake does not look at what depends on a job that has a reason of its own to run, except through an input that is not
    ancient.
    """
    return sorted(set().union(*(damaged(keyed.version) for keyed in wanted)))


@functools.cache
def damaged(version):
    keyed = BY_VERSION[version]
    found = {keyed.manifest} if damage(version) else set()
    return found.union(*(damaged(above.version) for above in keyed.parents.values()))


def settle(*paths):
    """Reset file times in the future (another machine's clock): Snakemake fails a job whose input is newer than its output."""
    for path in paths:
        if os.path.exists(path) and os.path.getmtime(path) > time.time():
            os.utime(path)


# Pages in results/ that the configuration has left behind.


@atexit.register  # so that it runs after the notices are written, which was registered later
def make_index():
    """Make results/index.html again if this command has made a page, or removed reports."""
    if not COMMAND.runs:
        return
    if "gc" in COMMAND.targets or published.is_index_older("results"):
        script = os.path.join(workflow.basedir, "workflow/scripts/make_index.py")
        subprocess.run([sys.executable, script], check=False)


@atexit.register
def mark_pages_of_other_configurations():
    """Put a notice on each page that shows another version than this command's; parity measures a machine, not a run."""
    if not COMMAND.runs:
        return
    from ladder.workflow import notices

    given = any(option.startswith(("--config", "-C")) for option in sys.argv)
    for role in FIXED.keys() - {"parity"}:
        page, keyed = FIXED[role][0], CHAIN[role]
        if role == "search" and SEARCHED.next:  # the page is of a later plan
            continue
        # A list that is empty now was given on an earlier command line.
        if os.path.exists(page) and keyed.spec["params"].get("entries") != []:
            notices.update(page, keyed, given)


# Parameters of a stage's command line.


def script(wildcards):
    return stages.script(BY_VERSION[wildcards.version].stage)


def folder(wildcards):
    return BY_VERSION[wildcards.version].folder


def job(wildcards):
    """The file, beside its log, with a stage's spec and inputs, which are too long for a command line."""
    keyed = BY_VERSION[wildcards.version]
    path = pathlib.Path("logs", keyed.stage, f"{keyed.version}.json")
    if not dry_run():
        inputs = {name: parent.folder for name, parent in keyed.parents.items()}
        text = canonical({"spec": keyed.spec, "inputs": inputs})
        stop_unless(places.write, path, text)
    return str(path)


def input_options(parents):
    """--input NAME=FOLDER for each of the parents, name -> stages.Keyed."""
    return " ".join(f"--input {name}={keyed.folder}" for name, keyed in parents.items())


def options(*keys, **others):
    """Params function: --option KEY=VALUE for each key of the artifact's configuration; others: NAME=KEY or a fixed value."""

    def texts(wildcards):
        settings = SETTINGS_OF[wildcards.version]
        urls = settings.get(f"{settings['dataset']}_urls", [])
        network = stages.network_params(settings)
        plan = first_use.described(network, settings["batch_size"])
        settings = settings | {"urls": json.dumps(urls), first_use.OPTION: plan}
        values = {key: settings[key] for key in keys}
        values |= {name: settings.get(key, key) for name, key in others.items()}
        return " ".join(
            f"--option {shlex.quote(f'{name}={value}')}"
            for name, value in values.items()
        )

    return texts


def training_options(wildcards):
    """The options of a training: one more names the folder of the finished shorter one that it goes on from."""
    shorter = goes_on_from(wildcards.version)
    folder = f"results/train/{shorter}" if shorter else ""
    keys = "data_residency", "plan", "multiplier", "monitor", "recompute"
    given = options(*keys)(wildcards)
    return f"{given} --option goes_on_from={folder}"


@functools.cache
def goes_on_from(version):
    """The version of the finished training that this one goes on from, None if there is none or the user forces the stage."""
    if version in remade():
        return None
    return shorter_trainings.find(BY_VERSION[version].spec, version)


def remake(wildcards):
    """--remake if the user forces the stage; without it a stage uses an artifact that another run has finished meanwhile."""
    return "--remake" if wildcards.version in remade() else ""


def threads_of(wildcards):
    """CPU threads of a job: the configuration's, not --cores, which limits the jobs that run at once."""
    version = getattr(wildcards, "version", None)
    return SETTINGS_OF.get(version, SETTINGS)["threads"]


def stage_threads(wildcards, threads):
    """The stage's --threads. Snakemake caps `threads` at --cores, which limits jobs here; --set-threads takes precedence."""
    wanted = threads_of(wildcards)
    return wanted if threads == min(wanted, cores() or wanted) else threads


def gpus(wildcards):
    """Number of GPUs that a job needs."""
    return int(variants.computes_on_gpu(BY_VERSION[wildcards.version].spec["params"]))


def role(wildcards):
    return BY_VERSION[wildcards.version].role


def why(wildcards):
    keyed = BY_VERSION[wildcards.version]
    if keyed.version in remade():
        return "asked for"
    if damage(keyed.version):
        return f"damaged: {damage(keyed.version)}"
    shorter = goes_on_from(keyed.version)
    going_on = f", goes on from {shorter}" if shorter else ""
    return (stages.why(keyed) or "made again") + going_on


def reached():
    """JSON list of the artifacts that `gc` keeps: "stage/version" of this configuration, its lists and presets/."""
    os.environ.pop(checks.CHECKS, None)  # presets that nobody asked to run
    chains = [chain for _, chain in CHAINS]
    file = configuration.read_file(pathlib.Path(workflow.basedir, "config.yaml"))
    for preset in sorted(pathlib.Path(workflow.basedir, "presets").glob("*.yaml")):
        try:
            overrides = configuration.read_file(preset)
            loaded = configuration.load({**file, **overrides})
            chains.append(stages.chain(configuration.resolve(loaded)))
        except UserError as error:
            say(f"presets/{preset.name} does not go with config.yaml: {error}")
    artifacts = {
        f"{keyed.stage}/{keyed.version}" for chain in chains for keyed in chain.values()
    }
    return json.dumps(sorted(artifacts))


# Lists of runs.


def asked_for_lists():
    """True if only pages of lists of runs are requested: then a failed run does not stop the others."""
    pages = {page for name in (*configuration.LISTS, "search") for page in FIXED[name]}
    return bool(COMMAND.targets) and COMMAND.targets <= pages


def trials_options(wildcards):
    """The options of this command for those that make the runs of a search by TPE: all but the pages of the search."""
    if COMMAND.forced or COMMAND.forces_all:
        sys.exit(
            f"search: {len(SEARCHED.entries) - 1} of its runs are made; make the others without -f, -F and -R"
        )
    write_configuration()
    return [option for option in sys.argv[1:] if option not in FIXED["search"]]


def after_search(wildcards):
    """What follows the copies of a search's page: by TPE the study is written too, and the best settings are printed."""
    best = r"; sed '\%The other settings%,$ d' results/best.yaml"
    if not SEARCHED.study:
        return best
    write_configuration()
    return f"&& python3 workflow/scripts/write_study.py --config-file {TRIALS} {best}"


def write_configuration():
    """Write this command's configuration for the scripts of a search by TPE."""
    if not dry_run():
        stop_unless(places.write, pathlib.Path(TRIALS), json.dumps(config))


@functools.cache
def keep_failed_runs():
    os.environ |= {"LADDER_KEEP_FAILED": "yes"}  # read by the stages
    if (cores() or 1) > 1 and config["threads"] == "all":
        say(f"threads all: one run at a time; threads=1 makes {cores()} at a time")


@functools.cache
def failed_in_a_list():
    """Versions of the active configuration whose run failed in a list; requested alone, they repeat the reason."""
    if asked_for_lists() or "LADDER_KEEP_FAILED" in os.environ:
        return set()
    found = {
        keyed.version: kept.read_if_whole(keyed.folder) for keyed in CHAIN.values()
    }
    return {
        version
        for version, manifest in found.items()
        if manifest and "failed" in manifest
    }


# Forced stages. Snakemake does not pass -R to jobs on other machines; they inherit this variable.

REMAKE = "LADDER_REMAKE"


def runs_although_there(keyed):
    return changes_what_is_there(keyed) or bool(damage(keyed.version))


def changes_what_is_there(keyed):
    """True if what depends on the artifact has to run too. A damaged one gets the bytes back that its version stands for."""
    return keyed.version in remade() | failed_in_a_list()


@functools.cache
def damage(version):
    """What is damaged in a finished artifact, in words; '' if nothing is, or if it is not there."""
    keyed = BY_VERSION[version]
    try:
        # What is copied to results/ has no reader that would check it.
        kept.verify(keyed.folder, thoroughly=keyed.stage in FIXED)
    except kept.Damaged as found:
        return f"{found.path} ({found.fault})"
    return ""


@functools.cache
def remade():
    """Versions named by -F, -f TARGET or -R RULE, and all that depend on them."""
    if REMAKE in os.environ:
        return set(os.environ[REMAKE].split())
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

    versions = {version for version in BY_VERSION if again(version)}
    os.environ |= {REMAKE: " ".join(versions)}
    return versions


# Errors.


@functools.cache
def stop_where_nothing_can_be_written():
    """Exit with one line, before any work, if results/ or logs/ cannot be written."""
    stop_unless(places.check_writable, "results", "logs")


def stop_where_it_cannot_run(keyed):
    """Exit with one line, before any work, if this machine cannot run a job."""
    params = keyed.spec["params"]
    for key, module in (
        ("backend", backends),
        ("array_library", array_libraries),
        ("variant", variants),
    ):
        if (
            key in params
            and keyed.stage not in PAGES
            and not runtime.jobs_run_elsewhere()
            and (reason := module.unavailable(params[key]))
        ):
            sys.exit(reason)


def pictures_are_there(wildcards):
    """Input function without files: exits with one line if no pictures are named or found, before a model is trained."""
    from ladder.data import pictures

    stop_unless(pictures.find, SETTINGS["predict"])
    return []


# A failed stage writes its error message to its log and to this file, which is repeated as the last lines of the output. Where
# a signal other than Ctrl-C has ended it, its shell command writes "killed", the status, and the script, which has the rule's
# name.
ERRORS = pathlib.Path("logs", f".errors.{processes.owner()}")
os.environ |= {command.ERRORS: str(ERRORS.absolute())}
atexit.register(ERRORS.unlink, missing_ok=True)
KILLED = "{} was {}; run the same command again: finished artifacts stay"
BY_SIGNAL = {
    128
    + signal.SIGTERM: "asked to end (SIGTERM), by a person, a scheduler or a time limit",
    128 + signal.SIGHUP: "ended with its terminal (SIGHUP)",
}
OTHER_SIGNAL = "killed by signal {} before it could say why, perhaps for want of memory"


def repeat_errors():
    """Print the failed stages' error messages again; called at exit, so that they are the last lines."""
    if ERRORS.exists():
        lines = map(in_words, ERRORS.read_text("utf-8").strip().splitlines())
        say("\n" + "\n".join(lines))


def in_words(line):
    """A line of ERRORS as the user reads it."""
    if not line.startswith("killed "):
        return line
    _, status, script = line.split(maxsplit=2)
    by = BY_SIGNAL.get(int(status), OTHER_SIGNAL.format(int(status) - 128))
    return KILLED.format(pathlib.Path(script).stem, by)
