"""Creates the executor that runs a plan's steps.

Interface of an executor:

    upload(arrays)            {name: array} ready for use by plans (on a GPU: copied to the device)
    allocate(plan, uploaded)  {name: array} for all buffers of a plan: those in `uploaded`, the
                              others new and zero. With several plans over the same uploaded
                              arrays, call it for the largest batch first
    run(plan, arrays)         run the steps once, in order, after those of `plan.prologue`, which
                              only plans of GPU rungs have
    prepare(plan, arrays)     run the steps once, and make ready what run_many will need: after
                              that nothing is compiled. Used before the clock starts; the caller
                              puts back what the run has changed
    run_many(plan, arrays, count)
                              the same as `count` runs, with `plan.prologue` once; on a GPU
                              recorded once and replayed
    together                  runs that one call of run_many should ask for, at most: 1 where the
                              caller can look after each one
    fill(array, values)       overwrite an uploaded array from the host
    download(array)           an uploaded array's values as a NumPy array
    seconds                   {category: seconds spent}; set it to continue from the times of an
                              interrupted run. COPIES of streamed images run beside the other
                              categories; WAITING is the part that does not
    passes                    {pass of a plan's Step: seconds spent}, as `seconds`; COPIES of
                              streamed images are one too
    measures_every_step       True if `seconds` covers all steps, False if it extrapolates from
                              samples; can be set to True
    device()                  the device in words, for records
    workspace_bytes()         memory beyond the plan's buffers
    launching()               how kernel launches reach a GPU, in words; "" without a GPU
    device_bytes()            GPU memory in use according to the driver; None without a GPU
    synchronize()             wait until all work is done
"""

import functools
import importlib
import pathlib
from typing import Any

from ladder.machine import compiling
from ladder.rungs.catalog import RUNGS
from ladder.sources import ROOT, SCRIPTS, closure

COPIES, WAITING = "copies", "waiting for copies"  # categories of `seconds`
# Modules are imported by name, because a machine without a GPU has no CuPy.
EXECUTORS = {
    "numpy": "ladder.executors.cpu.executor",
    "numba": "ladder.executors.sequential",
    "cuda": "ladder.executors.cuda.executor",
}


def create(rung: str, threads: int, data_residency: str = "auto") -> Any:
    """An executor for the rung; threads: number of CPU threads; data_residency: see
    cuda/executor.py.
    """
    kind = RUNGS[rung].executor
    module = importlib.import_module(EXECUTORS[kind])
    if kind == "cuda":
        return module.Executor(threads, data_residency)
    compiling.count_numba()
    return module.Executor(threads)


@functools.cache
def sources(rung: str) -> frozenset[str]:
    """The files of a rung: its module and those it builds on, its executor, and the kernels in the
    folders that have these modules' names.
    """
    executor = RUNGS[rung].executor
    modules = closure(SCRIPTS / f"ladder/rungs/{rung}.py") | closure(
        SCRIPTS / f"{EXECUTORS[executor].replace('.', '/')}.py"
    )
    folders = [
        ROOT / "kernels/common",
        *(ROOT / "kernels" / pathlib.Path(module).stem for module in modules),
    ]
    kernels = {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in folder.glob("*.cu*")
        if executor == "cuda"
    }
    return frozenset(modules | kernels)
