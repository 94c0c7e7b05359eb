"""`make profile`: what is asked of ncu and nsys, and what is printed of their answers; both are stand-ins."""

import json
import os
import shutil
import sys
import types

import pytest

import fake_cupy
import small_networks
import zoo
from ladder.executors.cuda import executor as cuda_executor
from ladder.machine import driver
from ladder.sources import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import one_step  # noqa: E402
import profile_rung  # noqa: E402
import tools  # noqa: E402

LAUNCHED = [["enc1", "conv2d_relu_maxpool2d_forward", "conv"], ["", "update", "adam"]]
LISTED = ["Device Fake (GA100)", "------", "Metric Name  Metric Type  Metric Unit  Metric Description", *(
    f"{names[-1].partition('.')[0]}   Counter   %   text" for names in profile_rung.METRICS.values())]
# Of each quantity the last candidate is in the list above.
ASKED = {quantity: names[-1] for quantity, names in profile_rung.METRICS.items()}


def csv_of(*rows):
    """ncu's raw page; rows: values by quantity."""
    head = ["ID", "Kernel Name", *ASKED.values()]
    units = ["", "", *("nsecond" if name == "us" else "%" for name in ASKED)]
    values = [[str(number), "conv(float*)", *(str(row[name]) for name in ASKED)] for number, row in enumerate(rows)]
    lines = [",".join(f'"{cell}"' for cell in line) for line in (head, units, *values)]
    return "\n".join(["==PROF== Connected to process 1", *lines, ""])


FIRST = {"us": "150,000", "tensor": 0, "fma": 61.25, "L2": 20, "DRAM": 10, "shared": 40, "wavefronts": "1,000",
         "conflicts": 250, "occupancy": 50}
SECOND = {"us": 50000, "tensor": 5, "fma": 1, "L2": 60, "DRAM": 90, "shared": "n/a", "wavefronts": 0, "conflicts": 0,
          "occupancy": 90}


@pytest.fixture
def install(monkeypatch, tmp_path):
    """install(name, script) puts a program of NVIDIA's on the only path; its arguments go to the file `asked`."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(tools, "PLACES", ())
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr(profile_rung.catalog, "no_gpu", lambda: None)

    def install(name, script):
        path = tmp_path / "bin" / name
        note = f"open({str(tmp_path / 'asked')!r}, 'w').write(' '.join(sys.argv))"
        path.write_text(f"#!{sys.executable}\nimport sys\n{note}\n{script}")
        path.chmod(0o755)
        return tmp_path / "asked"

    return install


def ncu(*rows, then=""):
    """A script of ncu that knows LISTED, and reports rows."""
    return f"""
if "--query-metrics" in sys.argv:
    print({chr(10).join(LISTED)!r})
