"""The profiles of clusters name every stage, and their programs submit and follow jobs; clusters
are pretended.
"""

import json
import os
import re
import shlex

import pytest
import yaml

import processes
from ladder.sources import ROOT
from ladder.workflow.stages import STAGES

CLUSTERS = ("slurm", "pbs", "kubernetes")


def profile(name):
    return yaml.safe_load((ROOT / "profiles" / name / "config.yaml").read_text())


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_profile_has_the_threads_of_every_stage_but_of_pages_that_take_one(name):
    found = profile(name)
    assert {one.split("=")[0] for one in found["set-threads"]} == {
        stage.rule for stage in STAGES.values() if not stage.anywhere
    }
    assert {one.split(":")[0] for one in found["set-resources"]} <= {
        stage.rule for stage in STAGES.values()
    }


def test_the_clusters_get_the_same_numbers_and_the_common_options():
    slurm, *others = (profile(name) for name in CLUSTERS)
    for other in others:
        for key in (
            "set-threads",
            "set-resources",
            "default-resources",
            "jobs",
            "latency-wait",
            "nolock",
            "keep-incomplete",
            "ignore-incomplete",
            "rerun-triggers",
            "__definitions__",
        ):
            assert other[key] == slurm[key], key


def program(folder, name, text):
    """A pretended program in a folder, which is returned."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return folder


def run(command, programs, **environment):
    path = f"{programs}:{os.environ['PATH']}"
    return processes.run(*command, env={**os.environ, "PATH": path, **environment})


def submit_command(name, **values):
    """What the executor runs: the command of a profile with the values of a job, and a job
    script.
    """
    command = profile(name)["cluster-generic-submit-cmd"]
    for key, value in values.items():
        command = command.replace("{" + key + "}", str(value))
    assert not re.search(r"[{}]", command), command
    return [*shlex.split(command), "job.sh"]


JOB = {
    "jobid": 7,
    "threads": 4,
    "resources.mem_mb": 6000,
    "resources.runtime": 1440,
    "resources.gpu": 1,
}


def test_a_job_of_pbs_asks_for_what_the_profile_says(tmp_path):
    done = run(
        submit_command("pbs", **JOB), program(tmp_path / "bin", "qsub", 'printf "%s\\n" "$@"')
    )
    assert done.stdout.split("\n")[-2] == "job.sh"
    assert (
        "select=1:ncpus=4:mem=6000mb:ngpus=1" in done.stdout and "walltime=1440:00" in done.stdout
    )
    assert "-V" in done.stdout.split(), "jobs need the variables that the command sets"


@pytest.mark.parametrize(
    "said, state",
    [
        ("    job_state = R", "running"),
        ("    job_state = Q", "running"),
        ("    job_state = F\n    Exit_status = 0", "success"),
        ("    job_state = F\n    Exit_status = 1", "failed"),
        ("    job_state = F\n    Exit_status = -29", "failed"),
        ("    job_state = F", "failed"),
    ],
)
def test_the_state_of_a_job_of_pbs_is_told(tmp_path, said, state):
    programs = program(
        tmp_path / "bin", "qstat", f"printf '%s\\n' 'Job Id: 7.server' {shlex.quote(said)}"
    )
    assert run([ROOT / "profiles/pbs/status", "7.server"], programs).stdout == f"{state}\n"


@pytest.mark.parametrize("name, command", [("pbs", "qstat"), ("kubernetes", "kubectl")])
def test_a_server_that_does_not_answer_is_asked_again(tmp_path, name, command):
    assert (
        run(
            [ROOT / "profiles" / name / "status", "7"], program(tmp_path / "bin", command, "exit 1")
        ).stdout
        == "running\n"
    )


def test_a_job_of_kubernetes_asks_for_what_the_profile_says(tmp_path):
    programs = program(
        tmp_path / "bin", "kubectl", 'cat > "$ASKED"; echo job.batch/kernel-ladder-x'
    )
    command = submit_command("kubernetes", **JOB)
    command[0] = str(ROOT / command[0])
    done = run(
        command, programs, ASKED=str(tmp_path / "asked.json"), LADDER_COMMAND='{"started": 1}'
    )
    assert done.stdout == "job.batch/kernel-ladder-x\n", done.stderr
    spec = json.loads((tmp_path / "asked.json").read_text())["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert container["command"] == ["sh", "job.sh"] and container["workingDir"] == os.getcwd()
    assert container["resources"] == {
        "requests": {"cpu": 4, "memory": "6000M"},
        "limits": {"memory": "6000M", "nvidia.com/gpu": 1},
    }
    assert (
        spec["activeDeadlineSeconds"] == 86400
        and {"name": "LADDER_COMMAND", "value": '{"started": 1}'} in container["env"]
    )
    assert container["volumeMounts"][0]["name"] == spec["template"]["spec"]["volumes"][0]["name"]
    command = submit_command("kubernetes", **JOB | {"resources.gpu": 0})
    run([str(ROOT / command[0]), *command[1:]], programs, ASKED=str(tmp_path / "cpu.json"))
    limits = json.loads((tmp_path / "cpu.json").read_text())["spec"]["template"]["spec"][
        "containers"
    ][0]["resources"]["limits"]
    assert limits == {"memory": "6000M"}


@pytest.mark.parametrize(
    "said, state",
    [
        ("", "running"),
        ("Complete", "success"),
        ("SuccessCriteriaMet Complete", "success"),
        ("Failed", "failed"),
        ("FailureTarget Failed", "failed"),
    ],
)
def test_the_state_of_a_job_of_kubernetes_is_told(tmp_path, said, state):
    programs = program(tmp_path / "bin", "kubectl", f"printf '%s' '{said}'")
    assert (
        run([ROOT / "profiles/kubernetes/status", "job.batch/x"], programs).stdout == f"{state}\n"
    )
