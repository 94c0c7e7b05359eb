# The functions that rules use. What a command may make is computed by workflow/scripts/ladder/workflow/plans.py, and the inputs
# and parameters of its jobs by jobs.py.

import atexit
import json
import logging
import os
import pathlib
import shlex
import sys

import ladder

from ladder import caller, progress
from ladder.stage import command
from ladder.errors import UserError
from ladder.machine import readers
from ladder.rungs import catalog
from ladder.workflow import (
    commands,
    config as configuration,
    copies,
    jobs,
    notices,
    places,
    plans,
    search,
    stages,
    terminal,
)

FIXED = stages.COPIES
# Where they are. Another workflow may have this one as a module with a prefix: its pages have it, and no artifact or log, because
# versions are the same for all modules.
PLACED = {
    role: [workflow.modifier.path_modifier.replace_prefix(path) for path in pages]
    for role, pages in FIXED.items()
}
# Snakemake formats the names of its own files with wildcards: a brace in the project's path is doubled.
ENVIRONMENT = f"{HOME}/envs/cpu.yaml".replace("{", "{{").replace("}", "}}")
SCRIPTS = f"{HOME}/workflow/scripts"
if os.path.samefile(HOME, "."):
    SCRIPTS = "workflow/scripts"


def say(*lines):
    for line in lines:
        print(line, file=sys.stderr, flush=True)


def or_exit(function, *arguments, **keywords):
    """The function's result; exits with one line if it raises a UserError."""
    try:
        return function(*arguments, **keywords)
    except UserError as error:
        sys.exit(str(error))


# This command, and what it may make.


logging.raiseExceptions = False  # no traceback for each line that a full disk refuses
readers.watch()
command.interrupt_once()
if workflow.storage_settings.default_storage_provider:
    sys.exit(
        "--default-storage-provider: artifacts and pages are files of this machine; leave it out, and copy results/ afterwards"
    )
COMMAND = or_exit(commands.begin, lambda: workflow.cores)
if ladder.RELEASED:
    say(ladder.RELEASED)
for file in COMMAND.options.configfile:
    # Of a key that is there twice Snakemake takes the last.
    or_exit(configuration.read_file, file)
CONFIG = or_exit(plans.base, config, here=HOME == str(workflow.basedir))
PLAN = or_exit(plans.load, CONFIG)
JOBS = jobs.Jobs(PLAN, COMMAND, PLACED)
CHAIN, SETTINGS, SEARCHED = PLAN.chain, PLAN.run.settings, PLAN.search
say(*plans.notes(PLAN))
if not caller.fact("elsewhere"):
    say(*plans.other_libraries(PLAN))
if (
    caller.fact("keep_failed")
    and (COMMAND.cores or 1) > 1
    and PLAN.run.given.threads == "all"
):
    say(f"threads all: one run at a time; threads=1 makes {COMMAND.cores} at a time")
if not COMMAND.dry:
    JOBS.put_in_order(COMMAND.now.stat().st_mtime_ns)
    notices.take_off(CHAIN)


# Inputs.


def flagged(inputs):
    return [local(ancient(path) if is_ancient else path) for path, is_ancient in inputs]


def parents(*names):
    """Input function of a stage: the manifests of these parents that it has, of all without names."""
    return lambda wildcards: flagged(or_exit(JOBS.inputs, wildcards.version, *names))


def inputs(function, *arguments):
    return lambda wildcards: flagged(or_exit(function, *arguments))


def kept(path):
    """Output of a rule that writes a file in results/; `snakemake --report` shows the pages."""
    is_page = path.endswith(".html")
    return update(report(path, category="Pages") if is_page else path)


# Parameters. Most are functions of `output`, of whose values Snakemake keeps no record: another number
# of threads, or another reason, makes nothing again.


def planned(attribute):
    """Params function: an attribute of the artifact, such as its folder."""
    return lambda wildcards: getattr(PLAN.artifacts[wildcards.version], attribute)


def for_version(method, *arguments, **keywords):
    """Params function: what a method of JOBS says of the artifact."""
    return lambda wildcards, output: or_exit(
        method, wildcards.version, *arguments, **keywords
    )


def options(*keys, **others):
    return for_version(JOBS.options, *keys, **others)


