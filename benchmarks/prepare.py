"""What gpu_check.py needs on a machine that can download nothing: kernels compiled before, and the
list of files to carry.
"""

import concurrent.futures
import functools
import itertools
import multiprocessing
import pathlib
import sys

import cases
import chain
import sections
import tiles
from cases import LOSS_SCALE
from ladder.arithmetic import multipliers
from ladder.errors import UserError
from ladder.executors.cuda import executor as cuda_executor
from ladder.executors.cuda import nvrtc
from ladder.machine import runtime
from ladder.network import optimizers
from ladder.plan import plan
from ladder.progress import size
from ladder.rungs import catalog
from ladder.sources import ROOT
from ladder.store import disk
from ladder.training import inference
from ladder.verify import parity

HERE = pathlib.Path(__file__).resolve().parent
CEILINGS = HERE / "ceilings.cu", ()
EXTRACTED = 60_000  # images
# T4, A100, RTX 3060, Jetson AGX Orin, none published, RTX 4090, H100 and H200, B200, B300, Jetson
# T5000, RTX 5090, GB10: by NVIDIA's documents, as roofline.FLOP_PER_CYCLE has them.
MULTIPROCESSORS = {
    "sm_75": 40,
    "sm_80": 108,
    "sm_86": 28,
    "sm_87": 16,
    "sm_88": 16,
    "sm_89": 128,
    "sm_90": 132,
    "sm_100": 148,
    "sm_103": 160,
    "sm_110": 20,
    "sm_120": 170,
    "sm_121": 48,
}
PARTS = "benchmarks", "kernels", "workflow"
PROGRAM = (
    "benchmarks/*.py",
    "benchmarks/*.cu",
    "benchmarks/counts.json",
    "benchmarks/measured_steps.json",
    "kernels/**/*.cu*",
    "kernels/*/rung.toml",
    "workflow/**/*",
    "emulator/src/cuda_emulator/*",
    "Snakefile",
    "config.yaml",
    "config/*",
    "profiles/default/*",
    "envs/cpu.*",
)


def prepare(arguments):
    """Compile for arguments.architecture all that a check of the rungs launches, and get the
    wheels; lines: what to do next.

    arguments.nvrtc: the CUDA version that NVRTC must have here, as '13.0', or None. Raises
    UserError.
    """
    out, architecture, version = arguments.out.resolve(), arguments.architecture, arguments.nvrtc
    here = ".".join(map(str, nvrtc.version()))
    if version not in (None, here):
        raise UserError(
            f"NVRTC here is of CUDA {here}, not {version}; make gpu-prepare brings that of 13.0, and another comes "
            f"into an environment by pip install numpy cuda-bindings=={version}.* nvidia-cuda-nvrtc=={version}.*"
        )
    number = int(architecture.removeprefix("sm_"))
    rungs = [
        rung
        for rung in cases.newest_first(arguments.rungs)
        if catalog.RUNGS[rung].oldest <= number <= (catalog.RUNGS[rung].newest or number)
    ]
    every = (*sections.HEADLINES, *sections.OTHERS, sections.LARGE, *sections.multiplied())
    first = [rung for rung in rungs if rung in (arguments.rungs or cases.HEADLINE_RUNGS)]
    needed = dict.fromkeys(
        [
            CEILINGS,
            *(
                file
                for case in every
                for file in launched(case, rungs, MULTIPROCESSORS[architecture])
            ),
            *(
                file
                for case in chain.CASES
                for file in launched(case, first, MULTIPROCESSORS[architecture])
            ),
        ]
    )
    others = [
        file
        for rung in first
        for file in files(tiles.plans(sections.HEADLINES[0], rung))
        if file not in needed
    ]
    print(
        f"compiling {len({*needed, *others})} files for {architecture} on {runtime.available_cores()} cores",
        file=sys.stderr,
    )
    failed = compile_all(needed, architecture)
    if failed:
        raise UserError(failed[0])
    lost = compile_all(dict.fromkeys(others), architecture)
    kernels = cuda_executor.find_cubin(CEILINGS[0], architecture, ()).parent
    disk.write_atomically(kernels / cuda_executor.CARRIED, f"{here}\n".encode())
    return [
        f"{len({*needed, *others})} files of kernels for {architecture}, by NVRTC {here}: {kernels}",
        *(f"a tile that does not compile is left out: {reason}" for reason in lost),
        *chain.prepare(out, arguments.python),
        *carried(out),
    ]


