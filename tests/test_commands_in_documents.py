"""Every command in a document is planned here as the program itself plans it, or stands in
ELSEWHERE with what runs it or why nothing does.
"""

import re
import shlex

import numpy as np
import pytest
import yaml
from snakemake.utils import update_config

import picture_folders
from ladder.sources import ROOT
from ladder.workflow import config, plans
from ladder.workflow.commands import KNOWN, Command
from ladder.workflow.stages import STAGES

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / name / "README.md" for name in ("config", "tests")),
    *sorted((ROOT / "docs").glob("*.md")),
]
PROGRAMS = "snakemake", "kernel-ladder"
# Targets that are no stage and no page of one.
TARGETS = {*KNOWN, "explain", "settings", "all_settings", "gc"}
TARGETS |= {"results/predictions.html"}
# Part of a command -> what runs it, or why nothing does.
ELSEWHERE = {
    r"^make ": "a target of the Makefile; the test below looks for it there",
    r"^\.venv/bin/python -m pytest ": "the tests themselves",
    r"^\.venv/bin/python benchmarks/assumptions.py": "tests/tools/test_counting.py",
    r"^\.venv/bin/python benchmarks/count.py": "minutes; tests/tools/test_counting.py",
    r"^\.venv/bin/python benchmarks/kernel.py": "tests/tools/test_gpu_benchmarks.py",
    r"^\.venv/bin/python benchmarks/table.py": "tests/tools/test_gpu_tables.py",
    r"^\.venv/bin/python tests/campaigns/kill.py": "hours; tests/campaigns runs a slice",
    r"^\.venv/bin/python tests/support/mutate": "minutes; tests/support/test_mutate_kernels.py",
    r"^\.venv/bin/python -m cuda_emulator |PYTHONPATH=emulator/src": "emulator/tests/test_command.py",
    r"check_multiplier\.py": "tests/tools/test_check_multiplier.py",
    r"compare_weights\.py": "tests/tools/test_compare_weights.py",
    r"^\.venv/bin/python -c import json": "tests/pages/test_summary_keys.py",
    r"^python -c": "a download (pandas)",
    r"^python predict.py": "tests/stages/test_export_model.py",
    r"^unzip ": "tests/stages/test_export_model.py",
    r"^python3 benchmarks/gpu_check.py": "a GPU; tests/tools/test_gpu_check.py has none",
    r"^git clone |^pip install |/bin/pip |-m pip ": "a download",
    r"^~/ladder/bin/python ": "an installed copy; tests/test_release.py",
    r"^cd |^docker |^apptainer |^rsync ": "a folder, an engine or a machine of the reader",
    r"=N$|NAME|FOLDER|VERSION|theirs\.bin|best\.yaml|diff=": "something of the reader",
    r"layers\.html|map_perplexity": "what a recipe adds",
}
NUMBERS = range(30)
# Files that commands name.
TEXTS = {
    "labels.csv": "name,label\n" + "".join(f"cat/{n:04d}.png,{n % 2}\n" for n in NUMBERS),
    "leave_out.txt": "cat/0000.png\n",
}


def commands(text):
    """The words of each command in a page's shell blocks, and of Snakemake's in its sentences."""
    told = re.findall(r"`((?:\.venv/bin/)?snakemake [^`]+)`", text.replace("\n", " "))
    for block in [*re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S), *told]:
        command = ""
        for line in block.replace("\\\n", " ").splitlines():
            command += f"{line}\n"
            try:
                words = shlex.split(command, comments=True)
            except ValueError:  # a quotation that goes on in the next line
                continue
            command = ""
            if words:
                yield tuple(words)


def is_planned(words):
    return words[0].endswith(PROGRAMS) and not any(
        re.search(part, " ".join(words)) for part in ELSEWHERE
    )


FOUND = sorted({words for page in PAGES for words in commands(page.read_text("utf-8"))})


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A folder with the files that the commands name."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "presets").symlink_to(ROOT / "presets")
    picture_folders.write(folder / "pets", {"cat": len(NUMBERS), "dog": len(NUMBERS)})
    for name, text in TEXTS.items():
        (folder / name).write_text(text, "utf-8")
    networks = (ROOT / "docs/networks.md").read_text("utf-8")
    (folder / "mine.yaml").write_text(re.search(r"```yaml\n(.*?)```", networks, re.S)[1], "utf-8")
    tables = re.findall(r"\bmul8\w+\.npy", (ROOT / "docs/multipliers.md").read_text("utf-8"))
    for name in {"mine.npy", *tables}:
        numbers = np.arange(256) if name.startswith("mul8u") else np.arange(-128, 128)
        kind = np.uint16 if name.startswith("mul8u") else np.int16
        np.save(folder / name, np.outer(numbers, numbers).astype(kind))
    return folder


@pytest.mark.parametrize("words", [words for words in FOUND if is_planned(words)], ids=" ".join)
def test_a_command_of_snakemake_is_planned(reader, words, monkeypatch):
    monkeypatch.chdir(reader)
    given = Command(words[1:]).options
    overrides = {}
    for file in given.configfile:
        update_config(overrides, config.read_file(file))
    pairs = (word.partition("=") for word in given.config or ())
    update_config(overrides, {key: yaml.safe_load(value) for key, _, value in pairs})
    if "~/pictures" in words:
        overrides |= {"dataset": "folder", "folder": "pets"}
    assert plans.load(plans.base(overrides, here=False)).artifacts
    rules = given.forcerun | given.until
    assert rules <= {stage.rule for stage in STAGES.values()}
    own = {word for word in given.targets if re.fullmatch(r"[a-z_]+|results/\w+\.html", word)}
    assert own <= TARGETS


@pytest.mark.parametrize("words", [words for words in FOUND if not is_planned(words)], ids=" ".join)
def test_another_command_stands_in_the_list(words):
    (reason, *_) = [ELSEWHERE[part] for part in ELSEWHERE if re.search(part, " ".join(words))]
    assert all((ROOT / path).exists() for path in re.findall(r"[\w/]*tests/[\w/]+\.py", reason))
    targets = re.search(r"^TARGETS = (.*)", (ROOT / "Makefile").read_text("utf-8"), re.M)[1]
    assert words[0] != "make" or words[1] in targets.split()


def test_the_programs_that_documents_name_are_there():
    text = "\n".join(" ".join(words) for words in FOUND)
    modules = re.findall(r"-m kernel_ladder\.([\w.]+)", text)
    files = re.findall(r" ((?:benchmarks|tests|workflow)/[\w/]+)\.py", text)
    files += [module.replace(".", "/") for module in modules]
    assert modules and [file for file in files if not (ROOT / f"{file}.py").exists()] == []


def test_the_list_has_nothing_that_no_document_has():
    assert [
        part for part in ELSEWHERE if not any(re.search(part, " ".join(words)) for words in FOUND)
    ] == []
