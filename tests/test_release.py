"""A release: its version is the same wherever it stands, and what pip installs is the workflow with
all its versions.
"""

import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

import ladder
import permissions
import processes
from ladder.sources import ROOT
from ladder.workflow import plans, terminal

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
SOURCES, WHEEL = (PROJECT["tool"]["hatch"]["build"]["targets"][kind] for kind in ("sdist", "wheel"))
PLACES = WHEEL["force-include"]  # path -> that in the wheel
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))


def test_the_version_and_its_date_are_the_same_everywhere():
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert headings[:2] == ["[Unreleased]", f"[{ladder.__version__}] - {CITATION['date-released']}"]
    assert CITATION["version"] == ladder.__version__ and re.fullmatch(
        r"\d+\.\d+\.\d+", ladder.__version__
    )
    assert PROJECT["project"]["dynamic"] == ["version"]


def test_the_page_cites_the_program_as_the_citation_file_does():
    text = (ROOT / "workflow/scripts/ladder/pages/assets/report_reproduction.html").read_text(
        "utf-8"
    )
    assert (
        f"title = {{{CITATION['title']}}}" in text
        and f"year = {{{CITATION['date-released'].year}}}" in text
    )
    assert f"{{{{{CITATION['authors'][0]['name']}}}}}" in text


# Packages.

SETS = {"cpu": PROJECT["project"]["dependencies"], **PROJECT["project"]["optional-dependencies"]}


@pytest.mark.parametrize("name", SETS)
def test_the_dependencies_are_those_that_envs_pins_and_their_ranges_hold_the_pins(name):
    lines = [
        line.split("#")[0].strip()
        for line in (ROOT / f"envs/{name}.in").read_text("utf-8").splitlines()
    ]
    direct = {
        need.name: need
        for need in map(Requirement, (line for line in lines if line and not line.startswith("-")))
    }
    ranges = {need.name: need for need in map(Requirement, SETS[name])}
    pins = dict(
        re.findall(r"^([a-z][\w-]+)==(\S+)", (ROOT / f"envs/{name}.txt").read_text("utf-8"), re.M)
    )
    assert {name: str(need.marker) for name, need in ranges.items()} == {
        name: str(need.marker) for name, need in direct.items()
    }
    assert [
        name
        for name, need in ranges.items()
        if not (need.specifier and need.specifier.contains(pins[name]))
    ] == []
    assert all(set(direct[name].specifier) <= set(ranges[name].specifier) for name in ranges)


def test_the_packages_are_built_by_what_make_dist_installs_by_its_hashes():
    (backend,) = PROJECT["build-system"]["requires"]
    assert f"\n{backend} \\\n" in (ROOT / "envs/pins.txt").read_text("utf-8")


def test_the_emulator_is_built_by_the_same_and_has_the_same_licence():
    project = tomllib.loads((ROOT / "emulator/pyproject.toml").read_text("utf-8"))
    assert project["build-system"] == PROJECT["build-system"]
    assert (ROOT / "emulator/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_a_wheel_and_its_sources_have_what_the_images_have_but_for_the_pins():
    images = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text("utf-8"), re.M)
    assert set(images) - {"LICENSE", "envs"} <= PLACES.keys()
    assert (
        sorted(SOURCES["only-include"]) == sorted([*PLACES, *WHEEL["only-include"]])
        and "tests" not in PLACES
    )
    assert PLACES == {path: f"kernel_ladder/{path}" for path in PLACES}


# As it is installed.


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder of packages with what a wheel has, where nobody may write."""
    site = tmp_path_factory.mktemp("site")
    copying = {"ignore": shutil.ignore_patterns("__pycache__"), "dirs_exist_ok": True}
    for path, place in {WHEEL["sources"][0]: "", **PLACES}.items():
        (site / place).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, site / place, **copying)
        else:
            shutil.copy(ROOT / path, site / place)
    subprocess.run(["chmod", "-R", "a-w", site], check=True)
    yield site
    subprocess.run(["chmod", "-R", "u+w", site], check=True)


def run(site, folder, program, *words):
    """What a Python program prints that imports from `site`, in `folder`, without the right to
    write to `site`.
    """
    before = sorted(site.rglob("*"))
    process = processes.run(
        *permissions.unprivileged(),
        sys.executable,
        "-c",
        program,
        *words,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(site)},
    )
    assert process.returncode == 0, process.stderr
    assert sorted(site.rglob("*")) == before
    return process.stdout + process.stderr


def test_the_installed_library_can_be_imported_and_is_that_of_the_scripts(site, tmp_path):
    printed = run(
        site,
        tmp_path,
        "import ladder; from ladder import sources; print(ladder.__version__, sources.ROOT)",
    )
    assert printed == f"{ladder.__version__} {site / 'kernel_ladder'}\n"


def test_the_installed_command_plans_the_versions_of_the_repository_in_any_folder(site, tmp_path):
    printed = run(
        site,
        tmp_path,
        "import kernel_ladder; kernel_ladder.main()",
        "report",
        "-n",
        "--config",
        "batch_size=32",
    )
    waiting, versions = (
        [plans.load(plans.base({"batch_size": 32}, here=False)).chain["report"]],
        set(),
    )
    while waiting:
        artifact = waiting.pop()
        versions.add(artifact.version)
        # the program's version
        assert "workflow/scripts/ladder/__init__.py" not in artifact.spec["sources"]
        waiting += artifact.parents.values()
    assert set(re.findall(r"^\w.* ([a-z][0-9a-f]{11}):", printed, re.M)) == versions
    assert {path.name for path in tmp_path.iterdir()} <= {".snakemake", "logs", "results"}


@pytest.mark.parametrize(
    "words, cores",
    [
        (["report"], ["--cores", "all"]),
        (["report", "--config", "seed=2"], ["--cores", "all"]),
        (["report", "-c2"], []),
        (["--cores=2", "svm"], []),
        (["report", "--workflow-profile", "profiles/slurm"], []),
    ],
)
def test_the_command_is_snakemakes_with_all_cores_where_nothing_says_how_many(
    monkeypatch, words, cores
):
    calls, cover = [], runpy.run_path(str(ROOT / "package/kernel_ladder/__init__.py"))
    monkeypatch.setattr(terminal, "run", calls.append)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["kernel-ladder", *words])
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.delenv("SNAKEMAKE_PROFILE", raising=False)
    with pytest.raises(SystemExit):
        cover["main"]()
    snakefile = str(ROOT / "package/kernel_ladder/Snakefile")
    assert calls == [["-s", snakefile, *cores, *words]]


def test_alone_it_prints_what_there_is_to_type_with_the_place_of_a_preset(site, tmp_path):
    printed = run(site, tmp_path, "import kernel_ladder; kernel_ladder.main()")
    assert (
        printed.startswith(f"Kernel Ladder {ladder.__version__}: ")
        and len(printed.splitlines()) < 15
    )
    (preset,) = re.findall(r"--configfile (\S+)", printed)
    assert pathlib.Path(preset).is_file() and list(tmp_path.iterdir()) == []
