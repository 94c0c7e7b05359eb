"""docs/climb.md: what is made of it is up to date, its figures follow the kernels, and `make check`
answers what its solutions say.
"""

import dataclasses
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree

import pytest

import needs
import processes
from ladder.sources import ROOT

sys.path.insert(0, str(ROOT / "docs"))

import climb  # noqa: E402
import figures  # noqa: E402
from drawing import SMALL, WIDTH  # noqa: E402

import new_rung  # noqa: E402
from table import documented_rungs  # noqa: E402

TEXT = (ROOT / "docs/climb.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## [^\n]+: (\w+)\n(.*?)(?=^## )", TEXT, re.M | re.S))
MOST_BYTES = 15_000
SVG = "{http://www.w3.org/2000/svg}"
# First word of a kind of answer -> the check that gives it; `runs` gives all others.
CHECKS = {"wrong": "trains", "trains": "trains"} | dict.fromkeys(
    ("faster", "slower", "as"), "counts"
)


@dataclasses.dataclass(frozen=True)
class Solution:
    """A rung to start, by what `make rung` is given, the changes of its files, and what `make
    check` answers.
    """

    below: str
    kernel: str
    changes: tuple[str, ...]
    answer: str

    def files(self):
        """{name: changed text} of the copies, and of the module."""
        kernel, header = new_rung.chosen(self.below, self.kernel)
        copies = new_rung.copies(new_rung.KERNELS / kernel, header, "mine")
        texts = {path.name: text for path, text in copies.items()}
        texts["mine.py"] = new_rung.module("mine", self.below, kernel)
        for change in self.changes:
            texts = changed(texts, change.splitlines())
        return texts


def solutions(rung):
    """Those of a section. One is some changes and the answer behind them."""
    section = SECTIONS[rung]
    started = re.search(r"make rung NAME=mine FROM=(\w+)(?:\s+KERNEL=([\w/.]+))?", section)
    below, kernel = started.groups("") if started else (rung, "")
    blocks = re.findall(
        r"^```(diff|text)\n(.*?)^```$", section.partition("<details")[2], re.M | re.S
    )
    found, changes = [], ()
    for kind, block in blocks:
        if kind == "diff":
            changes += (block,)
        else:
            found.append(Solution(below, kernel, changes, block.strip()))
            changes = ()
    return found


SOLUTIONS = {
    f"{rung} {number}": solution
    for rung in SECTIONS
    for number, solution in enumerate(solutions(rung))
}


def changed(texts, change):
    """texts with one of them changed, in which the lines before are, indented as they are there."""
    before, after = (
        [line[1:] for line in change if line[:1] in (" ", sign)] for sign in ("-", "+")
    )
    places = [
        (name, lines, at)
        for name, lines in ((name, text.splitlines()) for name, text in texts.items())
        for at in range(len(lines))
        if [line.strip() for line in lines[at : at + len(before)]]
        == [line.strip() for line in before]
    ]
    ((name, lines, at),) = places
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    lines[at : at + len(before)] = [indent + line for line in after]
    return {**texts, name: "\n".join(lines) + "\n"}


def test_the_page_and_its_figures_are_what_the_source_and_the_records_say():
    assert climb.page() == TEXT, "run `make docs`"
    drawn = {path: path.read_text("utf-8") for path in (ROOT / "docs/figures").glob("*")}
    assert figures.files() == drawn, "run `make docs`"


def test_every_rung_has_a_section_with_all_its_parts():
    rungs = ["cpu_sequential", "cpu", *documented_rungs()]
    assert list(SECTIONS) == rungs == list(figures.FIGURES)
    for rung, section in SECTIONS.items():
        assert f"](figures/{rung}.svg)" in section and f"<!-- lines: {rung} -->" in section
        assert (f"<!-- counts: {rung} -->" in section) == rung.startswith("gpu")
        assert re.match(r"\n\d+ minutes", section) and "**Exercise**" in section
        assert solutions(rung)


