"""How many lines each part of the program may have: a change that needs more raises its number here, on purpose."""

from ladder.sources import ROOT

BUDGET = {
    "scripts": 2351, "ladder": 327, "arithmetic": 1577, "classifiers": 1360, "data": 2320, "demo": 471, "executors": 5720,
    "export": 785, "features": 837, "machine": 830, "network": 1130, "pages": 6303, "rungs": 3925, "store": 1630,
    "training": 2523, "workflow": 4216,
    "package": 50,   # beside the scripts
    "snakemake_logger_plugin_ladder": 86,   # a package of its own, where Snakemake looks for it
}


def test_no_part_of_the_program_has_more_lines_than_its_budget():
    scripts, package = ROOT / "workflow/scripts", ROOT / "package"
    lines = dict.fromkeys(BUDGET, 0)
    lines["package"] = sum(path.read_text("utf-8").count("\n") for path in package.rglob("*.py"))
    for path in scripts.rglob("*.py"):
        folder, *packages = path.relative_to(scripts).parts[:-1] or ("scripts",)
        lines[packages[0] if packages else folder] += path.read_text("utf-8").count("\n")
    over = {part: f"{lines[part]} lines, {budget} allowed" for part, budget in BUDGET.items() if lines[part] > budget}
    assert not over
