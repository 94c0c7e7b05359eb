"""The documentation: generated parts are up to date, links have targets, and lines are short."""

import functools
import importlib
import re
import runpy
import subprocess
import sys

import pytest
import yaml

from ladder.sources import ROOT
from ladder.workflow import config, settings
from ladder.workflow.stages import STAGES

PAGES = [
    *(
        ROOT / page
        for page in (
            "README.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
            "SECURITY.md",
            "tests/README.md",
            "emulator/README.md",
            "config/README.md",
        )
    ),
    *sorted((ROOT / "docs").glob("*.md")),
]
# names of files that need not be there
EXAMPLES = r"NAME|kernels/mine|rungs/mine|leaky_relu|relu4|[/_]layers\.(html|py)"


GENERATE = runpy.run_path(str(ROOT / "docs/generate.py"))
DOCUMENTS = GENERATE["documents"]()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_generated_documents_are_up_to_date(path):
    assert path.read_text() == DOCUMENTS[path], "run `make docs`"


def test_the_description_of_the_configuration_has_every_key():
    assert re.findall(r"^####? `(\w+)`$", GENERATE["page"](), re.M) == list(settings.KEYS)


def test_the_keys_of_a_kind_of_layer_are_listed_with_their_defaults():
    kinds = map(GENERATE["listed"], ("dense", "relu", "pad"))
    assert list(kinds) == ["`units`", "none", "`amount`"]
    assert "`padding: 1`" in GENERATE["listed"]("conv2d")


def test_what_a_person_edits_first_comes_first_and_has_its_default():
    text = (ROOT / "config.yaml").read_text()
    keys = re.findall(r"^(\w+):", text, re.M)
    assert keys[:2] == ["variant", "batch_size"] and len(text.splitlines()) <= 40
    assert config.load(yaml.safe_load(text)) == settings.Settings(), (
        "a key that is taken out of the file changes nothing"
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_lines_of_a_page_are_at_most_100_columns_wide(path):
    """Except pictures and rows of tables in docs/, which Markdown cannot fold, and the source in
    docs/climb.md.
    """
    lines = re.sub(r"<!-- lines: .*?<!-- end -->", "", path.read_text(), flags=re.S).splitlines()
    assert [
        line
        for line in lines
        if len(line) > 100 and not (path.parent.name == "docs" and line.startswith(("|", "![")))
    ] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_link_targets_exist(path):
    """Files, and the headings of pages, as GitHub names their anchors."""
    text = re.sub(r"<!-- lines: .*?<!-- end -->", "", path.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith(("http:", "https:")):
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text()), target


def test_the_site_has_every_page_of_the_documentation_once():
    pages = re.findall(
        r"[\w/]\S*\.md$", (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1], re.M
    )
    assert sorted(page for page in pages if page.startswith("docs/")) == [
        path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").glob("*.md"))
    ]
    assert (
        len(set(pages)) == len(pages)
        and [page for page in pages if not (ROOT / page).is_file()] == []
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_files_named_by_a_page_exist(path):
    """Paths in the project's own folders, except placeholders and the files that are examples in
    CONTRIBUTING.md.
    """
    named = re.findall(
        r"(?<![\w./-])((?:workflow|kernels|tests|presets|benchmarks|profiles|envs|docs)/[\w./-]+)",
        path.read_text(),
    )
    missing = {
        name
        for name in named
        if not (ROOT / name.rstrip(".")).exists() and not name.endswith(("/", "_"))
    }
    assert {name for name in missing if not re.search(EXAMPLES, name)} == set()


def test_the_list_of_helpers_has_those_that_there_are():
    listed = re.findall(
        r"`(\w+\.py)`", (ROOT / "tests/README.md").read_text().split("## Helpers")[1]
    )
    helpers = {path.name for path in (ROOT / "tests/support").glob("*.py")}
    assert set(listed) == {name for name in helpers if not name.startswith("test_")}


def test_a_kind_of_layer_touches_at_most_seven_files_that_are_there():
    recipe = (ROOT / "CONTRIBUTING.md").read_text().split("## Add a kind of layer\n")[1]
    files = re.findall(r"`([\w/]+\.py)`", recipe.partition("\n\nWithout a gradient")[0])
    assert len({name for name in files if (ROOT / name).exists()}) == 7


def test_the_workflow_catalog_finds_what_it_asks_for():
    """What https://snakemake.github.io/snakemake-workflow-catalog reads: words of README.md, and
    the ways of deployment.
    """
    words = (ROOT / "README.md").read_text().lower()
    assert "snakemake" in words and "workflow" in words and (ROOT / "config/README.md").exists()
    settings = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert settings["software-stack-deployment"].keys() == {
        "conda",
        "apptainer",
        "apptainer+conda",
        "report",
    }


def test_packages_import_in_the_order_that_the_architecture_lists():
    library = ROOT / "workflow/scripts/ladder"
    section = (
        (ROOT / "docs/architecture.md").read_text().split("\n## Packages\n")[1].split("\n## ")[0]
    )
    order = re.findall(r"^\| `(\w+)` \|", section, re.M)
    assert sorted(order) == sorted(path.parent.name for path in library.glob("*/__init__.py"))
    for path in library.glob("*/**/*.py"):
        own = path.relative_to(library).parts[0]
        for package in re.findall(r"(?:from|import) ladder\.(\w+)", path.read_text()):
            assert package not in order or order.index(package) <= order.index(own), (
                f"{path.name} imports {package}"
            )


def test_the_rules_that_the_architecture_names_are_those_of_the_stages():
    text = (ROOT / "docs/architecture.md").read_text() + (ROOT / "README.md").read_text()
    for target, rule in re.findall(r"snakemake (\w+) -R (\w+)", text) + re.findall(
        r"\.\.\. (\w+) -R (\w+)", text
    ):
        assert STAGES[target].rule == rule


def test_what_the_pages_say_of_the_cpu_rung_is_in_the_record():
    command = [sys.executable, str(ROOT / "benchmarks/cpu_table.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def anchors(text):
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# ---- how a step runs

STEP = (
    (ROOT / "docs/architecture.md").read_text().split("## How a step runs\n")[1].split("\n## ")[0]
)
ROWS = re.findall(r"^\| `([\w.]+)` \| `([\w/.]+)` \|", STEP, re.M)


@pytest.mark.parametrize("name, file", ROWS)
def test_what_the_page_on_a_step_names_is_where_it_says(name, file):
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    named = functools.reduce(getattr, name.split("."), module)
    assert callable(named) and named.__module__ == module.__name__


def test_the_page_on_a_step_has_its_tables():
    assert len(ROWS) == 19