def carried(out):
    """Write out/carry.txt, the files of the program that a check needs on another machine; lines
    about them and `out`.
    """
    program = sorted(
        {
            path
            for pattern in PROGRAM
            for path in ROOT.glob(pattern)
            if path.is_file() and path.parent.name != "__pycache__"
        }
    )
    disk.write_atomically(
        out / "carry.txt", "".join(f"{path.relative_to(ROOT)}\n" for path in program).encode()
    )
    sizes = {
        part: sum(path.stat().st_size for path in program if path.is_relative_to(ROOT / part))
        for part in PARTS
    }
    sizes[out.name] = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return [
        f"to carry: {len(program)} files of the program and {out.name}: "
        + ", ".join(f"{part} {size(count)}" for part, count in sizes.items()),
        f"tar -czf gpu-check.tgz -C {ROOT} -T {out / 'carry.txt'} -C {out.parent} {out.name}",
        f"and there, where it is unpacked: python3 benchmarks/gpu_check.py --out {out.name} --minutes 13 --mirror DIR",
        "with DIR a folder that is kept: it gets the results after every section, and the same command goes on from them",
    ]


def launched(case, rungs, multiprocessors=None):
    """[(path, macros)] of the CUDA files that these rungs launch for a case; multiprocessors: of
    the GPU.
    """
    return files(lowered for rung in rungs for lowered in plans(case, rung, multiprocessors))


def files(lowered_plans):
    """[(path, macros)] of the CUDA files of plans."""
    steps = (step for lowered in lowered_plans for step in (*lowered.prologue, *lowered.steps))
    return list(
        dict.fromkeys(
            (nvrtc.KERNELS / launch.source, launch.defines)
            for step in steps
            for launch in step.launches
        )
    )


def plans(case, rung, multiprocessors):
    """The plans of a case: of its steps with Adam; of parity and of an extraction too where the
    products are exact.
    """
    network, chosen = (
        case.network,
        multipliers.ByDirection.everywhere(multipliers.find(case.multiplier)),
    )
    if not chosen.exact and cases.precision(rung) != "fp32":
        return
    settings = functools.partial(
        plan.TrainingSettings,
        network=network,
        rung=rung,
        multiprocessors=multiprocessors,
        multipliers=plan.made_for(rung) if chosen.exact else chosen,
    )
    dataset = plan.Dataset(case.images, "uint8")
    for batch in {case.batch, case.images % case.batch} - {0}:
        step = settings(
            batch_size=batch,
            optimizer=optimizers.Optimizer("adam"),
            loss_scale=LOSS_SCALE if case.multiplier == "fp16" else 1,
        )
        yield plan.training_plan(step, dataset, plan.Length(1, 1))
    if not chosen.exact:
        return
    for protocol in parity.protocols(network, catalog.RUNGS[rung].precision).values():
        yield plan.training_plan(
            settings(
                batch_size=parity.batch_size(network),
                optimizer=protocol.optimizer,
                gradient_scale=protocol.gradient_scale,
            ),
            dataset,
            plan.Length(1, 1),
        )
    for batch in {inference.BATCH, EXTRACTED % inference.BATCH, case.images % inference.BATCH} - {
        0
    }:
        yield plan.inference_plan(
            network, rung, batch, dataset, network.features, multipliers=plan.made_for(rung)
        )


def compile_all(files, architecture):
    """Compile those of the CUDA files that are not in the cache, in as many processes as there are
    cores; [why some failed].
    """
    missing = [
        file for file in files if not cuda_executor.find_cubin(file[0], architecture, file[1])
    ]
    if not missing:
        return []
    with concurrent.futures.ProcessPoolExecutor(
        runtime.available_cores(), multiprocessing.get_context("spawn")
    ) as pool:
        return sorted(filter(None, set(pool.map(_fault, missing, itertools.repeat(architecture)))))


def _fault(file, architecture):
    try:
        cuda_executor.cubin(file[0], architecture, file[1])
        return None
    except UserError as error:
        return str(error)
