"""benchmarks/rung_work.py on a made-up GPU (fake_cupy) and small networks, for a worker process of
benchmarks/gpu_check.py.
"""

import os
import pathlib

import pytest

import cases
import fake_cupy
import fake_faults
import launch_times
import prepare as preparation
import rung_work
import small_networks
import timing
from ladder.machine import driver

SMALL = {"FLUSH_BYTES": 4096, "COPY_BYTES": 4096, "COPIES": 2, "ROUNDS": 2, "BLOCKS": 2, "LOOPS": 2}

patch = pytest.MonkeyPatch()
fake_cupy.install(patch, pathlib.Path(os.environ["FAKE_FOLDER"]))
patch.setattr(cases.networks, "build", small_networks.build)
patch.setattr(driver, "sm_clock", lambda: 1500)
patch.setattr(driver, "pci_address", lambda: "00000000:01:00.0")
patch.setattr(driver, "gpu_size", lambda: driver.Size(108, 1.41e9, 1.2e9, 5120, 40 << 20))
patch.setattr(rung_work, "ROWS", 12)
for name, value in {"STEPS": 1, "TURNS": 1, "MOST": 1}.items():
    patch.setattr(launch_times, name, value)
patch.setattr(preparation, "compile_all", lambda files, architecture: [])
for name, value in SMALL.items():
    patch.setattr(timing, name, value)

globals().update(
    fake_faults.faulty(
        {
            name: getattr(rung_work, name)
            for name in (
                "machine",
                "ceilings",
                "kernels",
                "launches",
                "check",
                "prepare",
                "turn",
                "epoch",
                "extraction",
                "streaming",
                "svm",
                "tiles",
                "forget",
            )
        }
    )
)
