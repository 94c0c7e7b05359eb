"""One line for each thing that can be wrong with a rung, found without a GPU: `make check
RUNG=mine`.

    compiles     NVRTC compiles its kernels for every architecture, none spills registers, and every
                 GPU accepts its launches
    runs         every kernel of its own runs in three orders of threads and blocks, every access to
                 memory watched: bounds, races, divergent barriers and whatever else the emulator
                 finds
    trains       five updates of small networks with every kind of layer change the weights as on
                 the cpu rung, and of two of many channels if only these run a kernel of its own
    counts       the time of the autoencoder's training step, predicted from counts
                 (docs/prediction.md), of the rung and of the one below: faster or slower, neither
                 of which is wrong

The first that fails ends the check with status 1: those after it would only repeat it. "Its own"
are the kernels in its folder, and launches that the rung below does not make.
"""

import argparse
import dataclasses
import functools
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "workflow/scripts"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "emulator/src"))

import count
import cuda_emulator
import disassembly
import emulated
import emulator_executor
import plan_checks
import rung_checks
import table
import zoo
from ladder.errors import UserError, excerpt, one_line
from ladder.executors import create as executors
from ladder.executors.cuda import nvrtc
from ladder.network import networks
from ladder.plan import plan
from ladder.rungs import catalog, counted
from ladder.verify import parity
from rung_plans import AUGMENTED

import numpy as np  # isort: skip (after ladder)

NETWORK = networks.build("autoencoder")
SAME = 0.005  # of a time: less is no difference
MOST_SHOWN = 250  # characters of a verdict


@dataclasses.dataclass(frozen=True)
class Verdict:
    """kind: "compiles", "runs" or "trains", or what is wrong; text: the details, one line."""

    right: bool
    kind: str
    text: str


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rung")
    rung = parser.parse_args().rung
    gpu = list(filter(catalog.uses_gpu, catalog.RUNGS))
    if rung not in gpu:
        sys.exit(
            f"RUNG={excerpt(rung)}: say which rung, as in make check RUNG=gpu_basic; there are {', '.join(gpu)}"
        )
    right = True
    for verdict in verdicts(rung):
        print(f"{rung}: {verdict.kind}: {one_line(verdict.text, MOST_SHOWN)}", flush=True)
        right = right and verdict.right
    sys.exit(0 if right else 1)


def verdicts(rung, checks=None):
    """The Verdicts on a rung up to the first that is not right; checks: some of them, by default
    all.
    """
    for check in checks or (compiles, runs, trains, counts):
        try:
            verdict = check(rung)
        except UserError as error:
            verdict = Verdict(False, "error", str(error))
        except cuda_emulator.CompileError as error:
            verdict = Verdict(False, "does not compile", _first_error(str(error)))
        except cuda_emulator.KernelFault as fault:
            verdict = Verdict(False, fault.kind, str(fault).replace(f"{fault.kind}: ", "", 1))
        except Exception as error:  # of the rung's module: whatever its author wrote
            verdict = Verdict(False, "its module fails", _failure(error))
        yield verdict
        if not verdict.right:
            return


# ---- the checks


def compiles(rung):
    """NVRTC compiles, without spilling, and every GPU accepts the launches."""
    launches = {launch: made for made in plans(rung) for launch in plan_checks.every_launch(made)}
    for launch, made in launches.items():
        if wrong := plan_checks.wrong_arguments(launch, made):
            return Verdict(
                False, "wrong arguments", f"{launch.entry} of {launch.source}: {wrong[0]}"
            )
    files = sorted({(launch.source, launch.defines) for launch in launches if is_own(launch, rung)})
    if not files:
        below = catalog.RUNGS[rung].below
        return Verdict(
            False, "nothing of its own", f"no network runs a kernel that {below} does not run"
        )
    if not nvrtc.installed():
        return Verdict(True, "compiles", "not checked: NVRTC is not installed (envs/kernels.txt)")
    architectures = [
        one
        for one in nvrtc.ARCHITECTURES
        if int(one.removeprefix("sm_")) >= catalog.RUNGS[rung].oldest
    ]
    for architecture in architectures:
        for file in files:
            compiled = nvrtc.compile_file(nvrtc.KERNELS / file[0], architecture, file[1])
            for entry, resources in compiled.kernels.items():
                if resources.spill_bytes:
                    return Verdict(
                        False,
                        "spills registers",
                        f"{entry} of {file[0]}: {resources.spill_bytes} bytes, for {architecture}",
                    )
            for launch, made in launches.items():
                if (launch.source, launch.defines) == file:
                    refused = plan_checks.refusals(
                        launch, made, compiled.kernels[launch.entry], architecture
                    )
                    if refused:
                        return Verdict(
                            False,
                            "impossible launch",
                            f"{launch.entry} of {launch.source}, batch {made.batch}: "
                            f"{refused[0]} ({architecture})",
                        )
    return Verdict(
        True,
        "compiles",
        f"{_count(len(files), 'file')} of its own for {', '.join(architectures)}, without "
        "spills; every GPU accepts its launches",
    )


class Watched(emulator_executor.Executor):
    """Runs launches of the rung's own in three orders of threads and blocks, every access
    watched.
    """

    def __init__(self, rung):
        super().__init__()
        self.rung, self.kernels = rung, set()

    def launch(self, launch, arrays):
        if not is_own(launch, self.rung):
            return super().launch(launch, arrays)
        arguments = [rung_checks.passed(argument, arrays) for argument in launch.arguments]
        cuda_emulator.check(
            emulator_executor.function(launch),
            launch.grid,
            launch.block,
            arguments,
            launch.shared_bytes,
        )
        self.kernels.add((launch.source, launch.entry, launch.defines))


