"""What gpu_check.py measures of the rungs; its functions run in a process of their own
(ladder/machine/worker.py).

They return what JSON can hold.
"""

import functools
import gc
import hashlib
import os
import statistics
import sys
import time

import launch_times
import numpy_reference
import prepare as preparation
import results
import step_kernels
import tiles as tile_times
import timing
from cases import LOSS_SCALE, Case, precision, products
from ladder.arithmetic import multipliers
from ladder.classifiers import backends
from ladder.data import normalization
from ladder.errors import UserError
from ladder.executors import create as executors
from ladder.executors.create import COPIES, WAITING
from ladder.executors.cuda import executor as cuda_executor
from ladder.machine import driver, libraries
from ladder.network import networks, optimizers, weights
from ladder.plan import plan
from ladder.rungs import catalog, counted
from ladder.rungs.catalog import RUNGS
from ladder.training import training
from ladder.training.inference import Inference
from ladder.verify import measure_rungs
from timing import roofline

import numpy as np  # isort: skip (after ladder)

ROWS = 60_000  # images of an extraction
WARM_UP = 10  # steps before a time counts
CHECKED = 20  # steps that are made twice and must give the same bytes
SVM_ROWS, SVM_TEST_ROWS, SVM_FEATURES, CLASSES = 50_000, 10_000, 8192, 10
STREAMED, LOOKS = 100, 5  # steps with images on the GPU, and with streamed ones; how often

_prepared = {}  # rung -> (executor, plan, arrays)


class Unavailable(Exception):
    """Something that this machine lacks; the message says what."""


def machine():
    """The GPU and the versions of what computes; no name of a host or of a person."""
    executor, gpu, size = executors.create("gpu_basic", 1), driver.gpu(), driver.gpu_size()
    return {
        "device": executor.device(),
        "gpu": gpu.name,
        "architecture": gpu.architecture,
        "memory_bytes": gpu.memory_bytes,
        "multiprocessors": size.multiprocessors,
        "highest_mhz": size.hertz / 1e6,
        "memory_mhz": size.memory_hertz / 1e6,
        "bus_bits": size.bus_bits,
        "level_2_bytes": size.level_2_bytes,
        "block_shared_bytes": gpu.block_shared_bytes,
        "pci_address": driver.pci_address(),
        "driver": driver.version(),
        "driver_cuda": driver.cuda_version(),
        "nvrtc": cuda_executor.compilers()[0],
        "cupy": executor.cupy.__version__,
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "cuml": next(iter(libraries.versions(["cuml"]).values()), None),
    }


def ceilings():
    """What this GPU was measured to do at most, and what its clock rates allow: by precision, None
    where that is unknown.
    """
    executor, gpu = executors.create("gpu_basic", 1), driver.gpu()
    measured = timing.ceilings(executor)
    peaks = {
        name: roofline.peak(gpu.architecture, driver.gpu_size(), name) for name in roofline.H200
    }
    return {
        "copy_bytes_per_second": measured.bytes,
        "fp32_flop_per_second": measured.flop,
        "peak_flop_per_second": {name: peak and peak.flop for name, peak in peaks.items()},
    }


def kernels(case, rungs):
    """Compile all that these rungs launch for a case, side by side; what is in the cache is not
    compiled again.
    """
    usable = [rung for rung in rungs if catalog.unavailable(rung) is None]
    files = preparation.launched(Case.from_dict(case), usable)
    faults = preparation.compile_all(files, driver.gpu().architecture)
    if faults:
        raise UserError(
            f"{len(faults)} of {len(files)} files of kernels do not compile, the first: {faults[0]}"
        )
    return {"files": len(files)}


launches = launch_times.launches


def tiles(case, rung):
    """See tiles.tiles; what is not compiled yet is, side by side."""
    preparation.compile_all(
        preparation.files(tile_times.plans(Case.from_dict(case), rung)), driver.gpu().architecture
    )
    return tile_times.tiles(case, rung)


def check(case, rung):
    """Parity with the cpu rung, or with NumPy where there is no Numba, and reproducibility: see
    measure_rungs.check.
    """
    case = Case.from_dict(case)
    references = _references(case.name, case.input_shape, case.options, RUNGS[rung].precision)
    checked = measure_rungs.check(case.network, rung, os.cpu_count(), references)
    return {"reference": "cpu" if _has_numba() else "NumPy", **checked}