def script(wildcards):
    return f"{SCRIPTS}/{stages.STAGES[PLAN.artifacts[wildcards.version].stage].rule}.py"


def tool(name):
    return lambda wildcards: f"{SCRIPTS}/tools/{name}.py"


def training_options(wildcards, output):
    """The options of a training: also the finished shorter one that it goes on from, and its page."""
    keys = "data_residency", "plan", "multiplier", "monitor"
    folder = JOBS.goes_on_from(wildcards.version)
    page = f"logs/train/{wildcards.version}.html"
    return f"{options(*keys)(wildcards, output)} --option goes_on_from={folder} --option page={page}"


def threads_of(wildcards):
    return JOBS.threads(getattr(wildcards, "version", None))


def stage_threads(wildcards, threads):
    """The stage's --threads. Snakemake caps `threads` at --cores, which limits jobs here; --set-threads takes precedence."""
    wanted = threads_of(wildcards)
    return wanted if threads == min(wanted, COMMAND.cores or wanted) else threads


def gpus(wildcards):
    return int(catalog.computes_on_gpu(planned("spec")(wildcards)["params"]))


def draw_runs(wildcards):
    """The command of a search by TPE, with this command's options, but for the pages of the search."""
    if COMMAND.forced or COMMAND.options.forceall:
        sys.exit(
            f"search: {len(SEARCHED.entries) - 1} of its runs are made; make the others without -f, -F and -R"
        )
    given = [word for word in COMMAND.words if word not in stages.LISTED]
    return f"{with_configuration('run_trials')} -- {shlex.join(given)}"


def publish(role):
    """Params function: the command that copies the files of a role's artifact to results/."""
    folder, pages = CHAIN[role].folder, shlex.join(PLACED[role])
    copy = f"python3 {shlex.quote(SCRIPTS)}/tools/publish.py {folder} {pages}"
    if role != "search":
        return lambda wildcards: copy
    # The best settings are printed, and by TPE the study is written too.
    study = lambda: f"&& {with_configuration('write_study')}" if SEARCHED.study else ""
    best = r"sed '\%The other settings%,$ d' results/best.yaml"
    return lambda wildcards: f"{{ {copy} {study()}; {best}; }}"


def with_configuration(script, file=search.FILE):
    """The command of a script that plans by itself, for which the configuration is written into a file."""
    if not COMMAND.dry:
        or_exit(places.write, file, json.dumps(CONFIG))
    return f"python3 {shlex.quote(SCRIPTS)}/tools/{script}.py --config-file {file}"


def reached(wildcards):
    """JSON list of the artifacts that `gc` keeps."""
    caller.tell(checks=False)  # of presets that nobody asked to run
    artifacts, faults = plans.reached(PLAN)
    say(*faults)
    return json.dumps(artifacts)


# After a command: a notice on each page of another configuration, and results/runs.html where a run is newer.


def check_targets():
    """Raise UserError, with the nearest names, if the command names a target that no rule makes, or a profile that is nowhere."""
    if not COMMAND.is_main or HOME != str(workflow.basedir):
        return
    commands.check_profile(COMMAND.options.workflow_profile, HOME)
    known = [rule.name for rule in workflow.rules]
    commands.check_targets(
        [
            target
            for target in COMMAND.options.targets
            if target not in known
            and not any(rule.is_producer(target) for rule in workflow.rules)
        ],
        known,
    )


def finish():
    notices.update_all(CHAIN, COMMAND.has_settings)
    if "gc" in COMMAND.words or copies.is_runs_page_older("results"):
        from tools import make_runs  # here, because most commands do without

        progress.start_logging()
        try:
            make_runs.write(plans.load(CONFIG), pathlib.Path("results"))
        except UserError as error:
            say(error)


def say_pages():
    """The verdict and the address of each page, as the last lines; run_workflow.py prints its own."""
    if COMMAND.is_main and not COMMAND.dry and not caller.fact("quiet"):
        say(*terminal.page_lines(COMMAND.words))


@atexit.register
def finish_where_nothing_ran():  # and Snakemake calls neither onsuccess nor onerror
    if JOBS.idle and COMMAND.is_main and not COMMAND.dry:
        finish()
