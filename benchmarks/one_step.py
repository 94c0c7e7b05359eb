"""A few training steps of the autoencoder on one rung, for compute-sanitizer, ncu and nsys to look at.

    python benchmarks/one_step.py RUNG [--batch 64] [--warm-up 3]

The last step runs launch by launch on one stream, between cuProfilerStart and cuProfilerStop, each of the plan's steps in the
NVTX range "layer: operation" that every training has. It prints its launches as a JSON list of [layer, operation, kernel].
"""

import argparse
import ctypes
import json

import timing
from cases import HEADLINES, gpu_rungs
from ladder.executors import create as executors
from ladder.training import plan


def main(arguments=None):
    arguments = parse(arguments)
    executor, case = executors.create(arguments.rung, 1, "device"), HEADLINES[0]
    steps = arguments.warm_up + 1
    lowered, arrays = timing.bind(executor, case.network, arguments.rung, arguments.batch, arguments.batch * steps, steps,
                               multipliers=plan.made_for(arguments.rung))
    for _ in range(arguments.warm_up):
        executor.run(lowered, arrays)
    executor.synchronize()
    profiler = ctypes.CDLL("libcuda.so.1")
    executor.measures_every_step = True
    profiler.cuProfilerStart()
    executor.run(lowered, arrays)
    executor.synchronize()
    profiler.cuProfilerStop()
    steps = (*lowered.prologue, *lowered.steps)   # a run begins with copies of the weights where the rung has such
    print(json.dumps([[step.layer, step.operation, launch.entry] for step in steps for launch in step.launches]))


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rung", choices=gpu_rungs())
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--warm-up", type=int, default=3, help="steps before the one that counts")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
