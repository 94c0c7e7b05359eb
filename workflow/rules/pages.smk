# The fixed names in results/, which are copies of artifact files with the links of pages led from there, and the commands that read all of results/.
# A page is an `update`: a command that fails leaves the previous one unchanged.


localrules:  # not inherited by derived rules
    publish_report,
    publish_compare,
    publish_multipliers,
    publish_search,
    publish_network,
    publish_gradients,
    publish_parity,


rule publish:
    input:
        [],
    output:
        "results/.published",
    log:
        "logs/publish.log",
    conda:
        ENVIRONMENT
    params:
        folder="",
        then="",
    message:
        "{output}: copied from {params.folder}"
    shell:
        "{{ python3 workflow/scripts/publish.py {params.folder:q} {output} {params.then}; }} | tee {log:q}"


use rule publish as publish_report with:
    input:
        made("report"),
        outdated("report"),
    output:
        update(FIXED["report"]),
    log:
        "logs/publish_report.log",
    params:
        folder=CHAIN["report"].folder,


use rule publish as publish_compare with:
    input:
        made("compare"),
        outdated("compare"),
    output:
        update(FIXED["compare"]),
    log:
        "logs/publish_compare.log",
    params:
        folder=CHAIN["compare"].folder,


use rule publish as publish_multipliers with:
    input:
        made("multipliers"),
        outdated("multipliers"),
    output:
        update(FIXED["multipliers"]),
    log:
        "logs/publish_multipliers.log",
    params:
        folder=CHAIN["multipliers"].folder,


if SEARCHED.next:

    # By TPE: a run is drawn when those before it have results, so each is made by a command of its own.
    rule publish_search:
        input:
            this_command,
        output:
            update(FIXED["search"]),
        log:
            "logs/search.log",
        localrule: True
        conda:
            ENVIRONMENT
        params:
            first=len(SEARCHED.entries),
            options=trials_options,
            config=TRIALS,
        message:
            "search: runs from {params.first} on, each drawn from the results of those before it, then {output[0]}"
        shell:
            "python3 workflow/scripts/run_trials.py --config-file {params.config} -- {params.options:q}"

else:

    use rule publish as publish_search with:
        input:
            made("search"),
            outdated("search"),
        output:
            update(FIXED["search"]),
        log:
            "logs/publish_search.log",
        params:
            folder=CHAIN["search"].folder,
            then=after_search,


use rule publish as publish_network with:
    input:
        made("network"),
        outdated("network"),
    output:
        update(FIXED["network"]),
    log:
        "logs/publish_network.log",
    params:
        folder=CHAIN["network"].folder,


use rule publish as publish_gradients with:
    input:
        made("gradients"),
        outdated("gradients"),
    output:
        update(FIXED["gradients"]),
    log:
        "logs/publish_gradients.log",
    params:
        folder=CHAIN["gradients"].folder,


use rule publish as publish_parity with:
    input:
        made("parity"),
        outdated("parity"),
    output:
        update(FIXED["parity"]),
    log:
        "logs/publish_parity.log",
    params:
        folder=CHAIN["parity"].folder,


# Pages on the current content of results/: made on every request.


rule diff:
    input:
        after_runs,
    output:
        update("results/diff.html"),
    log:
        "logs/diff.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        versions=SETTINGS["diff"],
    message:
        "{output}: {params.versions}"
    shell:
        "python3 workflow/scripts/make_diff.py --output {output} -- {params.versions:q} | tee {log:q}"


rule history:
    input:
        after_runs,
    output:
        update("results/history.html"),
    log:
        "logs/history.log",
    localrule: True
    conda:
        ENVIRONMENT
    message:
        "{output}: every run in results/"
    shell:
        "python3 workflow/scripts/make_history.py --output {output} | tee {log:q}"


# Made at the end of every command that makes a page, too.
rule index:
    input:
        after_runs,
    output:
        update("results/index.html"),
    log:
        "logs/index.log",
    localrule: True
    conda:
        ENVIRONMENT
    message:
        "{output}: the latest run and all pages"
    shell:
        "python3 workflow/scripts/make_index.py | tee {log:q}"


rule predictions:
    input:
        this_command,
        pictures_are_there,
        made(*stages.prediction_roles(CHAIN)),
    output:
        update("results/predictions.html"),
        update("results/predictions.json"),
        update("results/predictions.csv"),
    log:
        "logs/predictions.log",
    localrule: True
    conda:
        ENVIRONMENT
    threads: threads_of
    params:
        pictures=SETTINGS["predict"],
        inputs=input_options(
            {role: CHAIN[role] for role in stages.prediction_roles(CHAIN)}
        ),
        threads=stage_threads,
        residency=SETTINGS["data_residency"],
        multiplier=SETTINGS["test_multiplier"],
    message:
        "predictions: {params.pictures}"
    shell:
        "python3 workflow/scripts/make_predictions.py"
        " {params.inputs}"
        " --data-residency {params.residency}"
        " --multiplier {params.multiplier:q}"
        " --threads {params.threads}"
        " --log {log:q}"
        " -- {params.pictures:q}"


# Artifacts of another machine or results folder.


rule pull:
    log:
        "logs/pull.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        source=SETTINGS["from"],
    message:
        "pull: finished artifacts of {params.source}"
    shell:
        "python3 workflow/scripts/pull.py --from {params.source:q} | tee {log:q}"


rule gc:
    log:
        "logs/gc.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        reached=lambda wildcards: reached(),
        keep=SETTINGS["keep"],
        confirm="--confirm" if SETTINGS["confirm"] else "",
    message:
        "gc: artifacts that neither this configuration, its lists, presets/ nor keep reach"
    shell:
        "printf %s {params.reached:q} > logs/gc.json && python3 workflow/scripts/collect_garbage.py"
        " --reached logs/gc.json {params.confirm} -- {params.keep:q} | tee {log:q}"
