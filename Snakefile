# From a dataset to results/report.html: one rule for each stage, in the order of the work.
#
#     data -> normalized -> (patches) -> train -> (evaluate)
#                                          |-> features -> (joined, shifted) -> svm, (linear, ridge, knn), map -> report
#
# A stage writes results/<stage>/<version>/. The version is a hash of its settings, sources and parents, so a rule runs exactly when
# its artifact is missing. `{version}` and every function named below are defined in workflow/rules/common.smk.
import pathlib
import sys

from snakemake.utils import min_version

min_version("9.13.0")  # the first with pathvars

# What Snakemake would end with a traceback.
try:
    pathlib.Path("config.yaml").read_text("utf-8")
except (OSError, UnicodeDecodeError) as error:
    sys.exit(f"config.yaml cannot be read as UTF-8 text: {error}")


configfile: "config.yaml"


include: "workflow/rules/common.smk"


wildcard_constraints:
    version=VERSIONS,


# The trap: a signal to all processes of a command ends the script, and the shell has to tell which one it was.
shell.prefix("set -euo pipefail; trap : TERM; ")


# Targets, by name; the first is the default.


rule report:
    input:
        FIXED["report"],
    localrule: True
    message:
        "report: {input}"


for target in ("data", "normalized", "patches", "train", "evaluate", "features", "svm"):

    rule:
        name:
            target
        input:
            made(target),
        localrule: True
        message:
            f"{target}: {{input}}"


# The base of all stages. Each rule below inherits it, names its stage and inputs, and may add options, which change no byte.


rule stage:
    input:
        asked_for_again,
    output:
        "results/<stage>/{version}/manifest.json",
    log:
        "logs/<stage>/{version}.log",
    pathvars:
        stage="stage",
    conda:
        ENVIRONMENT
    threads: threads_of
    resources:
        gpu=gpus,
    params:
        script=script,
        role=role,
        why=why,
        job=job,
        options="",
        remake=remake,
        folder=folder,
        threads=stage_threads,
    message:
        "{params.role} {wildcards.version}: {params.why}"
    shell:
        "python3 {params.script} --job {params.job} {params.options} {params.remake}"
        " --output {params.folder} --threads {params.threads} --log {log:q} || {{ status=$?; [ $status -le 128 ] ||"
        ' [ $status = 130 ] || echo killed $status {params.script} >> "$LADDER_ERRORS"; exit $status; }}'


# Images.


use rule stage as prepare_data with:
    pathvars:
        stage="data",
    params:
        options=options("urls", "folder", downloads="results/downloads"),


use rule stage as normalize_images with:
    input:
        data=parent("data"),
    pathvars:
        stage="normalized",


# The encoder: drawn at random or read from a file; fitted to patches if `training` requires it; trained.


use rule stage as initialize_weights with:
    pathvars:
        stage="initial",
    params:
        options=options(file="initial_weights"),


use rule stage as fit_patches with:
    input:
        normalized=parent("normalized"),
        initial=parent("initial"),
    pathvars:
        stage="patches",
    params:
        options=options("data_residency", "plan"),


use rule stage as train_network with:
    input:
        normalized=parent("normalized"),
        initial=parent("initial"),
        patches=parent("patches"),
        data=parent("data"),
    pathvars:
        stage="train",
    params:
        options=training_options,


# Evaluation of a network that classifies.
use rule stage as evaluate_network with:
    input:
        normalized=parent("normalized"),
        data=parent("data"),
        weights=parent("weights"),
    pathvars:
        stage="evaluate",
    params:
        options=options("data_residency", "plan", multiplier="test_multiplier"),


# Features: of the network, and of the controls: with the initial weights, and without weights (the pixels themselves).


use rule stage as extract_features with:
    input:
        normalized=parent("normalized"),
        weights=parent("weights"),
    pathvars:
        stage="features",
    params:
        options=options("data_residency", "plan", multiplier="test_multiplier"),


use rule stage as join_features with:
    input:
        parents,
    pathvars:
        stage="joined",


use rule stage as shift_features with:
    input:
        normalized=parent("normalized"),
        weights=parent("weights"),
        features=parent("features"),
    pathvars:
        stage="shifted",
    params:
        options=options("data_residency", "plan", multiplier="test_multiplier"),


use rule stage as map_features with:
    input:
        features=parent("features"),
    pathvars:
        stage="map",


# Classifiers of the features.


use rule stage as fit_svm with:
    input:
        parents,
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


# Pages, each on one run, a list of runs, a network, or the rungs that this machine can run.


use rule stage as make_report with:
    input:
        parents,
    pathvars:
        stage="report",


use rule make_report as compare_runs with:
    pathvars:
        stage="compare",


use rule make_report as compare_multipliers with:
    pathvars:
        stage="multipliers",


use rule make_report as search_runs with:
    pathvars:
        stage="search",


use rule stage as draw_network with:
    pathvars:
        stage="network",


use rule stage as check_gradients with:
    pathvars:
        stage="gradients",


use rule stage as check_parity with:
    pathvars:
        stage="parity",


# Their copies in results/, and the pages on the current content of results/.


include: "workflow/rules/pages.smk"


onerror:
    atexit.register(repeat_errors)
