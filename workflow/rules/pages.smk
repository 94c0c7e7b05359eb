# The fixed names in results/, which are copies of artifact files with the links of pages led from there, and the commands that
# read all of results/. A page is an `update`: a command that fails leaves the previous one unchanged.


for role in FIXED:
    # By TPE: a run is drawn when those before it have results, so each is made by a command of its own.
    draws = role == "search" and bool(SEARCHED.next)

    rule:
        name:
            f"publish_{role}"
        input:
            inputs(JOBS.always) if draws else inputs(JOBS.copied, role),
        output:
            [kept(path) for path in FIXED[role]],
        log:
            f"logs/publish_{role}.log",
        localrule: True
        conda:
            ENVIRONMENT
        params:
            source=(
                f"runs from {len(SEARCHED.entries)} on, each drawn from the results of those before it"
                if draws
                else f"copied from {CHAIN[role].folder}"
            ),
            command=draw_runs if draws else publish(role),
        message:
            "{output}: {params.source}"
        shell:
            "{params.command} | tee {log:q}"


# The page of all runs: made on every request, and at the end of every command that has changed results/, too.


rule runs:
    input:
        inputs(JOBS.after_runs),
        inputs(JOBS.listed),
        FIXED["search"] if SEARCHED.entries or SEARCHED.next else [],
    output:
        [kept(local(f"results/{page}")) for page in stages.RUNS],
    log:
        "logs/runs.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        command=lambda wildcards: with_configuration("make_runs", "logs/runs.json"),
    message:
        "results/runs.html: every run in results/ and of the list"
    shell:
        "{params.command} | tee {log:q}"


rule predictions:
    input:
        inputs(JOBS.predicted),
    output:
        [kept(local(f"results/predictions.{end}")) for end in ("html", "json", "csv")],
    log:
        "logs/predictions.log",
    localrule: True
    conda:
        ENVIRONMENT
    threads: threads_of
    params:
        script=tool("make_predictions"),
        pictures=SETTINGS.predict,
        inputs=JOBS.prediction_options(),
        threads=stage_threads,
        residency=SETTINGS.data_residency,
        multiplier=SETTINGS.test_multiplier,
    message:
        "predictions: {params.pictures}"
    shell:
        "python3 {params.script:q} {params.inputs} --data-residency {params.residency}"
        " --multiplier {params.multiplier:q} --threads {params.threads} --log {log:q} -- {params.pictures:q}"


# Commands: the settings of the active run as YAML, those that are not the default or all; its training step as tables;
# and the removal of what nothing reaches.
for target, every in (("settings", False), ("all_settings", True)):

    rule:
        name:
            target
        log:
            f"logs/{target}.log",
        localrule: True
        conda:
            ENVIRONMENT
        params:
            text=plans.settings_text(PLAN, every),
        message:
            f"{target}: of the active run"
        shell:
            "printf '%s\\n' {params.text:q} | tee {log:q}"


rule explain:
    log:
        "logs/explain.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        command=lambda wildcards: with_configuration(
            "explain_step", "logs/explain.json"
        ),
    message:
        "explain: the training step of the active run"
    shell:
        "{params.command} | tee {log:q}"


rule gc:
    log:
        "logs/gc.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        script=tool("collect_garbage"),
        reached=reached,
        keep=SETTINGS.keep,
        confirm="--confirm" if SETTINGS.confirm else "",
    message:
        "gc: artifacts that neither this configuration, its lists, presets/ nor keep reach"
    shell:
        "printf %s {params.reached:q} > logs/gc.json && python3 {params.script:q}"
        " --reached logs/gc.json {params.confirm} -- {params.keep:q} | tee {log:q}"
