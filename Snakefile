# From a dataset to results/report.html: one rule for each stage, in the order of the work.
#
# Every artifact is a folder results/<stage>/<version>/, where version is a hash of all that may change its bytes, so a rule
# runs exactly when its artifact is not there. Targets: data, normalized, train, evaluate or features and svm, report (the
# default); results/compare.html: the runs of the configuration's compare list; results/multipliers.html: those of its list
# of multipliers; results/search.html: a search for good settings; results/diff.html: two versions; history: all runs; gc: what
# nothing reaches; results/network.html: a drawing of the network; results/parity.html: every rung of the ladder that this
# machine can run, checked and timed; and results/predictions.html: pictures of your own, named by the model.


configfile: "config.yaml"


include: "workflow/versions.smk"


wildcard_constraints:
    version=VERSIONS,


localrules:
    report,
    data,
    normalized,
    fit,
    train,
    evaluate,
    features,
    svm,
    diff,
    history,
    gc,
    predictions,
    publish_report,
    publish_compare,
    publish_multipliers,
    publish_search,
    publish_network,
    publish_parity,


rule report:
    input:
        FIXED["report"],
    message:
        "report: {input}"


rule data:
    input:
        made("data"),
    message:
        "data: {input}"


rule normalized:
    input:
        made("normalized"),
    message:
        "normalized: {input}"


rule fit:
    input:
        made("fit"),
    message:
        "fit: {input}"


rule train:
    input:
        made("train"),
    message:
        "train: {input}"


rule evaluate:
    input:
        made("evaluate"),
    message:
        "evaluate: {input}"


rule features:
    input:
        made("features"),
    message:
        "features: {input}"


rule svm:
    input:
        made("svm"),
    message:
        "svm: {input}"


rule prepare_data:
    input:
        sources=sources("data"),
    output:
        "results/data/{version}/manifest.json",
    log:
        "logs/data/{version}.log",
    conda:
        "envs/cpu.yaml"
    threads: threads_of
    params:
        python=PYTHON,
        spec=spec,
        why=why,
        threads=stage_threads,
        remake=remake,
        urls=urls,
    message:
        "data {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/prepare_data.py"
        " --spec {params.spec:q}"
        " --output results/data/{wildcards.version}"
        " --option urls={params.urls:q}"
        " --option downloads=results/downloads"
        " --threads {params.threads}"
        " --log {log:q}"
        " {params.remake}"


rule normalize_images:
    input:
        data=parent("data"),
        sources=sources("normalized"),
    output:
        "results/normalized/{version}/manifest.json",
    log:
        "logs/normalized/{version}.log",
    conda:
        "envs/cpu.yaml"
    threads: threads_of
    params:
        python=PYTHON,
        spec=spec,
        why=why,
        inputs=inputs,
        threads=stage_threads,
        remake=remake,
    message:
        "normalized {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/normalize.py"
        " --spec {params.spec:q}"
        " {params.inputs}"
        " --output results/normalized/{wildcards.version}"
        " --threads {params.threads}"
        " --log {log:q}"
        " {params.remake}"


# At random, or from a file.
rule initialize_weights:
    input:
        sources=sources("initial"),
    output:
        "results/initial/{version}/manifest.json",
    log:
        "logs/initial/{version}.log",
    conda:
        "envs/cpu.yaml"
    threads: threads_of
    params:
        python=PYTHON,
        spec=spec,
        why=why,
        file=setting("initial_weights"),
        threads=stage_threads,
        remake=remake,
    message:
        "initial {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/initialize.py"
        " --spec {params.spec:q}"
        " --output results/initial/{wildcards.version}"
        " --option file={params.file:q}"
        " --threads {params.threads}"
        " --log {log:q}"
        " {params.remake}"


