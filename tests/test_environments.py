"""The environments: every package has one version and the hashes of its files, and what differs is
installed again.
"""

import os
import re
import runpy
import shutil
import sys

import numpy as np
import pytest
import yaml

import processes
from ladder.sources import ROOT

SETS = sorted((ROOT / "envs").glob("*.txt"))
APART = {"benchmark", "nvrtc13", "pins"}  # installed into environments of their own
PIN = r"(?P<pin>(?P<name>[a-z0-9-]+)==(?P<version>[^ ;]+)(?: ; [^\n]+?)?)(?P<hashes>(?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n"


def pins(path):
    """A match of PIN for each package of a set; fails at anything else in the file."""
    head, text = path.read_text("utf-8").split("\n", 1)
    assert head == f"# Made by `make pins` from envs/{path.stem}.in."
    found = list(re.finditer(PIN, text))
    assert "".join(match[0] for match in found) == text
    return found


@pytest.mark.parametrize("path", SETS, ids=lambda path: path.stem)
def test_every_package_has_a_version_and_the_hashes_of_its_files(path):
    names = {match["name"] for match in pins(path)}
    direct = re.findall(r"^[a-z][a-z0-9-]+", path.with_suffix(".in").read_text("utf-8"), re.M)
    assert direct and set(direct) <= names


def test_there_is_a_set_of_pins_for_every_set_of_direct_dependencies():
    assert {path.stem for path in SETS} == {path.stem for path in (ROOT / "envs").glob("*.in")}


def test_sets_that_share_an_environment_pin_the_same_versions():
    versions = {}
    for path in SETS:
        if path.stem not in APART:
            for match in pins(path):
                versions.setdefault(match["name"], set()).add(match["version"])
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_the_conda_environment_has_the_same_packages():
    text = (ROOT / "envs/cpu.yaml").read_text("utf-8")
    *_, packages = yaml.load(text, yaml.CSafeLoader)["dependencies"]
    assert (
        packages["pip"] == [match["pin"] for match in pins(ROOT / "envs/cpu.txt")]
        and len(text) < 10_000
    )


def test_actions_are_named_by_digest():
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        used = re.findall(r"uses: *(.*)", path.read_text("utf-8"))
        assert used and all(
            re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v[\d.]+", action) for action in used
        ), used


@pytest.mark.parametrize("name, sets", [("cpu", ["cpu"]), ("gpu", ["cpu", "gpu"])])
def test_an_image_has_the_pinned_sets_and_a_user_who_is_not_root(name, sets):
    text = (ROOT / f"envs/Dockerfile.{name}").read_text("utf-8").replace("\\\n", "")
    steps = re.findall(r"^([A-Z]+) +(.*)$", text, re.M)
    bases, copied, users = (
        [rest for step, rest in steps if step == kind] for kind in ("FROM", "COPY", "USER")
    )
    (base,) = bases
    assert re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+-[a-z0-9.-]+@sha256:[0-9a-f]{64}", base)
    assert copied[0].split()[:-1] == [
        "envs/install",
        "envs/bring.py",
        *(f"envs/{one}.txt" for one in ["pip", *sets]),
    ]
    installs = [rest for step, rest in steps if step == "RUN" and "envs/" in rest]
    assert installs == [f"PIP_NO_CACHE_DIR=1 /opt/kernel-ladder/envs/install {' '.join(sets)}"]
    assert "pip install" not in text and users == ["10001"]


def test_the_images_get_files_that_are_there_and_nothing_else():
    comment, everything, *kept, caches = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert comment.startswith("# ") and everything == "*" and caches == "**/__pycache__"
    assert all(line.startswith("!") and (ROOT / line[1:]).exists() for line in kept)


# What envs/install does in the environment.


@pytest.fixture
def bring(tmp_path, monkeypatch):
    """bring(text) brings this environment to the pins of a text, on two cores, with a pip that
    notes its call and fails at a package of the name `failing`; returns the status and (arguments,
    requirements) of each call."""
    script, calls = runpy.run_path(str(ROOT / "envs/bring.py")), tmp_path / "calls"
    pip = tmp_path / "pip.py"
    pip.write_text(
        "import sys\n"
        "text = sys.stdin.read()\n"
        f"print(sys.argv[1:], text, sep='|', end='$', file=open({str(calls)!r}, 'a'))\n"
        "sys.exit('failing' in text)\n",
        "utf-8",
    )

    def bring(text):
        (tmp_path / "some.txt").write_text(text, "utf-8")
        calls.write_text("", "utf-8")
        status = script["main"](["some"])
        return status, [call.split("|") for call in calls.read_text("utf-8").split("$")[:-1]]

    monkeypatch.setitem(script["main"].__globals__, "ENVS", tmp_path)
    monkeypatch.setitem(script["main"].__globals__, "PIP", (sys.executable, pip))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return bring


