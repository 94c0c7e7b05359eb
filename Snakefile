# From a dataset to results/report.html: one rule for each stage, in the order of the work.
#
#     data -> normalized -> (patches) -> train -> (evaluate)
#                                          |-> features -> (joined, shifted) -> svm, (linear, ridge, knn), map -> report
#
# A stage writes results/<stage>/<version>/. The version is a hash of its settings, sources and parents, so a rule runs exactly when
# its artifact is missing. Every function named below is defined in workflow/rules/common.smk.
#
# Results, logs and downloads are where the command runs, and so is config.yaml; without one there the workflow's own is read.
import sys

from snakemake.utils import min_version

min_version("9.13.0")  # the first with pathvars
HOME = str(workflow.current_basedir)
sys.path.insert(0, f"{HOME}/workflow/scripts")


# Where `--sdm apptainer` runs every stage: the image of `make container`, in this file (docs/cluster.md, "Containers").
container: "kernel-ladder.sif"


include: "workflow/rules/common.smk"


for target in ("report", "model", "table"):

    rule:
        name:
            target
        input:
            FIXED[target],
        localrule: True
        message:
            f"{target}: {{input}}"


for target in commands.TARGETS:

    rule:
        name:
            target
        input:
            inputs(JOBS.inputs_of, target),
        localrule: True
        message:
            f"{target}: {{input}}"


# The base of all stages, and the pages, which differ from it in nothing but their names. Each rule below inherits the base, names
# its stage and inputs, and may add options, which change no byte.
for stage, rule_name in (
    ("stage", "stage"),
    *((page, stages.STAGES[page].rule) for page in FIXED),
):

    rule:
        name:
            rule_name
        input:
            parents(),
        output:
            local("results/<stage>/{version}/manifest.json"),
        log:
            local("logs/<stage>/{version}.log"),
        pathvars:
            stage=stage,
        wildcard_constraints:
            version="|".join(JOBS.own) or "none",
        conda:
            ENVIRONMENT
        threads: threads_of
        resources:
            gpu=gpus,
        params:
            script=script,
            role=planned("role"),
            why=for_version(JOBS.why),
            job=for_version(JOBS.spec_file),
            options="",
            folder=planned("folder"),
            threads=stage_threads,
        message:
            "{params.role} {wildcards.version}: {params.why}"
        shell:
            # The trap: a signal to all processes of a command ends the script, and the shell has to tell which one it was.
            # Its own stderr is nowhere, or it would repeat the whole command when the script is killed.
            "trap : TERM; exec 3>&2 2>/dev/null; python3 {params.script:q} --job {params.job} {params.options}"
            " --output {params.folder} --threads {params.threads} --log {log:q} 2>&3 3>&- || {{ status=$?; [ $status -le 128 ] ||"
            " [ $status = 130 ] || echo $status {params.script:q} > {log:q}.killed; exit $status; }}"


use rule stage as prepare_data with:
    pathvars:
        stage="data",
    params:
        options=options("urls", "folder", "labels", "leave_out", "downloads"),


use rule stage as normalize_images with:
    input:
        parents("data"),
    pathvars:
        stage="normalized",


# The encoder: drawn at random or read from a file; fitted to patches if `training` requires it; trained.


use rule stage as initialize_weights with:
    pathvars:
        stage="initial",
    params:
        options=options(file="initial_weights"),


# What takes long, and what other stages wait for, has a priority: what is short fills all cores to the end.
use rule stage as fit_patches with:
    input:
        parents("normalized", "initial"),
    pathvars:
        stage="patches",
    priority: 2
    params:
        options=options("data_residency", "plan"),


use rule stage as train_network with:
    input:
        parents("normalized", "initial", "patches", "data"),
    pathvars:
        stage="train",
    priority: 1
    params:
        options=training_options,


# Evaluation of a network that classifies.
use rule stage as evaluate_network with:
    input:
        parents("normalized", "data", "weights"),
    pathvars:
        stage="evaluate",
    params:
        options=options("data_residency", "plan", multiplier="test_multiplier"),


# Features: of the network, and of the controls: with the initial weights, and without weights (the pixels themselves).


use rule stage as extract_features with:
    input:
        parents("normalized", "weights"),
    pathvars:
        stage="features",
    priority: 2
    params:
        options=options("data_residency", "plan", multiplier="test_multiplier"),


use rule stage as join_features with:
    input:
        parents(),
    pathvars:
        stage="joined",


use rule stage as shift_features with:
    input:
        parents("normalized", "weights", "features"),
    pathvars:
        stage="shifted",
    params:
        options=options("data_residency", "plan", multiplier="test_multiplier"),


# Of pictures without labels: features of changed copies, and what all of them say.
use rule shift_features as change_pictures with:
    input:
        parents("normalized", "weights", "features", "data"),
    pathvars:
        stage="changed",


use rule stage as find_neighbours with:
    input:
        parents(),
    pathvars:
        stage="neighbours",


use rule stage as map_features with:
    input:
        parents("features"),
    pathvars:
        stage="map",
    priority: 1


use rule stage as fit_svm with:
    input:
        parents(),
    pathvars:
        stage="svm",


use rule fit_svm as fit_linear with:
    pathvars:
        stage="linear",


use rule fit_svm as fit_ridge with:
    pathvars:
        stage="ridge",


use rule fit_svm as classify_knn with:
    pathvars:
        stage="knn",


use rule fit_svm as measure_labels with:
    pathvars:
        stage="labels",


# The copies of pages in results/, and the pages on the current content of results/.


include: "workflow/rules/pages.smk"


or_exit(check_targets)


onsuccess:
    finish()
    atexit.register(say_pages)


onerror:
    finish()
    atexit.register(commands.repeat_errors)