# Of layers that are fitted to patches.
rule fit_patches:
    input:
        normalized=parent("normalized"),
        initial=parent("initial"),
        sources=sources("fit"),
    output:
        "results/fit/{version}/manifest.json",
    log:
        "logs/fit/{version}.log",
    conda:
        "envs/cpu.yaml"
    threads: threads_of
    resources:
        gpu=gpus,
    params:
        python=PYTHON,
        spec=spec,
        why=why,
        inputs=inputs,
        threads=stage_threads,
        residency=setting("data_residency"),
        remake=remake,
    message:
        "fit {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/fit_patches.py"
        " --spec {params.spec:q}"
        " {params.inputs}"
        " --output results/fit/{wildcards.version}"
        " --option data_residency={params.residency}"
        " --threads {params.threads}"
        " --log {log:q}"
        " {params.remake}"


rule train_network:
    input:
        normalized=parent("normalized"),
        initial=parent("initial"),
        fit=parent("fit"),
        data=parent("data"),
        sources=sources("train"),
    output:
        "results/train/{version}/manifest.json",
    log:
        "logs/train/{version}.log",
    conda:
        "envs/cpu.yaml"
    threads: threads_of
    resources:
        gpu=gpus,
    params:
        python=PYTHON,
        spec=spec,
        why=why,
        inputs=inputs,
        threads=stage_threads,
        residency=setting("data_residency"),
        multiplier=setting("multiplier"),
        monitor=setting("monitor"),
        remake=remake,
    message:
        "train {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/train.py"
        " --spec {params.spec:q}"
        " {params.inputs}"
        " --output results/train/{wildcards.version}"
        " --option data_residency={params.residency}"
        " --option multiplier={params.multiplier:q}"
        " --option monitor={params.monitor}"
        " --threads {params.threads}"
        " --log {log:q}"
        " {params.remake}"


# Of a network that classifies.
rule evaluate_network:
    input:
        normalized=parent("normalized"),
        data=parent("data"),
        weights=parent("weights"),
        sources=sources("evaluate"),
    output:
        "results/evaluate/{version}/manifest.json",
    log:
        "logs/evaluate/{version}.log",
    conda:
        "envs/cpu.yaml"
    threads: threads_of
    resources:
        gpu=gpus,
    params:
        python=PYTHON,
        spec=spec,
        why=why,
        inputs=inputs,
        threads=stage_threads,
        residency=setting("data_residency"),
        multiplier=setting("test_multiplier"),
        remake=remake,
    message:
        "evaluate {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/evaluate.py"
        " --spec {params.spec:q}"
        " {params.inputs}"
        " --output results/evaluate/{wildcards.version}"
        " --option data_residency={params.residency}"
        " --option multiplier={params.multiplier:q}"
        " --threads {params.threads}"
        " --log {log:q}"
        " {params.remake}"


# Also for the controls: with the initial weights, and without weights (the pixels themselves).
rule extract_features:
    input:
        normalized=parent("normalized"),
        weights=parent("weights"),
        sources=sources("features"),
    output:
        "results/features/{version}/manifest.json",
    log:
        "logs/features/{version}.log",
    conda:
        "envs/cpu.yaml"
    threads: threads_of
    resources:
        gpu=gpus,
    params:
        python=PYTHON,
        role=role,
        spec=spec,
        why=why,
        inputs=inputs,
        threads=stage_threads,
        residency=setting("data_residency"),
        multiplier=setting("test_multiplier"),
        remake=remake,
    message:
        "{params.role} {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/extract_features.py"
        " --spec {params.spec:q}"
        " {params.inputs}"
        " --output results/features/{wildcards.version}"
        " --option data_residency={params.residency}"
        " --option multiplier={params.multiplier:q}"
        " --threads {params.threads}"
        " --log {log:q}"
        " {params.remake}"


rule join_features:
    input:
        parents,
        sources=sources("joined"),
    output:
        "results/joined/{version}/manifest.json",
    log:
        "logs/joined/{version}.log",
    conda:
        "envs/cpu.yaml"
    params:
        python=PYTHON,
        role=role,
        spec=spec,
        why=why,
        inputs=inputs,
        remake=remake,
    message:
        "{params.role} {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/join_features.py"
        " --spec {params.spec:q}"
        " {params.inputs}"
        " --output results/joined/{wildcards.version}"
        " --log {log:q}"
        " {params.remake}"