else:
    open(sys.argv[sys.argv.index("--log-file") + 1], "w").write({csv_of(*rows)!r})
    print({json.dumps(LAUNCHED)!r})
{then}"""


def test_the_five_metrics_of_every_kernel_are_printed(install, capsys):
    asked = install("ncu", ncu(FIRST, SECOND))
    profile_rung.main(["gpu_basic", "--batch", "32"])
    head, first, second, total = capsys.readouterr().out.splitlines()
    assert first.split() == ["enc1", "conv(float*)", "150.0", "fma", "61.2", "20.0", "10.0", "40.0", "25.0", "50.0"]
    assert second.split() == ["conv(float*)", "50.0", "tensor", "5.0", "60.0", "90.0", "0.0", "0.0", "90.0"]
    assert total.split()[5:] == ["200.0", "fma", "46.2", "30.0", "30.0", "30.0", "25.0", "60.0"]   # means weighted by time
    assert head.split()[:2] == ["layer", "kernel"]
    words = asked.read_text().split()
    assert words[words.index("--metrics") + 1] == ",".join(ASKED.values()), "the candidates that this GPU has"
    assert "--profile-from-start off --clock-control none" in " ".join(words)
    assert words[-4:] == [str(ROOT / "benchmarks/one_step.py"), "gpu_basic", "--batch", "32"]


@pytest.mark.parametrize("script, reason", [
    ("print('==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'); sys.exit(1)",
     "ncu may not read this GPU's counters (ERR_NVGPUCTRPERM): run it as root"),
    ("print('==ERROR== Failed to initialize the profiler: LibraryNotLoaded'); sys.exit(9)",
     "ncu ended with status 9: ==ERROR== Failed to initialize the profiler: LibraryNotLoaded"),
    (ncu(FIRST), "ncu saw 1 kernels of 2 launches")])
def test_a_profiler_that_fails_ends_in_one_line(install, script, reason):
    install("ncu", script)
    with pytest.raises(SystemExit) as stopped:
        profile_rung.main(["gpu_basic"])
    assert str(stopped.value).startswith(reason) and "\n" not in str(stopped.value)


def test_a_profiler_that_hangs_is_ended(install, monkeypatch):
    monkeypatch.setattr(profile_rung, "SECONDS", 1)
    install("ncu", "import time; time.sleep(60)")
    with pytest.raises(SystemExit, match="^ncu was ended after 1 s"):
        profile_rung.main(["gpu_basic"])


def test_without_ncu_nsys_prints_times(install, capsys):
    asked = install("nsys", "print('[[\"enc1\"]]'); print('Time (%)  conv')")
    profile_rung.main(["gpu_basic"])
    assert capsys.readouterr().out.splitlines() == [
        "ncu (Nsight Compute) is not installed here, so there are times only:", "Time (%)  conv"]
    assert "--capture-range=cudaProfilerApi" in asked.read_text()


def test_without_a_profiler_or_a_gpu_there_is_one_line(install, monkeypatch):
    with pytest.raises(SystemExit, match="^neither ncu .* nor nsys .* is installed here"):
        profile_rung.main(["gpu_basic"])
    monkeypatch.setattr(profile_rung.catalog, "no_gpu", lambda: "needs an NVIDIA GPU and no driver answers here")
    with pytest.raises(SystemExit, match="^profiling gpu_basic needs an NVIDIA GPU"):
        profile_rung.main(["gpu_basic"])


@pytest.mark.parametrize("rung, network", [("gpu_basic", small_networks.PLAIN), ("gpu_bf16", zoo.WIDE)],
                         ids=["gpu_basic", "gpu_bf16, whose weights are copied first"])
def test_one_step_makes_the_launches_that_it_prints(monkeypatch, tmp_path, capsys, rung, network):
    if shutil.which("g++") is None:
        pytest.skip("no g++ (Debian package: g++)")
    driver.gpu_count()   # which is kept; below its library is another one
    machine, called = fake_cupy.install(monkeypatch, tmp_path), []
    library = types.SimpleNamespace(cuProfilerStart=lambda: called.append(len(machine.launched)),
                                    cuProfilerStop=lambda: called.append(len(machine.launched)))
    monkeypatch.setattr(one_step.ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(one_step, "HEADLINES", [types.SimpleNamespace(network=network)])
    one_step.main([rung, "--batch", "2", "--warm-up", "1"])
    printed = json.loads(capsys.readouterr().out)
    started, stopped = called
    assert [name for name, _ in machine.launched[started:stopped]] == [kernel for _, _, kernel in printed]
    assert (network.layers[0].name in {layer for layer, _, _ in printed}) and started == len(printed)
    assert (["", "copy_weights", "copy_weights"] in printed) == (rung == "gpu_bf16")
    step = {"copy_weights": ()}   # by operation: copies are made before a sequence of steps
    assert machine.ranged[started:stopped] == [((*step.get(operation, ("step",)), f"{layer}: {operation}"), kernel)
                                               for layer, operation, kernel in printed]
    cuda_executor._cupy.cache_clear()
