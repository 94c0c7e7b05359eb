"""Sections of ncu: what is asked of it, and what is kept of its answers; it is a stand-in."""

import json
import os
import shutil
import sys
import types

import pytest

import fake_cupy
import one_step
import profile_rung
import programs
import small_networks
import zoo
from ladder.executors.cuda import executor as cuda_executor
from ladder.machine import driver
from ladder.machine.worker import Failed
from ladder.sources import ROOT

LAUNCHED = [
    ["enc1 forward", "gpu_opt_v2/conv2d.cu conv2d_pool_forward"],
    ["update", "gpu_basic/update.cu adam_update"],
]
LISTED = [
    "Device Fake (GA100)",
    "------",
    "Metric Name  Metric Type  Metric Unit  Metric Description",
    *(
        f"{names[-1].partition('.')[0]}   Counter   %   text"
        for names in profile_rung.METRICS.values()
    ),
]
# Of each quantity the last candidate is in the list above.
ASKED = {quantity: names[-1] for quantity, names in profile_rung.METRICS.items()}


def csv_of(*rows):
    """ncu's raw page; rows: values by quantity."""
    head = ["ID", "Kernel Name", *ASKED.values()]
    units = ["", "", *("nsecond" if name == "us" else "%" for name in ASKED)]
    values = [
        [str(number), "conv(float*)", *(str(row[name]) for name in ASKED)]
        for number, row in enumerate(rows)
    ]
    lines = [",".join(f'"{cell}"' for cell in line) for line in (head, units, *values)]
    return "\n".join(["==PROF== Connected to process 1", *lines, ""])


FIRST = {
    **dict.fromkeys(profile_rung.METRICS, 1),
    "us": "150,000",
    "fma": 61.25,
    "wavefronts": "1,000",
}
SECOND = {**dict.fromkeys(profile_rung.METRICS, 2), "us": 50000, "shared": "n/a"}


@pytest.fixture
def install(monkeypatch, tmp_path):
    """install(name, script) puts a program of NVIDIA's on the only path; its arguments go to the
    file `asked`.
    """
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(programs, "PLACES", ())
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    profile_rung.known_metrics.cache_clear()

    def install(name, script):
        path = tmp_path / "bin" / name
        note = f"open({str(tmp_path / 'asked')!r}, 'w').write(' '.join(sys.argv))"
        path.write_text(f"#!{sys.executable}\nimport sys\n{note}\n{script}")
        path.chmod(0o755)
        return str(path)

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


def test_the_metrics_of_every_launch_are_kept(install, tmp_path):
    program = install("ncu", ncu(FIRST, SECOND))
    first, second = profile_rung.profile(program, "gpu_basic", 10)["launches"]
    assert (
        (first["place"], first["kernel"]) == tuple(LAUNCHED[0])
        and first["us"] == 150
        and first["wavefronts"] == 1000
    )
    assert first.keys() == {"place", "kernel", *profile_rung.METRICS} and second["shared"] == 0
    asked = (tmp_path / "asked").read_text().split()
    assert asked[asked.index("--metrics") + 1] == ",".join(ASKED.values()), (
        "the candidates that this GPU has"
    )
    assert "--profile-from-start off --clock-control none --cache-control none" in " ".join(asked)
    assert asked[-2:] == [str(ROOT / "benchmarks/one_step.py"), "gpu_basic"]


@pytest.mark.parametrize(
    "script, reason",
    [
        (
            "print('==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'); sys.exit(1)",
            "ncu may not read this GPU's counters (ERR_NVGPUCTRPERM): run it as root",
        ),
        (
            "print('==ERROR== Failed to initialize the profiler: LibraryNotLoaded'); sys.exit(9)",
            "ncu ended with status 9: ==ERROR== Failed to initialize the profiler: LibraryNotLoaded",
        ),
        (ncu(FIRST), "ncu saw 1 kernels of 2 launches"),
        (
            ncu(FIRST, then="import time; time.sleep(0 if '--query-metrics' in sys.argv else 60)"),
            "was ended after 1 s",
        ),
    ],
)
def test_a_profiler_that_fails_is_one_line(install, script, reason):
    with pytest.raises(Failed) as failed:
        profile_rung.profile(install("ncu", script), "gpu_basic", 1)
    assert str(failed.value).startswith(reason) and "\n" not in str(failed.value)


@pytest.mark.parametrize(
    "rung, network",
    [("gpu_basic", small_networks.PLAIN), ("gpu_bf16", zoo.WIDE)],
    ids=["gpu_basic", "gpu_bf16, whose weights are copied first"],
)
def test_one_step_makes_the_launches_that_it_prints(monkeypatch, tmp_path, capsys, rung, network):
    if shutil.which("g++") is None:
        pytest.skip("no g++ (Debian package: g++)")
    driver.gpu_count()  # which is kept; below its library is another one
    machine, called = fake_cupy.install(monkeypatch, tmp_path), []
    library = types.SimpleNamespace(
        cuProfilerStart=lambda: called.append(len(machine.launched)),
        cuProfilerStop=lambda: called.append(len(machine.launched)),
    )
    monkeypatch.setattr(one_step.ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(one_step, "HEADLINES", [types.SimpleNamespace(network=network)])
    one_step.main([rung, "--batch", "2", "--warm-up", "1"])
    printed = json.loads(capsys.readouterr().out)
    started, stopped = called
    assert [name for name, _ in machine.launched[started:stopped]] == [
        kernel.split()[1] for _, kernel in printed
    ]
    assert f"{network.layers[0].name} forward" in {
        place for place, _ in printed
    } and started == len(printed)
    copied = [place for place, _ in printed].count("copy_weights")
    assert copied == (rung == "gpu_bf16")
    ranges = [names[:-1] for names, _ in machine.ranged[started:stopped]]
    assert ranges == [()] * copied + [("step",)] * (len(printed) - copied)
    cuda_executor._cupy.cache_clear()
