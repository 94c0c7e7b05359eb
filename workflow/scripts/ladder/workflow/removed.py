"""Words of earlier releases that are no more, and what to do instead of each: keys of the
configuration, targets of Snakemake and of make, and scripts.

It imports nothing, so that make can read it before there is an environment.
"""

_COPY = (
    "copy the folders: rsync -a HOST:kernel-ladder/results/ results/ (docs/cluster.md); artifacts "
    "are checked whenever they are used"
)
_FIGURES = "every chart of a page is saved as SVG by its button, its numbers as CSV (docs/pages.md)"
_RUNS = "results/runs.html shows it: snakemake runs makes it (docs/pages.md#runs)"
_ROWS = "(docs/configuration.md#runs)"
# Keys, some of which are targets too.
KEYS = {
    "compare": f"write it as runs: [{{batch_size: [32, 64]}}] {_ROWS}",
    "multipliers": f"write it as runs: [{{multiplier: [exact, am32], seed: [1, 2, 3]}}] {_ROWS}",
    "ablation": f"write it as runs: [{{features_flip: false}}] {_ROWS}",
    "seeds": f"write it as runs: [{{seed: [2, 3]}}] {_ROWS}",
    "reference_variant": f"write it as runs: [{{variant: cpu_sequential}}] {_ROWS}",
    "control_settings": (
        "write it as controls: [{random: {wta_kernels: [8, 8]}}, pixels] "
        "(docs/configuration.md#controls)"
    ),
}
INSTEAD = {
    "strict_versions": (
        "a command names what other versions of libraries have made, and -F makes it again "
        "(docs/architecture.md)"
    ),
    "knn_distance": "knn compares by the cosine of the angle, the default until now; leave the key out",
    "recompute": "a smaller batch_size takes less memory (docs/networks.md)",
    "pull": _COPY,
    "from": _COPY,
    "bundle": (
        "the report has what makes it again, and snakemake --report results.zip packs the pages "
        "(docs/folders.md)"
    ),
    "gradients": (
        "results/parity.html compares the training of all rungs, and pytest "
        "tests/support/test_gradient_check.py compares gradients with finite differences (docs/math.md)"
    ),
    "figures": _FIGURES,
    "compare.tex": _FIGURES,
    "watch": "a training writes its page itself: open logs/train/VERSION.html (docs/pages.md)",
    **dict.fromkeys(("index", "compare", "history", "multipliers", "search"), _RUNS),
    "diff": "choose the two runs on results/runs.html, whose address keeps them (docs/pages.md#runs)",
    "demo.py": "run workflow/scripts/tools/demo.py, or make demo",
    "compare_weights.py": "run workflow/scripts/tools/compare_weights.py",
    "check_multiplier.py": "run workflow/scripts/tools/check_multiplier.py",
    "to_mlflow.py": "ten lines log summary.json to MLflow (docs/use.md)",
}


def key(word: str) -> str:
    """As `instead`, of a key of the configuration."""
    return f"{word} is no more: {KEYS[word]}" if word in KEYS else instead(word)


def instead(word: str) -> str:
    """'WORD is no more: what to do instead', for a word of an earlier release, or a file of that
    name and any ending; '' for any other.
    """
    name = word.removeprefix("results/")
    said = INSTEAD.get(name) or INSTEAD.get(name.partition(".")[0])
    return f"{word} is no more: {said}" if said else ""