rule fit_svm:
    input:
        features=parent("features"),
        data=parent("data"),
        sources=sources("svm"),
    output:
        "results/svm/{version}/manifest.json",
    log:
        "logs/svm/{version}.log",
    conda:
        "envs/cpu.yaml"
    threads: threads_of
    resources:
        gpu=gpus,
    params:
        python=PYTHON,
        role=role,
        spec=spec,
        why=why,
        inputs=inputs,
        threads=stage_threads,
        remake=remake,
    message:
        "{params.role} {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/fit_svm.py"
        " --spec {params.spec:q}"
        " {params.inputs}"
        " --output results/svm/{wildcards.version}"
        " --threads {params.threads}"
        " --log {log:q}"
        " {params.remake}"


rule fit_linear:
    input:
        features=parent("features"),
        data=parent("data"),
        sources=sources("linear"),
    output:
        "results/linear/{version}/manifest.json",
    log:
        "logs/linear/{version}.log",
    conda:
        "envs/cpu.yaml"
    threads: threads_of
    params:
        python=PYTHON,
        role=role,
        spec=spec,
        why=why,
        inputs=inputs,
        threads=stage_threads,
        remake=remake,
    message:
        "{params.role} {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/fit_linear.py"
        " --spec {params.spec:q}"
        " {params.inputs}"
        " --output results/linear/{wildcards.version}"
        " --threads {params.threads}"
        " --log {log:q}"
        " {params.remake}"


rule fit_ridge:
    input:
        features=parent("features"),
        data=parent("data"),
        sources=sources("ridge"),
    output:
        "results/ridge/{version}/manifest.json",
    log:
        "logs/ridge/{version}.log",
    conda:
        "envs/cpu.yaml"
    threads: threads_of
    params:
        python=PYTHON,
        role=role,
        spec=spec,
        why=why,
        inputs=inputs,
        threads=stage_threads,
        remake=remake,
    message:
        "{params.role} {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/fit_ridge.py"
        " --spec {params.spec:q}"
        " {params.inputs}"
        " --output results/ridge/{wildcards.version}"
        " --threads {params.threads}"
        " --log {log:q}"
        " {params.remake}"


rule classify_knn:
    input:
        features=parent("features"),
        data=parent("data"),
        sources=sources("knn"),
    output:
        "results/knn/{version}/manifest.json",
    log:
        "logs/knn/{version}.log",
    conda:
        "envs/cpu.yaml"
    threads: threads_of
    params:
        python=PYTHON,
        role=role,
        spec=spec,
        why=why,
        inputs=inputs,
        threads=stage_threads,
        remake=remake,
    message:
        "{params.role} {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/classify_knn.py"
        " --spec {params.spec:q}"
        " {params.inputs}"
        " --output results/knn/{wildcards.version}"
        " --threads {params.threads}"
        " --log {log:q}"
        " {params.remake}"


rule map_features:
    input:
        features=parent("features"),
        sources=sources("map"),
    output:
        "results/map/{version}/manifest.json",
    log:
        "logs/map/{version}.log",
    conda:
        "envs/cpu.yaml"
    threads: threads_of
    params:
        python=PYTHON,
        role=role,
        spec=spec,
        why=why,
        inputs=inputs,
        threads=stage_threads,
        remake=remake,
    message:
        "{params.role} {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/make_feature_map.py"
        " --spec {params.spec:q}"
        " {params.inputs}"
        " --output results/map/{wildcards.version}"
        " --threads {params.threads}"
        " --log {log:q}"
        " {params.remake}"


rule make_report:
    input:
        parents,
        sources=sources("report"),
    output:
        "results/report/{version}/manifest.json",
    log:
        "logs/report/{version}.log",
    conda:
        "envs/cpu.yaml"
    threads: threads_of
    params:
        python=PYTHON,
        spec=spec,
        why=why,
        inputs=inputs,
        threads=stage_threads,
        remake=remake,
    message:
        "report {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/make_report.py"
        " --spec {params.spec:q}"
        " {params.inputs}"
        " --output results/report/{wildcards.version}"
        " --threads {params.threads}"
        " --log {log:q}"
        " {params.remake}"