def pinned(*lines):
    return "# A comment.\n" + "".join(
        f"{line} \\\n    --hash=sha256:{'0' * 64}\n" for line in lines
    )


def test_a_package_of_another_version_is_named_and_installed_again_by_its_hashes(bring, capsys):
    text = pinned("numpy==9.9.9", f"pyyaml=={yaml.__version__}", "not-there==1.0")
    status, ((arguments, requirements),) = bring(text)
    assert status == 0
    assert (
        capsys.readouterr().out
        == f"installing envs/some.txt: numpy 9.9.9 in place of {np.__version__}, not-there 1.0\n"
    )
    assert "--require-hashes" in arguments and f"# A comment.\n{requirements}" == text


def test_a_set_of_packages_that_is_not_there_is_refused_in_one_line():
    main = runpy.run_path(str(ROOT / "envs/bring.py"))["main"]
    assert main(["gpus"]).startswith("envs has no set of packages gpus; it has benchmark, ")
    assert main(["figures"]).startswith("figures is no more: every chart of a page is saved ")


def test_many_packages_are_counted_and_shared_by_two_pips(bring, capsys):
    status, calls = bring(pinned(*(f"not-there-{number}==1.0" for number in range(61))))
    assert status == 0 and capsys.readouterr().out == "installing envs/some.txt: 61 packages\n"
    shares = [set(re.findall(r"^not-there-\d+", share, re.M)) for _, share in calls]
    assert sorted(map(len, shares)) == [30, 31] and not set.intersection(*shares)


def test_one_pip_replaces_a_version(bring):
    others = (f"not-there-{number}==1.0" for number in range(61))
    assert len(bring(pinned("numpy==9.9.9", *others))[1]) == 1


def test_an_installation_fails_where_one_of_the_pips_does(bring):
    lines = pinned(*(f"not-there-{number}==1.0" for number in range(30)), "failing==1.0")
    status, calls = bring(lines)
    assert "failed; pip's messages above" in status and len(calls) == 2


def test_nothing_is_installed_where_all_is_as_pinned(bring, capsys):
    there = [
        f"{name}=={version}"
        for name, version in (("numpy", np.__version__), ("pyyaml", yaml.__version__))
    ]
    assert bring(pinned(*there, "windows-only==1.0 ; sys_platform == 'win32'")) == (0, [])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("fails", ["nothing", "pip --python"])
def test_a_pip_that_is_there_brings_the_pinned_one_else_ensurepip(tmp_path, fails):
    (tmp_path / "envs").mkdir()
    shutil.copy(ROOT / "envs/install", tmp_path / "envs")
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in -m*) echo "$*" >> calls;; esac\ncase "$*" in *"{fails}"*) exit 1;; esac\n',
        "utf-8",
    )
    python.chmod(0o755)
    # it ends where .venv/bin/python would begin, which nothing makes here
    processes.run(tmp_path / "envs/install", "cpu", env={**os.environ, "PYTHON": python})
    calls = (tmp_path / "calls").read_text("utf-8").splitlines()
    assert calls == [
        "-m venv --clear --without-pip .venv",
        "-m pip --python .venv/bin/python install --quiet --disable-pip-version-check --require-hashes -r envs/pip.txt",
        *(["-m venv --clear .venv"] if fails != "nothing" else []),
    ]


@pytest.mark.parametrize(
    "answer, line",
    [
        (
            "echo 6.1",
            "the GPU here has compute capability 6.1 and the kernels need 7.5: no GPU packages, the CPU computes\n",
        ),
        (
            "echo 7.0",
            "the GPU here has compute capability 7.0 and the kernels need 7.5: no GPU packages, the CPU computes\n",
        ),
        ("echo 7.5", ""),
        ("echo 12.1", ""),
        ("echo 6.1; echo 8.9", ""),
        ("echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2", ""),
        ("exit 9", ""),
    ],
)
def test_the_packages_of_the_gpu_are_for_a_card_that_a_rung_runs_on(tmp_path, answer, line):
    for folder in ("envs", ".venv/bin", "path"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "envs/install", tmp_path / "envs")
    for name, text in {
        ".venv/bin/python": 'case "$1" in envs*) echo "$*";; esac',
        "path/nvidia-smi": answer,
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        (tmp_path / name).chmod(0o755)
    ended = processes.run(
        tmp_path / "envs/install",
        "cpu",
        "gpu",
        check=True,
        env={**os.environ, "PATH": f"{tmp_path / 'path'}:{os.environ['PATH']}"},
    )
    assert ended.stdout == f"{line}envs/bring.py pip cpu{'' if line else ' gpu'}\n"


def test_the_sets_of_the_tests_are_installed_here_as_they_are_pinned():
    script = runpy.run_path(str(ROOT / "envs/bring.py"))
    assert script["differences"](script["pins"]("cpu"), script["installed"]()) == []
