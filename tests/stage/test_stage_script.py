"""The frame of the stage scripts, run as a rule runs it, around a script that the test controls."""

import errno
import hashlib
import json
import os
import shutil
import sys
import time

import pytest

import processes
from ladder import caller, sources
from ladder.store import artifacts, programs, shorter

NAME = "workflow/scripts/script.py"
SCRIPT = """
import json, os

from ladder.errors import RunFailed, UserError
from ladder.stage import stage_script

def make(work, inputs, params, options):
    if "full" in params:
        raise OSError(params["full"], os.strerror(params["full"]), "results/big.npy")
    if "deep" in params:
        raise RecursionError("maximum recursion depth exceeded\\nin two lines")
    if "raises" in params:
        raise {"user": UserError("the wrong thing; do another"), "failed": RunFailed("it diverged"),
               "memory": MemoryError("9 GB"), "interrupt": KeyboardInterrupt(),
               "gpu": type("OutOfMemoryError", (MemoryError,), {"__module__": "cupy.cuda.memory"})("9 GB"),
               "bug": ZeroDivisionError("bug")}[params["raises"]]
    work.metrics = {"threads": work.threads, "options": options, "inputs": {n: a.version for n, a in inputs.items()}}

if __name__ == "__main__":
    stage_script.run(make)
"""


