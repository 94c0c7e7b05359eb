"""A few training steps of the autoencoder on one rung, for compute-sanitizer and ncu to look at.

    python benchmarks/one_step.py RUNG [--batch 64] [--warm-up 3] [--out results/gpu-check]

The last step runs launch by launch on one stream, between cuProfilerStart and cuProfilerStop, each
of the plan's steps in the NVTX range "layer: operation" that every training has. It prints its
launches as a JSON list of [place, kernel], as launch_times.py names them. Kernels that gpu_check.py
has compiled are taken from the cache in DIR.
"""

import argparse
import ctypes
import json
import pathlib

import launch_times
import programs
import timing
from cases import HEADLINES, gpu_rungs
from ladder.executors import create as executors
from ladder.plan import plan


def main(arguments=None):
    arguments = parse(arguments)
    if arguments.out:
        programs.use_cache(arguments.out)
    executor, case = executors.create(arguments.rung, 1, "device"), HEADLINES[0]
    steps = arguments.warm_up + 1
    lowered, arrays = timing.bind(
        executor,
        case.network,
        arguments.rung,
        arguments.batch,
        arguments.batch * steps,
        steps,
        multipliers=plan.made_for(arguments.rung),
    )
    for _ in range(arguments.warm_up):
        executor.run(lowered, arrays)
    executor.synchronize()
    profiler = ctypes.CDLL("libcuda.so.1")
    executor.measures_every_step = True
    profiler.cuProfilerStart()
    executor.run(lowered, arrays)
    executor.synchronize()
    profiler.cuProfilerStop()
    # a run begins with copies of the weights where the rung has such
    steps = (*lowered.prologue, *lowered.steps)
    print(
        json.dumps(
            [
                [launch_times.place_of(step), f"{launch.source} {launch.entry}"]
                for step in steps
                for launch in step.launches
            ]
        )
    )


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rung", choices=gpu_rungs())
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--warm-up", type=int, default=3, help="steps before the one that counts")
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        metavar="DIR",
        help="that of gpu_check.py, which has compiled kernels",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