rule publish_report:
    input:
        made("report"),
    output:
        FIXED["report"],
    log:
        "logs/publish_report.log",
    conda:
        "envs/cpu.yaml"
    params:
        folder=CHAIN["report"].folder,
    message:
        "{output}: copied from {params.folder}"
    shell:
        "for name in report.html summary.json; do"
        " cp {params.folder:q}/$name results/.$name.$$ && mv results/.$name.$$ results/$name || exit 1;"
        ' done 2>> "$LADDER_ERRORS"'


rule compare_runs:
    input:
        parents,
        sources=sources("compare"),
    output:
        "results/compare/{version}/manifest.json",
    log:
        "logs/compare/{version}.log",
    conda:
        "envs/cpu.yaml"
    params:
        python=PYTHON,
        spec=spec,
        why=why,
        inputs=inputs,
        remake=remake,
    message:
        "compare {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/make_compare.py"
        " --spec {params.spec:q}"
        " {params.inputs}"
        " --output results/compare/{wildcards.version}"
        " --log {log:q}"
        " {params.remake}"


rule publish_compare:
    input:
        made("compare"),
    output:
        FIXED["compare"],
    log:
        "logs/publish_compare.log",
    conda:
        "envs/cpu.yaml"
    params:
        folder=CHAIN["compare"].folder,
    message:
        "{output}: copied from {params.folder}"
    shell:
        "for name in compare.html compare.json compare.csv; do"
        " cp {params.folder:q}/$name results/.$name.new && mv results/.$name.new results/$name || exit 1;"
        " done 2> {log:q}"


rule compare_multipliers:
    input:
        parents,
        sources=sources("multipliers"),
    output:
        "results/multipliers/{version}/manifest.json",
    log:
        "logs/multipliers/{version}.log",
    conda:
        "envs/cpu.yaml"
    params:
        python=PYTHON,
        spec=spec,
        why=why,
        inputs=inputs,
        remake=remake,
    message:
        "multipliers {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/make_multipliers.py"
        " --spec {params.spec:q}"
        " {params.inputs}"
        " --output results/multipliers/{wildcards.version}"
        " --log {log:q}"
        " {params.remake}"


rule publish_multipliers:
    input:
        made("multipliers"),
    output:
        FIXED["multipliers"],
    log:
        "logs/publish_multipliers.log",
    conda:
        "envs/cpu.yaml"
    params:
        folder=CHAIN["multipliers"].folder,
    message:
        "{output}: copied from {params.folder}"
    shell:
        "for name in multipliers.html multipliers.json multipliers.csv; do"
        " cp {params.folder:q}/$name results/.$name.new && mv results/.$name.new results/$name || exit 1;"
        " done 2> {log:q}"


rule search_runs:
    input:
        parents,
        sources=sources("search"),
    output:
        "results/search/{version}/manifest.json",
    log:
        "logs/search/{version}.log",
    conda:
        "envs/cpu.yaml"
    params:
        python=PYTHON,
        spec=spec,
        why=why,
        inputs=inputs,
        remake=remake,
    message:
        "search {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/make_search.py"
        " --spec {params.spec:q}"
        " {params.inputs}"
        " --output results/search/{wildcards.version}"
        " --log {log:q}"
        " {params.remake}"


rule publish_search:
    input:
        made("search"),
    output:
        FIXED["search"],
    log:
        "logs/publish_search.log",
    conda:
        "envs/cpu.yaml"
    params:
        folder=CHAIN["search"].folder,
    message:
        "{output}: copied from {params.folder}"
    shell:
        "for name in search.html search.json search.csv best.yaml; do"
        " cp {params.folder:q}/$name results/.$name.new && mv results/.$name.new results/$name || exit 1;"
        " done 2> {log:q}; cat results/best.yaml"


rule draw_network:
    input:
        sources=sources("network"),
    output:
        "results/network/{version}/manifest.json",
    log:
        "logs/network/{version}.log",
    conda:
        "envs/cpu.yaml"
    params:
        python=PYTHON,
        spec=spec,
        why=why,
        remake=remake,
    message:
        "network {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/make_network.py"
        " --spec {params.spec:q}"
        " --output results/network/{wildcards.version}"
        " --log {log:q}"
        " {params.remake}"