@pytest.fixture
def call(tmp_path):
    """call(params, *arguments) runs the script and returns its result, with the artifact's
    folder.
    """
    root = tmp_path / "project"
    shutil.copytree(
        sources.SCRIPTS / "ladder",
        root / "workflow/scripts/ladder",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    script = root / NAME
    script.write_text(SCRIPT)
    told = {}  # by the command of Snakemake

    def call(params, *arguments, inputs=None, declared=None, output="d1", **more):
        text = programs.tree(script.read_bytes())
        digests = (
            {NAME: hashlib.sha256(text.encode()).hexdigest()[:16]} if declared is None else declared
        )
        spec = {"stage": "data", "params": params, "sources": digests, "parents": {}, **more}
        job = tmp_path / f"{output}.json"
        job.write_text(json.dumps({"spec": spec, "inputs": inputs or {}}))
        command = [
            sys.executable,
            script,
            "--job",
            job,
            "--output",
            tmp_path / output,
            "--log",
            tmp_path / "logs/d1.log",
            *arguments,
        ]
        environment = os.environ | {
            caller.VARIABLE: json.dumps({"errors": str(tmp_path / "errors"), **told})
        }
        done = processes.run(*command, env=environment)
        done.folder = tmp_path / output
        return done

    call.told = told
    return call


def test_the_libraries_of_the_work_are_recorded(call):
    assert artifacts.Artifact(call({}).folder).manifest["libraries"] == {}


def test_threads_inputs_and_options_reach_the_work(call, tmp_path):
    assert call({}, output="d0").returncode == 0
    done = call({}, "--threads", "3", "--option", "urls=a=b", inputs={"data": str(tmp_path / "d0")})
    assert done.returncode == 0, done.stderr
    assert artifacts.Artifact(done.folder).metrics == {
        "threads": 3,
        "options": {"urls": "a=b"},
        "inputs": {"data": "d0"},
    }
    # by which shorter.find knows it
    assert f"d1: {shorter.MADE} " in (tmp_path / "logs/d1.log").read_text()


@pytest.mark.parametrize(
    "params, status, message",
    [
        ({"raises": "user"}, 1, "data d1: the wrong thing; do another"),
        (
            {"raises": "memory"},
            1,
            "data d1: not enough memory (9 GB); a smaller train_limit needs less",
        ),
        (
            {"raises": "gpu"},
            1,
            "data d1: OutOfMemoryError: 9 GB: the GPU has too little free memory: nvidia-smi lists what uses "
            "it, and a smaller batch_size or data_residency=host needs less; variant=cpu and "
            "svm_backend=sklearn need no GPU",
        ),
        ({"raises": "interrupt"}, 130, "data d1: interrupted; the same command goes on from here"),
        (
            {"full": errno.ENOSPC},
            1,
            "data d1: no room left to write results/big.npy; free some disk and run again, "
            "nothing that was finished is lost",
        ),
    ],
)
def test_a_fault_is_one_line_on_the_terminal_in_the_log_and_for_the_end(
    call, tmp_path, params, status, message
):
    done = call(params)
    assert done.returncode == status
    assert done.stderr.strip().splitlines()[-1] == message and "Traceback" not in done.stderr
    assert (tmp_path / "errors").read_text() == message + "\n"
    assert message in (tmp_path / "logs/d1.log").read_text()
    assert not (done.folder / "manifest.json").exists()


@pytest.mark.parametrize(
    "params, words",
    [
        ({"raises": "bug"}, "ZeroDivisionError: bug"),
        ({"full": errno.EIO}, "OSError: [Errno 5] Input/output error: 'results/big.npy'"),
        ({"deep": True}, r"RecursionError: maximum recursion depth exceeded\nin two lines"),
    ],
)
def test_a_bug_is_one_line_and_its_traceback_is_in_the_log(call, tmp_path, params, words):
    done, log = call(params), tmp_path / "logs/d1.log"
    message = f"data d1: {words}; its traceback is in {log}"
    assert (
        done.returncode == 1
        and done.stderr == message + "\n"
        and (tmp_path / "errors").read_text() == message + "\n"
    )
    assert "Traceback (most recent call last)" in log.read_text() and "script.py" in log.read_text()


@pytest.mark.parametrize("place", ["d1", "logs", "errors"])
def test_a_place_where_nothing_can_be_written_is_one_line(call, tmp_path, place):
    if place == "errors":
        (tmp_path / "errors").mkdir()
    else:
        (tmp_path / place).write_text("a file")
    done = call({"raises": "user"})
    words = (
        "the wrong thing"
        if place == "errors"
        else f"{place}: File exists; it has to be a place where this user may write"
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert words in done.stderr.splitlines()[-1]


def test_a_log_on_a_full_disk_does_not_hide_the_message(call):
    done = call({"raises": "user"}, "--log", "/dev/full")
    assert done.returncode == 1 and done.stderr == "data d1: the wrong thing; do another\n"


def test_a_missing_input_is_one_line(call, tmp_path):
    done = call({}, inputs={"data": str(tmp_path / "nowhere")})
    assert (
        done.returncode == 1
        and "nowhere holds no finished artifact" in done.stderr.splitlines()[-1]
    )


def test_a_module_that_the_version_does_not_count_is_named(call):
    done = call({}, declared={})
    assert done.returncode == 1 and f"ran {NAME}, which its version does not count" in done.stderr


def test_a_source_edited_after_the_run_was_planned_is_named(call):
    done = call({}, declared={NAME: "0" * 16})
    assert (
        done.returncode == 1
        and f"{NAME} changed after this run was planned; run it again" in done.stderr
    )


def test_an_artifact_is_made_again_only_if_it_was_whole_before_the_command_began(call):
    def threads_of(number, **told):
        call.told |= told
        return artifacts.Artifact(call({}, "--threads", number).folder).metrics["threads"]

    assert threads_of("1") == 1
    assert threads_of("2") == 1, "no command has begun"
    assert threads_of("2", started=time.time_ns() - 10**12) == 1, (
        "another command has made it meanwhile"
    )
    assert threads_of("2", started=time.time_ns(), damaged=["d1"]) == 1, (
        "only its manifest was damaged"
    )
    assert threads_of("2", started=time.time_ns(), damaged=[]) == 2


def test_a_failed_run_is_an_error_and_kept_only_on_request(call, tmp_path):
    assert (
        call({"raises": "failed"}).returncode == 1 and not (tmp_path / "d1/manifest.json").exists()
    )
    call.told["keep_failed"] = True
    assert call({"raises": "failed"}).returncode == 0
    assert artifacts.Artifact(tmp_path / "d1").failed == "it diverged"
    of_it = {"data": str(tmp_path / "d1")}
    assert (
        call({}, inputs=of_it, output="d2").returncode == 0
        and artifacts.Artifact(tmp_path / "d2").failed == "it diverged"
    )
    assert call({"raises": "user"}, output="d3").returncode == 1, (
        "a fault that another machine may not have is never kept"
    )

    call.told |= {"keep_failed": False, "started": time.time_ns()}
    for output, inputs in (("d1", {}), ("d4", of_it)):
        done = call({} if inputs else {"raises": "failed"}, inputs=inputs, output=output)
        assert (
            done.returncode == 1
            and done.stderr.strip().splitlines()[-1] == f"data {output}: it diverged"
        )
