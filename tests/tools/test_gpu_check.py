"""`make gpu-check`: its order, its page and the file to send in, with workers and a
compute-sanitizer that are stand-ins.
"""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

import cases
import gpu
import gpu_check
import gpu_page
import page_text
import processes
import profile_rung
import programs
import results
import sanitizer
import synthetic_gpu
from ladder.machine import driver
from ladder.machine.worker import Failed
from ladder.rungs import catalog, counted
from ladder.sources import ROOT

# A compute-sanitizer that finds three hazards of gpu_gemm, does not know initcheck, and nothing
# else.
SANITIZER = """#!/bin/sh
echo "========= COMPUTE-SANITIZER"
case "$*" in
*"racecheck --racecheck-report all"*gpu_gemm*) echo "========= Error: Race reported between Read access and Write access"
    echo "=========     at conv2d+0x5c80 in conv2d.cu"
    seq -f "=========     and thread %g of the block" 1000
    echo "========= RACECHECK SUMMARY: 3 hazards displayed (3 errors, 0 warnings)"; exit 86;;
*racecheck*) echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)";;
*initcheck*) echo "========= Error: Device not supported. Please refer to the documentation"; exit 1;;
*) echo "[[]]"; echo "========= ERROR SUMMARY: 0 errors";;
esac
"""


