"""What runs a plan's steps.

An executor has
    place(arrays)            the arrays where its plans can use them, by name (on a GPU: copied to the device)
    allocate(plan, placed)   arrays for all buffers of a plan by name: those in `placed`, the others new and zero; of several
                             plans over the same placed arrays the one with the largest batch first
    run(plan, arrays)        run the steps once, in order
    fill(array, values)      overwrite a placed array from the host
    fetch(array)             a placed array's values as a NumPy array
    seconds                  time spent by kind of work; setting it starts anew from what an interrupted run had spent
    measures_every_step      whether `seconds` is of all steps, or of samples scaled up; can be set to True
    device(), workspace_bytes()
    device_bytes()           what the driver says was taken of the GPU's memory; None without a GPU
    synchronize()            wait until everything is done
"""

import importlib

from ladder.rungs.variants import VARIANTS

# The module of each kind of executor, loaded by name: a machine without a GPU has no CuPy to import.
EXECUTORS = {"numpy": "ladder.executors.cpu.executor", "numba": "ladder.executors.sequential",
             "cuda": "ladder.executors.cuda.executor"}


def create(variant, threads, data_residency="auto"):
    """An executor for the variant; threads: how many CPU threads it may use; data_residency: see cuda_executor.py."""
    kind = VARIANTS[variant].executor
    module = importlib.import_module(EXECUTORS[kind])
    return module.Executor(threads, data_residency) if kind == "cuda" else module.Executor(threads)