def runs(rung):
    """One update of each small network, watched."""
    executor = Watched(rung)
    for network in check_networks(rung).values():
        parity.train(
            network,
            rung,
            executor,
            parity.protocols(network)["momentum"],
            batches=(parity.batch_size(network),),
            multipliers=plan.made_for(rung),
        )
    kernels, networks = (
        _count(len(executor.kernels), "kernel"),
        _count(len(check_networks(rung)), "network"),
    )
    if not executor.kernels:
        return Verdict(False, "nothing runs", "no small network runs a kernel of its own")
    return Verdict(
        True,
        "runs",
        f"{kernels} of its own in {networks} and {len(cuda_emulator.ORDERS)} orders of threads: no "
        "access out of bounds, no race",
    )


def trains(rung):
    """The updates of small networks, of the images that the limits were measured with."""
    precision = catalog.RUNGS[rung].precision
    worst, allowed = (0.0, "", ""), rung_checks.SMALL[precision]
    for name, network in check_networks(rung).items():
        protocol, reference = (
            parity.protocols(network, precision)["momentum"],
            reference_of(name, precision, plan.made_for(rung)),
        )
        trained = parity.train(
            network,
            rung,
            emulator_executor.Executor(),
            protocol,
            follow=reference,
            augmentation=AUGMENTED,
            multipliers=plan.made_for(rung),
        )
        found = parity.deviations(network, trained, reference)
        tensor = max(found, key=lambda one: (not np.isfinite(found[one]), found[one]))
        if not found[tensor] <= allowed:
            return Verdict(
                False,
                "wrong tensor",
                f"{tensor} of network {name} deviates from the cpu rung's by "
                f"{found[tensor]:.1e} of its update, {allowed:.0e} is allowed",
            )
        worst = max(worst, (found[tensor], tensor, name))
    return Verdict(
        True,
        "trains",
        f"as the cpu rung: {worst[1]} of network {worst[2]} deviates most, by {worst[0]:.1e} of its "
        f"update, {allowed:.0e} is allowed",
    )


def counts(rung):
    """The predicted time beside that of a rung below (table.compared)."""
    if not (nvrtc.installed() and disassembly.installed()):
        return Verdict(
            True,
            "counts",
            "not made: NVRTC or the disassembler is not installed (envs/kernels.txt)",
        )
    known = counted.read()["launches"]
    _, found, row = count.of_rung(rung, known)
    text = f"{_predicted(row)} us a step predicted for an H200, bound by {row['bound_by']}"
    if (below := table.compared(rung)) is None:
        return Verdict(True, "counts", text)
    _, _, other = count.of_rung(below, known | found)
    ratio = other["middle"] / row["middle"]
    kind = (
        "as fast by counts"
        if abs(ratio - 1) < SAME
        else "faster by counts"
        if ratio > 1
        else "slower by counts"
    )
    return Verdict(
        True, kind, f"{text}: {ratio:.2f} times as fast as {below}, {_predicted(other)} us"
    )


def _predicted(row):
    return counted.span(*row["predicted"]["H200"])


@functools.cache
def reference_of(name, precision, multipliers):
    network = (zoo.NETWORKS | zoo.OF_MANY_CHANNELS)[name]
    return parity.train(
        network,
        "cpu",
        executors.create("cpu", os.cpu_count()),
        parity.protocols(network, precision)["momentum"],
        augmentation=AUGMENTED,
        multipliers=multipliers,
    )


# ---- what is the rung's own


@functools.cache
def check_networks(rung):
    """{name: network} that are trained: of those of many channels, first, the ones that run a file
    of the rung's own which no small network runs; and all small ones.
    """
    small = {source for network in zoo.NETWORKS.values() for source in own_files(network, rung)}
    return {
        name: network
        for name, network in zoo.OF_MANY_CHANNELS.items()
        if own_files(network, rung) - small
    } | zoo.NETWORKS


def own_files(network, rung):
    made = rung_checks.training_plan(rung, network, parity.batch_size(network))
    return {launch.source for launch in plan_checks.launches(made) if is_own(launch, rung)}


@functools.cache
def plans(rung):
    """A training step of every network, and of the autoencoder at its real batch."""
    made = [
        rung_checks.training_plan(rung, network, parity.batch_size(network))
        for network in (*zoo.NETWORKS.values(), *zoo.OF_MANY_CHANNELS.values())
    ]
    made.append(rung_checks.training_plan(rung, NETWORK))
    return [
        *made,
        plan.inference_plan(
            NETWORK, rung, 64, plan.Dataset(64, "uint8"), multipliers=plan.made_for(rung)
        ),
    ]


def is_own(launch, rung):
    """True for a kernel in the rung's folder, and for one of a file that is compiled as the rung
    below never does.
    """
    return launch.source.startswith(f"{rung}/") or (launch.source, launch.defines) not in _of_below(
        rung
    )


@functools.cache
def _of_below(rung):
    below = catalog.RUNGS[rung].below
    return {
        (launch.source, launch.defines)
        for made in (plans(below) if below else ())
        for launch in plan_checks.launches(made)
    }


def _failure(error):
    """The last place of a traceback that is in a rung's module, and the error."""
    place, trace = "", error.__traceback__
    while trace:
        path = pathlib.Path(trace.tb_frame.f_code.co_filename)
        place = f"{path.name}:{trace.tb_lineno}: " if path.parent.name == "rungs" else place
        trace = trace.tb_next
    return f"{place}{type(error).__name__}: {error}"


def _first_error(text):
    """Of g++'s messages the first error, without the folders before the file."""
    line = next((line for line in text.splitlines() if " error: " in line), text)
    return line.replace(f"{emulated.KERNELS}/", "")


def _count(number, what):
    return f"{number} {what}{'' if number == 1 else 's'}"


if __name__ == "__main__":
    main()