@pytest.fixture
def tool(monkeypatch, tmp_path):
    """tool(name, text) installs a program of NVIDIA's."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(programs, "PLACES", ())
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")

    def tool(name, text):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
        return str(tmp_path / "bin" / name)

    return tool


@pytest.fixture
def check(monkeypatch, tmp_path):
    """check(*arguments) runs gpu_check with made-up workers in tmp_path/out."""
    measure = synthetic_gpu.set_up(
        monkeypatch, tmp_path, {"rungs": "pretend_work", "torch": "pretend_work"}
    )

    def check(*arguments, **faults):
        measure.faults(faults)
        gpu_check.main(
            ["--out", str(tmp_path / "out"), "--rungs", "gpu_basic,gpu_gemm", *arguments]
        )
        return tmp_path / "out"

    return check


def test_it_prints_what_is_installed_checks_measures_and_writes_both_files(check, tool, capsys):
    tool("compute-sanitizer", SANITIZER)
    out = check()
    printed = capsys.readouterr()
    assert "Fake (sm_80), 86 GB" in printed.out and "ncu: not installed" in printed.out
    record = json.loads((out / "record.json").read_text())
    (sent,) = out.glob("Fake-*.json")
    assert json.loads(sent.read_text()) == record and str(sent) in printed.out
    names = list(record["sections"])
    looks = [
        f"first look: PyTorch {precision} compiled channels_last graph"
        for precision in cases.PRECISIONS
    ]
    checked = [f"{name}: {rung}" for name in sanitizer.TOOLS for rung in ("gpu_gemm", "gpu_basic")]
    rungs = [
        f"{kind}gpu_{rung}"
        for kind in ("launches: ", "parity: small, ")
        for rung in ("gemm", "basic")
    ]
    chain = [f"chain: {run}, gpu" for run in ("config.yaml", "PCA and ridge")]
    before = [
        name for name in names if not name.startswith(("epoch", "extraction", "svm", "streaming"))
    ]
    first = [
        "kernels: small, batch 2",
        *rungs,
        "ceilings",
        "PyTorch",
        "PyTorch's ceilings",
        *looks,
        "race: small, batch 2",
        *checked,
        *(f"cuDNN: {precision}" for precision in cases.PRECISIONS),
        *chain,
        "tiles: gpu_gemm",
        "tiles: gpu_basic",
    ]
    assert before[: len(first)] == first and record["left_out"] == []
    last = names[names.index("race: labelled, batch 3, fp16") :]
    assert {"chain: config.yaml, cpu", "chain: PCA and ridge, cpu"} <= set(last), (
        "unless they were carried"
    )
    assert record["sections"]["chain: config.yaml, gpu"]["of"] == ["gpu_gemm"], "the faster of both"


def test_the_page_says_what_was_found_and_what_failed(check, tool):
    tool("compute-sanitizer", SANITIZER)
    text = page_text.text_of((check(svm="the driver is too old") / "index.html").read_text())
    assert (
        "Right: 2 of 2 rungs agree with the cpu rung within their tolerances and give the same bytes twice. "
        "compute-sanitizer: 3 errors in " in text
    )
    assert f"There was no time for {len(cases.gpu_rungs()) - 2} other rungs." in text
    assert "Against PyTorch: PyTorch takes 1.33 times as long as gpu_gemm in fp32" in text
    assert "3: Error: Race reported between Read access and Write access" in text
    assert "at conv2d+0x5c80 in conv2d.cu" in text and "lines more" in text
    assert "launches one by one (refused)" in text, "a capture that CuPy refuses is seen"
    assert "gpu_gemm: 3008 µs a step, launches as CUDA graphs" in text and "7.0 (6.5-8.0)" in text
    assert (
        "config.yamlgpu_gemm90.010,0003.0Fake" in text
        and "30.0 (29.0-31.0)" in text
        and "-2.0 (-2.0--2.0)" in text
    )
    assert (
        "initcheck: gpu_basic: compute-sanitizer ended with status 1: Error: Device not supported."
        in text
    )
    assert (
        "svm: RuntimeError: the driver is too old" in text
        and "fp32 compiled channels_last graph4000 (4000-4000)" in text
    )
    assert "gpu_gemm100010101001090" in text, "a copy of 100 µs, of which 90 % are hidden"


def test_a_page_of_a_record_without_measurements_can_be_made(check, monkeypatch):
    monkeypatch.setattr(gpu.Session, "left", synthetic_gpu.until(5))
    out = check(check__gpu_basic="cudaErrorNoKernelImageForDevice", check__gpu_gemm="hang up")
    text = page_text.text_of((out / "index.html").read_text())
    assert "0 of 2 rungs agree" in text and "not measured" in text
    assert "RuntimeError: cudaErrorNoKernelImageForDevice" in text
    left = json.loads((out / "record.json").read_text())["left_out"]
    kinds = gpu_page.left_out({"left_out": left})
    assert (
        f"There was no time for {len(left)} sections" in text
        and f"parity: {'; '.join(kinds['parity'])}" in text
    )
    assert sum(map(len, kinds.values())) == len(left) > len(kinds)


def test_without_a_gpu_there_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(driver, "gpu_count", lambda: 0)
    with pytest.raises(
        SystemExit, match="^gpu-check needs an NVIDIA GPU and no driver answers here$"
    ):
        gpu_check.main(["--out", str(tmp_path / "out")])


def test_what_a_tool_says_is_kept_up_to_a_length(tool):
    found = sanitizer.check(tool("compute-sanitizer", SANITIZER), "racecheck", "gpu_gemm", 10)
    assert found["errors"] == 3 and found["said"][1] == "at conv2d+0x5c80 in conv2d.cu"
    assert (
        sum(len(line) + 1 for line in found["said"]) <= sanitizer.MOST
        and len(found["said"]) + found["left_out"] == 1003
    )


def test_the_mirror_alone_is_enough_to_go_on(check, tmp_path, monkeypatch, capsys):
    mirror, gpu_left = tmp_path / "kept/mirror", gpu.Session.left
    monkeypatch.setattr(gpu.Session, "left", synthetic_gpu.until(6))
    out = check("--mirror", str(mirror))
    first = json.loads((mirror / "record.json").read_text())
    assert len(first["sections"]) == 6 and {path.name for path in mirror.iterdir()} == {
        "record.json",
        "log.txt",
        "index.html",
        next(out.glob("Fake-*.json")).name,
    }
    shutil.rmtree(out)
    for path in mirror.iterdir():
        if path.name != "record.json":
            path.unlink()
    monkeypatch.setattr(gpu.Session, "left", gpu_left)
    again = json.loads(
        (check("--mirror", str(mirror), "--only", "chain") / "record.json").read_text()
    )
    assert all(again["sections"][name] == section for name, section in first["sections"].items())
    assert (
        len(again["sections"]) == 10 and json.loads((mirror / "record.json").read_text()) == again
    )
    assert (mirror / "report.html").read_text() == "PCA and ridge with auto" and len(
        list(mirror.iterdir())
    ) == 5
    capsys.readouterr()


def test_a_mirror_that_cannot_be_written_costs_no_measurement(check, tmp_path, monkeypatch, capsys):
    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gpu.disk, "write_atomically", full)
    out = check("--mirror", str(tmp_path / "mirror"), "--only", "ceilings,PyTorch")
    assert list(json.loads((out / "record.json").read_text())["sections"]) == [
        "ceilings",
        "PyTorch",
    ]
    assert (
        f"not copied to {tmp_path / 'mirror'}: [Errno 28] No space left on device"
        in capsys.readouterr().err
    )


def test_what_is_measured_is_in_the_mirror_when_a_call_is_ended(tmp_path, monkeypatch):
    synthetic_gpu.set_up(
        monkeypatch, tmp_path, {"rungs": "pretend_work", "torch": "pretend_work"}
    ).faults({"check gpu_basic": "hang"})
    mirror = tmp_path / "mirror"
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
import pathlib, pytest, synthetic_gpu, gpu_check
synthetic_gpu.stand_in(pytest.MonkeyPatch(), {{"rungs": "pretend_work", "torch": "pretend_work"}})
gpu_check.main(["--out", {str(tmp_path / "out")!r}, "--rungs", "gpu_basic", "--mirror", {str(mirror)!r}])
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    waited = time.monotonic() + 60
    while "launches: gpu_basic" not in _sections(mirror):
        assert process.poll() is None and time.monotonic() < waited
        time.sleep(0.05)
    time.sleep(0.5)  # in which the next section begins to hang
    process.terminate()
    printed = process.communicate(timeout=20)[0]
    assert process.returncode == 143
    assert "to send in" in printed and (mirror / "index.html").exists()


def _sections(mirror):
    path = mirror / "record.json"
    return json.loads(path.read_text())["sections"] if path.exists() else {}


@pytest.mark.parametrize("target", ["gpu-check", "profile"])
def test_make_without_a_gpu_says_so_before_it_installs_anything(tool, tmp_path, target):
    tool("nvidia-smi", "#!/bin/sh\nexit 9\n")
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    alone = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")
    }
    ended = processes.run("make", target, cwd=tmp_path, env=alone)
    assert (
        ended.stdout
        == "this needs an NVIDIA GPU and its driver, and nvidia-smi does not answer here\n"
    )
    assert (
        ended.returncode != 0
        and [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    )


def test_the_whole_call_ends_in_its_time(check):
    began = time.monotonic()
    out = check("--minutes", "0.02", check__gpu_gemm="hang")
    assert (
        time.monotonic() - began < 15 and json.loads((out / "record.json").read_text())["left_out"]
    )


def test_a_gpu_that_no_process_can_use_ends_in_one_line(check):
    with pytest.raises(
        SystemExit,
        match="^gpu-check: the GPU cannot be used: RuntimeError: cudaErrorDevicesUnavailable$",
    ):
        check(machine="cudaErrorDevicesUnavailable")


def test_a_sanitizer_that_hangs_is_ended_with_what_it_started(tool):
    program = tool("compute-sanitizer", "#!/bin/sh\nsleep 60 &\nwait\n")
    with pytest.raises(Failed, match="was ended after 1 s"):
        sanitizer.check(program, "memcheck", "gpu_basic", 1)


def test_only_tools_that_are_installed_are_called(monkeypatch, tool):
    assert (
        list(sanitizer.sections(["gpu_basic"])) == list(profile_rung.sections(["gpu_basic"])) == []
    )
    tool("compute-sanitizer", SANITIZER)
    monkeypatch.setattr(
        catalog,
        "unavailable",
        lambda rung: "needs a GPU of sm_90" if rung == "gpu_bf16_sm90" else None,
    )
    assert [one.name for one in sanitizer.sections(["gpu_bf16_sm90", "gpu_basic"])] == [
        f"{name}: gpu_basic" for name in ("racecheck", "memcheck", "synccheck", "initcheck")
    ]


def test_a_page_is_made_again_from_the_file_that_was_sent_in(check, tmp_path):
    out = check()
    (sent,) = out.glob("Fake-*.json")
    gpu_page.main(sent, tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text() == (out / "index.html").read_text()
    with pytest.raises(
        SystemExit, match="^index.html in out is no record of benchmarks/gpu_check.py$"
    ):
        gpu_page.main(out / "index.html", tmp_path / "again.html")


def test_the_state_of_the_gpu_is_that_of_nvidia_smi(tool, tmp_path):
    machine = {"pci_address": "0000:00:1E.0"}
    tool(
        "nvidia-smi",
        f"#!/bin/sh\necho $* > {tmp_path}/asked\necho '1980, 3201, 41, [N/A], 700.00, 97'\n",
    )
    assert gpu.state(machine) == {
        "clocks.sm": "1980",
        "clocks.mem": "3201",
        "temperature.gpu": "41",
        "power.draw": "[N/A]",
        "power.limit": "700.00",
        "utilization.gpu": "97",
    }
    assert "--id=0000:00:1E.0" in (tmp_path / "asked").read_text()
    tool("nvidia-smi", "#!/bin/sh\necho 'Unable to determine the device handle'\nexit 15\n")
    assert gpu.state(machine) == {}


def test_a_launch_stands_beside_its_prediction_where_they_are_the_same_launches():
    timeline = counted.read()["rungs"]["gpu_tf32"]["timeline"]
    rows = [
        {"place": row[0], "kernel": row[1], "median_us": 2.0, "low_us": 1.0, "high_us": 3.0}
        for row in timeline
    ]
    timed = {"step_us": 1000.0, "launching": "as CUDA graphs", "launches": rows}
    kernels = counted.read()["rungs"]["gpu_tf32"]["kernels"]
    raced = {"rows": [{"name": "gpu_tf32", "kernels": kernels}]}
    made = {
        "made": "2026-02-01",
        "machine": {},
        "sections": {
            "launches: gpu_tf32": {"result": timed},
            "race: autoencoder, batch 64": {"result": raced},
        },
    }
    (found,) = gpu_page.launches(made)
    assert [row[2] for row in found["rows"]] == [f"{row[4]:.1f}" for row in timeline]
    assert found["rows"][0][:4] == [
        "load_batch",
        timeline[0][1].split()[1],
        f"{timeline[0][4]:.1f}",
        "2.0 (1.0-3.0)",
    ]
    raced["rows"][0]["kernels"] = "0123456789abcdef"
    assert {row[2] for row in gpu_page.launches(made)[0]["rows"]} == {""}, "of other kernels"
    raced["rows"][0]["kernels"], rows[3]["kernel"] = kernels, "mine/conv2d.cu conv2d"
    assert {row[2] for row in gpu_page.launches(made)[0]["rows"]} == {""}


def test_a_verdict_counts_only_rungs_that_passed():
    checked = {
        "parity": {"sgd": {"largest": 1.0, "tolerance": 1e-3}},
        "same_bytes": True,
        "passed": False,
    }
    record = {"sections": {"parity: autoencoder, gpu_basic": {"result": checked}}}
    verdict = gpu_page.verdict(record)
    assert verdict.startswith("Right: 0 of 1 rungs agree") and verdict.endswith(", not gpu_basic.")


def test_the_page_of_a_card_leads_with_the_verdict():
    for record in results.records():
        heads = list(gpu_page.verdicts(record))
        assert heads[0] == "Right" and heads[-1] == "Of the limit"
        assert ("Against PyTorch" in heads) == any(
            pair["ratio"] for pair in results.comparisons(record)
        )
        for pair in results.comparisons(record):
            limit, percent = gpu_page.of_limit(record, pair["rung"])
            if limit:
                share = 100 * float(limit) / pair["rung"]["median_us"]
                assert 0 < share < 100 and float(percent) == pytest.approx(share, abs=1)
