"""What runs a plan's steps.

An executor has
    place(arrays)            the arrays where its plans can use them, by name (on a GPU: copied to the device)
    allocate(plan, placed)   arrays for all buffers of a plan by name: those in `placed`, the others new and zero
    run(plan, arrays)        run the steps once, in order
    fill(array, values)      overwrite a placed array from the host
    fetch(array)             a placed array's values as a NumPy array
    seconds                  time spent by kind of work
    device(), workspace_bytes()
"""

import importlib

from .variants import VARIANTS


def create(variant, threads):
    """An executor for the variant; threads: how many CPU threads it may use."""
    module = importlib.import_module(f".{VARIANTS[variant].executor}_executor", __package__)
    return module.Executor(threads)