@pytest.mark.parametrize("solution", SOLUTIONS.values(), ids=SOLUTIONS)
def test_a_solution_changes_what_make_rung_copies(solution):
    assert solution.changes
    exec(solution.files()["mine.py"], {})  # with functions that there are


@needs.COMPILER
@pytest.mark.parametrize("solution", SOLUTIONS.values(), ids=SOLUTIONS)
def test_make_check_answers_what_the_course_says(solution, project):
    texts = solution.files()
    for folder in (project / "kernels/mine", project / "workflow/scripts/ladder/rungs"):
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            if name.endswith(".py") == (folder.name == "rungs"):
                (folder / name).write_text(text)
    (project / "kernels/mine/rung.toml").write_text(new_rung.ROW.format(below=solution.below))
    check = CHECKS.get(solution.answer.split()[1].strip(":"), "runs")
    program = (
        "import sys; sys.path.insert(0, 'tests/support'); import judge_rung\n"
        f"for verdict in judge_rung.verdicts('mine', [judge_rung.{check}]):\n"
        "    print(f'mine: {verdict.kind}: {verdict.text}')"
    )
    judged = processes.python("-c", program, cwd=project)
    shutil.rmtree(project / "kernels/mine")
    pieces = " ".join(solution.answer.split()).split(" ...")
    assert re.match(".*".join(map(re.escape, pieces)), judged.stdout, re.S), judged


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of what a rung needs."""
    folder = tmp_path_factory.mktemp("project")
    for part in ("kernels", "workflow/scripts", "tests/support", "emulator/src", "benchmarks"):
        shutil.copytree(ROOT / part, folder / part)
    return folder


# ---- figures


def test_a_tile_that_changes_changes_its_figure(tmp_path, monkeypatch):
    def own_sums():
        drawn = ElementTree.fromstring(figures.figure("gpu_registers"))
        return [
            part.get("d").count("z")
            for part in drawn.iter(f"{SVG}path")
            if part.get("class") == "C"
        ]

    assert own_sums() == [4 * 4]
    shutil.copytree(ROOT / "kernels/gpu_registers", tmp_path / "gpu_registers")
    tile = tmp_path / "gpu_registers/tile.cuh"
    tile.write_text(tile.read_text().replace("EACH = 4", "EACH = 2"))
    monkeypatch.setattr(figures, "KERNELS", tmp_path)
    assert own_sums() == [2 * 2]
    assert "2 x 2 sums in the registers of a thread" in figures.figure("gpu_registers")


def test_a_launch_that_changes_changes_its_figure():
    class Other(figures.Rung):
        @property
        def launch(self):
            macros = [
                define.replace("TILE_N=128", "TILE_N=64") for define in super().launch.defines
            ]
            return dataclasses.replace(super().launch, defines=tuple(macros))

        counts = property(lambda self: figures.Rung(self.name).counts)

    assert ">128 x 128<" in figures.gpu_gemm(figures.Rung("gpu_gemm"))
    assert ">128 x 64<" in figures.gpu_gemm(Other("gpu_gemm"))


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs/figures").glob("*")), ids=lambda path: path.stem
)
def test_a_figure_is_small_described_and_legible_on_a_phone(path):
    assert path.stat().st_size < MOST_BYTES
    drawn = ElementTree.parse(path).getroot()
    assert drawn.find(f"{SVG}title").text and drawn.find(f"{SVG}desc").text
    assert 358 / WIDTH * SMALL >= 12  # in a column of 358 pixels, of a screen of 390
    for text in drawn.iter(f"{SVG}text"):
        kind = text.get("class", "").split()
        wide = (10.4 if "t" in kind else 8.6) * len(text.text)  # of DejaVu Sans, a wide one
        left = float(text.get("x")) - wide * (1 if "end" in kind else 0.5 if "mid" in kind else 0)
        assert left >= 0 and left + wide <= WIDTH, text.text