rule publish_network:
    input:
        made("network"),
    output:
        FIXED["network"],
    log:
        "logs/publish_network.log",
    conda:
        "envs/cpu.yaml"
    params:
        folder=CHAIN["network"].folder,
    message:
        "{output}: copied from {params.folder}"
    shell:
        "cp {params.folder:q}/network.html results/.network.html.new"
        " && mv results/.network.html.new results/network.html 2> {log:q}"


rule compare_rungs:
    input:
        sources=sources("parity"),
    output:
        "results/parity/{version}/manifest.json",
    log:
        "logs/parity/{version}.log",
    conda:
        "envs/cpu.yaml"
    threads: threads_of
    params:
        python=PYTHON,
        spec=spec,
        why=why,
        threads=stage_threads,
        remake=remake,
    message:
        "parity {wildcards.version}: {params.why}"
    shell:
        "{params.python:q} workflow/scripts/make_parity.py"
        " --spec {params.spec:q}"
        " --output results/parity/{wildcards.version}"
        " --threads {params.threads}"
        " --log {log:q}"
        " {params.remake}"


rule publish_parity:
    input:
        made("parity"),
    output:
        FIXED["parity"],
    log:
        "logs/publish_parity.log",
    conda:
        "envs/cpu.yaml"
    params:
        folder=CHAIN["parity"].folder,
    message:
        "{output}: copied from {params.folder}"
    shell:
        "for name in parity.html parity.json; do"
        " cp {params.folder:q}/$name results/.$name.new && mv results/.$name.new results/$name || exit 1;"
        " done 2> {log:q}"


rule diff:
    input:
        every_time,
    output:
        "results/diff.html",
    log:
        "logs/diff.log",
    conda:
        "envs/cpu.yaml"
    params:
        python=PYTHON,
        versions=SETTINGS["diff"],
    message:
        "{output}: {params.versions}"
    shell:
        "{params.python:q} workflow/scripts/make_diff.py {params.versions:q} --output {output}"
        ' 2>> "$LADDER_ERRORS" | tee {log:q}'


rule history:
    input:
        every_time,
    output:
        "results/history.html",
    log:
        "logs/history.log",
    conda:
        "envs/cpu.yaml"
    params:
        python=PYTHON,
    message:
        "{output}: every run in results/"
    shell:
        "{params.python:q} workflow/scripts/make_history.py --output {output} | tee {log:q}"


rule predictions:
    input:
        every_time,
        made(*stages.prediction_roles(CHAIN)),
    output:
        "results/predictions.html",
        "results/predictions.json",
        "results/predictions.csv",
    log:
        "logs/predictions.log",
    conda:
        "envs/cpu.yaml"
    threads: threads_of
    params:
        python=PYTHON,
        pictures=SETTINGS["predict"],
        inputs=" ".join(
            f"--input {role}={CHAIN[role].folder}"
            for role in stages.prediction_roles(CHAIN)
        ),
        threads=stage_threads,
        residency=SETTINGS["data_residency"],
        multiplier=SETTINGS["test_multiplier"],
    message:
        "predictions: {params.pictures}"
    shell:
        "{params.python:q} workflow/scripts/make_predictions.py"
        " {params.inputs}"
        " --data-residency {params.residency}"
        " --multiplier {params.multiplier:q}"
        " --threads {params.threads}"
        " --log {log:q}"
        " -- {params.pictures:q}"


rule gc:
    log:
        "logs/gc.log",
    conda:
        "envs/cpu.yaml"
    params:
        python=PYTHON,
        keep=lambda wildcards: reached(),
        confirm="--confirm" if SETTINGS["confirm"] else "",
    message:
        "gc: what neither this configuration, its lists, presets/ nor keep reaches"
    shell:
        "printf %s {params.keep:q} > logs/gc.json &&"
        " {params.python:q} workflow/scripts/collect_garbage.py --keep-file logs/gc.json {params.confirm}"
        ' 2>> "$LADDER_ERRORS" | tee {log:q}'


onstart:
    cannot_run_here(workflow.dag.needrun_jobs())
    cannot_find_pictures(workflow.dag.needrun_jobs())


onerror:
    atexit.register(repeat_errors)