def prepare(case, rung):
    """Make a rung ready for turns of training steps; the numbers of its plan, and the time of a
    step.
    """
    case = Case.from_dict(case)
    steps = case.images // case.batch
    first, finite = _trained(case, rung, min(CHECKED, steps))
    if _trained(case, rung, min(CHECKED, steps))[0] != first:
        raise RuntimeError("two runs of the same steps end in different bytes")
    if not finite:
        raise RuntimeError("the weights are not finite")
    executor = executors.create(rung, 1, "device")
    lowered, arrays = _bind(executor, case, rung, steps)
    _prepared[rung] = executor, lowered, arrays
    executor.prepare(lowered, arrays)
    peak = roofline.peak(driver.gpu().architecture, driver.gpu_size(), products(rung))
    return {
        "batch": case.batch,
        "multiplier": case.multiplier,
        "precision": precision(rung),
        "same_bytes_twice": True,
        "step_us": statistics.median(turn(rung, min(WARM_UP, steps))["us"]),
        **_kernels(rung, lowered),
        "flop": lowered.flop,
        "bytes": roofline.plan_bytes(lowered),
        "launches": sum(len(step.launches) for step in lowered.steps),
        "launching": executor.launching(),
        "floor_us": peak and 1e6 * roofline.floor(lowered.flop, 0, peak),
        "planned_bytes": sum(lowered.bytes_by_kind().values()),
        "driver_bytes": executor.device_bytes(),
    }


def _kernels(rung, lowered):
    """The digest of a plan's kernels, and what is predicted of them for this card: what is measured
    of them stands beside it when there are others.
    """
    digest, record = step_kernels.digest(lowered), counted.read()
    counts = record["rungs"].get(rung, {})
    if counts.get("kernels") != digest:
        return {"kernels": digest}
    predicted = results.interval(counts, driver.gpu().name)
    return {"kernels": digest, "predicted": predicted, "dated": record["dates"][rung]}


def turn(rung, steps):
    """{"us": microseconds of a step in each lap of `steps` steps (timing.laps), "mhz"}, from the
    first image on.
    """
    executor, lowered, arrays = _prepared[rung]
    executor.fill(arrays["counters"], 0)
    microseconds, mhz = timing.laps(executor, lowered, arrays, steps)
    return {"us": microseconds, "mhz": mhz}


def epoch(case, rung):
    """Seconds of the second epoch on random images, as a run makes it: shuffled, with its last
    partial batch.
    """
    case = Case.from_dict(case)
    network, images = case.network, _images(case.network, case.images)
    settings = plan.TrainingSettings(
        network=network,
        rung=rung,
        batch_size=case.batch,
        optimizer=optimizers.Optimizer("adam"),
        multipliers=plan.made_for(rung),
        learning_rate=1e-3,
        epochs=2,
    )
    run = training.Training(
        settings,
        images,
        normalization.measure("unit", images),
        weights.initialize(network, 0),
        1,
        "device",
    )
    run.run_epoch()
    run.executor.seconds = {}
    started = time.perf_counter()
    run.run_epoch()
    run.executor.synchronize()
    seconds = time.perf_counter() - started
    return {
        "batch": case.batch,
        "images": case.images,
        "steps": run.length.steps_per_epoch,
        "seconds": seconds,
        "losses": run.losses,
        "by_work": run.executor.seconds,
    }


def extraction(case, rung):
    """Seconds to compute the features of ROWS images in memory and to download them."""
    network = Case.from_dict(case).network
    images = _images(network, ROWS)
    encoder = Inference(
        network,
        rung,
        weights.initialize(network, 0),
        normalization.measure("unit", images),
        1,
        until=network.features,
        multipliers=plan.made_for(rung),
    )
    for _, values in encoder.batches(images[:256]):
        first = values  # compiles and loads
    started, total = time.perf_counter(), 0
    for _, values in encoder.batches(images):
        total += len(values)
    seconds = time.perf_counter() - started
    if total != ROWS or not np.isfinite(first).all():
        raise RuntimeError(f"{total} of {ROWS} images came back, or their features are not finite")
    return {"images": ROWS, "seconds": seconds}


