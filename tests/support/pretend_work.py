"""benchmarks/rung_work.py and torch_gpu.py without a GPU, CuPy or PyTorch: steps that take made-up
times, for worker processes.

Rungs take 3000 us and more by their names' length, at least $FLOOR_US. PyTorch takes 4000 us in
fp32, half of it in tf32 and a quarter in bf16 and fp16; graphs are faster, channels_last and
compiling too.
"""

import os

import fake_faults
from cases import CONTENDERS, precision

_prepared = set()


def machine():
    return {
        "gpu": "Fake",
        "device": "Fake, driver 1.0",
        "architecture": "sm_80",
        "driver": "1.0",
        "nvrtc": [12, 9],
        "cupy": "0.0",
        "numpy": "0.0",
        "cuml": "0.0",
        "torch": "0.0",
        "pci_address": "",
    }


def ceilings():
    return {"fp32_flop_per_second": 5e13, "copy_bytes_per_second": 4e12, "bf16": 6e14}


def check(case, rung):
    return {
        "parity": {"sgd": {"largest": 1e-4, "tensor": "w", "tolerance": 2e-3}},
        "same_bytes": True,
        "passed": True,
    }


def kernels(case, rungs):
    return {"files": 4}


def launches(case, rung):
    times = {"median_us": 7.0, "low_us": 6.5, "high_us": 8.0, "repetitions": 5}
    return {
        "step_us": microseconds(rung),
        "launching": "as CUDA graphs",
        "launches": [
            {
                "place": "enc1 forward",
                "kernel": "gpu_gemm/conv2d.cu conv2d_forward",
                "stream": 0,
                **times,
            },
            {
                "place": "advance",
                "kernel": "gpu_basic/update.cu advance",
                "stream": 0,
                "median_us": None,
            },
        ],
    }


def tiles(case, rung):
    return {
        "step_us": microseconds(rung),
        "tiles": [
            {
                "places": ["enc1 forward"],
                "own": "128x64",
                "tile": tile,
                "median_us": more,
                "low_us": more,
                "high_us": more,
            }
            for tile, more in (("64x64", 3.0), ("128x128", -2.0))
        ],
    }


def convolutions(case, precision):
    return {
        "rows": [
            {"layer": "enc1", "operation": name, "median_us": 30.0, "low_us": 29.0, "high_us": 31.0}
            for name in ("conv2d_forward", "conv2d_weight_grad")
        ]
    }


def microseconds(name):
    if name not in CONTENDERS:
        return 3000 + len(name)
    one = CONTENDERS[name]
    base = {"fp32": 4000, "tf32": 2000, "bf16": 1000, "fp16": 1000}[one.precision]
    forms = {"compiled": 0, "max-autotune": 150, "eager": 200}
    return base + 300 * (not one.graph) + forms[one.form] + 100 * (not one.channels_last)


def screen(case, name):
    return {"us": [microseconds(name)] * 3, "prepare_seconds": 1}


def prepare(case, name):
    _prepared.add(name)
    found = {"batch": case["batch"], "precision": precision(name), "step_us": microseconds(name)}
    if name in CONTENDERS:
        return found
    return found | {
        "flop": 1e9,
        "launching": "one by one (refused)",
        "floor_us": float(os.environ.get("FLOOR_US", 1)),
    }


def turn(name, steps):
    if name not in _prepared:
        raise KeyError(f"{name} is not prepared in this process")
    return {"us": [microseconds(name)] * steps}


def epoch(case, name):
    return {"batch": case["batch"], "images": case["images"], "steps": 4, "seconds": 0.5}


def extraction(case, name):
    return {"images": 12, "seconds": 0.25}


def streaming(case, rung):
    return {
        "device_us": 1000,
        "host_us": 1010,
        "copy_us": 100,
        "waited_us": 10,
        "hidden_share": 0.9,
    }


def svm():
    return {
        "solver": "cuML",
        "rows": 50_000,
        "test_rows": 10_000,
        "fit_seconds": 30,
        "predict_seconds": 1,
    }


def forget():
    _prepared.clear()


globals().update(
    fake_faults.faulty(
        {
            name: globals()[name]
            for name in (
                "machine",
                "ceilings",
                "kernels",
                "check",
                "screen",
                "prepare",
                "turn",
                "epoch",
                "extraction",
                "streaming",
                "svm",
                "launches",
                "tiles",
                "convolutions",
                "forget",
            )
        }
    )
)