def streaming(case, rung):
    """How much of the copying of streamed images is hidden behind the computation.

    Steps with images on the GPU and with images copied batch by batch, in turns; copy_us,
    waited_us: of a copy, and of what a step waits for it, by events in one of SAMPLE_EVERY steps
    (executor.py), as the report of a run has them; hidden_share: of the copy. What the host takes
    to gather a batch is in host_us alone.
    """
    case = Case.from_dict(case)
    steps = min(STREAMED, case.images // case.batch)
    bound, measured = {}, {"device": [], "host": []}
    for residency in measured:
        executor = executors.create(rung, 1, residency)
        bound[residency] = (executor, *_bind(executor, case, rung, steps))
    for number in range(1 + LOOKS):
        for residency, (executor, lowered, arrays) in bound.items():
            executor.fill(arrays["counters"], 0)
            microseconds, _ = timing.laps(executor, lowered, arrays, steps)
            if number:
                measured[residency] += microseconds
            else:  # the first turn warms up
                executor.seconds = {}
    spent = bound["host"][0].seconds
    copy, waited = (
        1e6 * spent[work] / (LOOKS * (steps - steps % timing.LAP or steps))
        for work in (COPIES, WAITING)
    )
    device, host = (statistics.median(measured[residency]) for residency in ("device", "host"))
    return {
        "batch": case.batch,
        "device_us": device,
        "host_us": host,
        "copy_us": copy,
        "waited_us": waited,
        "hidden_share": 1 - min(1, waited / copy),
    }


def svm():
    """Seconds of an SVM on the GPU: fit on as many rows and features as CIFAR-10 gives, and
    predict.

    The features are made up: a centre for each class, and noise so that the classes overlap.
    """
    reason = backends.unavailable("cuml")
    if reason:
        raise Unavailable(reason)
    from ladder.classifiers import svm as machines

    random = np.random.default_rng(0)
    centres = random.standard_normal((CLASSES, SVM_FEATURES), np.float32)
    labels = random.integers(0, CLASSES, SVM_ROWS + SVM_TEST_ROWS)
    features = random.standard_normal((len(labels), SVM_FEATURES), np.float32)
    features *= np.float32(12)
    features += centres[labels]
    fitted, tested = slice(0, SVM_ROWS), slice(SVM_ROWS, None)
    small = random.permutation(SVM_ROWS)[:1000]
    model, _ = machines.fit(features[small], labels[small], "cuml")  # loads and compiles
    machines.predict(model, features[small], backend="cuml")
    started = time.perf_counter()
    model, solver = machines.fit(features[fitted], labels[fitted], "cuml")
    fit, started = time.perf_counter() - started, time.perf_counter()
    predicted = machines.predict(model, features[tested], backend="cuml")
    return {
        "solver": solver,
        "rows": SVM_ROWS,
        "test_rows": SVM_TEST_ROWS,
        "features": SVM_FEATURES,
        "fit_seconds": fit,
        "predict_seconds": time.perf_counter() - started,
        "support_vectors": len(model.support),
        "accuracy": float((predicted == labels[tested]).mean()),
    }


def forget():
    """Free what was prepared."""
    _prepared.clear()
    gc.collect()


@functools.lru_cache(maxsize=1)  # they are gigabytes for a deep network
def _references(name, input_shape, options, precision):
    """The reference's results, the same for all rungs of a precision."""
    network = networks.build(name, input_shape, **dict(options))
    if _has_numba():
        create = functools.partial(executors.create, measure_rungs.REFERENCE, os.cpu_count())
        return measure_rungs.references(network, precision, create)
    return measure_rungs.references(
        network, precision, functools.partial(numpy_reference.Executor, 1), rung="cpu_sequential"
    )


def _has_numba():
    try:
        import numba  # noqa: F401
    except ImportError:  # also of one that is too old for the NumPy here
        return False
    return True


def _bind(executor, case, rung, steps):
    """(plan, arrays) of a training on the case's images."""
    chosen = multipliers.ByDirection.everywhere(multipliers.find(case.multiplier))
    return timing.bind(
        executor,
        case.network,
        rung,
        case.batch,
        case.images,
        steps,
        multipliers=plan.made_for(rung) if chosen.exact else chosen,
        loss_scale=LOSS_SCALE if case.multiplier == "fp16" else 1,
    )


def _trained(case, rung, steps):
    """(digest of the weights after `steps` steps, True if all are finite)."""
    executor = executors.create(rung, 1, "device")
    lowered, arrays = _bind(executor, case, rung, steps)
    for _ in range(steps):
        executor.run(lowered, arrays)
    values = {name: executor.download(arrays[name]) for name in weights.shapes(case.network)}
    digest = hashlib.sha256(b"".join(value.tobytes() for value in values.values())).hexdigest()
    return digest, all(bool(np.isfinite(value).all()) for value in values.values())


def _images(network, count):
    return np.random.default_rng(0).integers(0, 256, (count, *network.input_shape), dtype=np.uint8)
