"""Steps replayed as CUDA graphs give the bytes of steps launched one by one, on a stand-in for
CuPy.
"""

import dataclasses
import logging
import types

import numpy as np
import pytest

import fake_cupy
import needs
import small_networks
import zoo
from ladder.arithmetic import randomness
from ladder.arithmetic.multipliers import PRECISIONS, to_bfloat16
from ladder.data import normalization
from ladder.errors import RunFailed
from ladder.executors.cuda import clock, launching
from ladder.executors.cuda import executor as cuda_executor
from ladder.machine import compiling, driver
from ladder.network import layers, networks, optimizers, weights
from ladder.plan import plan
from ladder.rungs import catalog
from ladder.training import inference, training
from ladder.verify import parity

pytestmark = needs.COMPILER

SMALL = networks.resolve(
    "small",
    (4, 4, 2),
    (layers.conv2d("a", 3), layers.relu("a_relu"), layers.conv2d("b", 2)),
    "a_relu",
    "mse",
)
LABELLED = small_networks.classifier((4, 4, 2), 3)
ROWS, BATCH, STEPS = 23, 2, 11  # of whole batches, in an epoch
IMAGES = np.random.default_rng(0).integers(0, 256, (ROWS, 4, 4, 2), dtype=np.uint8)
LABELS = np.random.default_rng(1).integers(0, 3, ROWS, dtype=np.uint8)
RESIDENCIES = ("device", "host")


@pytest.fixture
def pretend(monkeypatch, tmp_path):
    """A function that gives this machine a fake_cupy.Gpu and returns it. Graphs are of 3 steps, one
    step in 5 is measured.
    """
    monkeypatch.setattr(launching, "RECORDED", 3)
    monkeypatch.setattr(clock, "SAMPLE_EVERY", 5)
    yield lambda **options: fake_cupy.install(monkeypatch, tmp_path, **options)
    cuda_executor._cupy.cache_clear()


def bound(executor, network=SMALL, rung="gpu_basic", changed=lambda made: made, **settings):
    """(uploaded arrays, plan, its arrays) of two epochs."""
    length = plan.Length(2 * STEPS, STEPS)
    made = changed(
        plan.training_plan(
            plan.TrainingSettings(network=network, rung=rung, batch_size=BATCH, **settings),
            plan.Dataset(ROWS, "uint8"),
            length,
        )
    )
    uploaded = executor.upload(
        {
            "images": IMAGES,
            "labels": LABELS,
            "scale": np.full(2, 1 / 255, np.float32),
            "offset": np.zeros(2, np.float32),
            "permutation": np.arange(ROWS),
            "counters": np.zeros(3, np.int64),
            "losses": np.zeros(STEPS),
            "hits": np.zeros(STEPS),
            "learning_rates": optimizers.learning_rates(0.05, length),
            **parity.initial(network),
        }
    )
    return uploaded, made, executor.allocate(made, uploaded)


def trained(executor, calls=(STEPS,), network=SMALL, **settings):
    """{name: bytes} of weights, losses and hits after two epochs, each in calls of run_many of so
    many steps.
    """
    uploaded, made, arrays = bound(executor, network, **settings)
    found = {}
    for epoch in range(2):
        executor.fill(uploaded["permutation"], np.random.default_rng(epoch).permutation(ROWS))
        executor.fill(uploaded["counters"], [epoch * STEPS, 0, 0])
        for count in calls:
            executor.run_many(made, arrays, count)
        found |= {
            f"{name} {epoch}": executor.download(uploaded[name]).tobytes()
            for name in ("losses", "hits", *parity.initial(network))
        }
    return found


def one_by_one(residency="device"):
    executor = cuda_executor.Executor(1, residency)
    executor._launcher.refused = "not asked for"
    return executor


# ---- the same bytes

DRAWN = {"network": LABELLED, "augmentation": plan.Augmentation(flip=True, crop=1), "seed": 3}


# streams: 0 computes, 1 copies images
@pytest.mark.parametrize("eager", [(), (0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("settings", [{}, DRAWN], ids=["plain", "drawn"])
@pytest.mark.parametrize("residency", RESIDENCIES)
def test_replayed_steps_give_the_bytes_of_launches_one_by_one(pretend, residency, settings, eager):
    gpu = pretend(eager=eager)
    wanted = trained(one_by_one(residency), **settings)
    assert not gpu.replayed
    for calls in ((STEPS,), (1, 1, 9), (4, 4, 3)):
        assert trained(cuda_executor.Executor(1, residency), calls, **settings) == wanted
    assert gpu.replayed


@pytest.mark.parametrize(
    "rung", [name for name, entry in catalog.RUNGS.items() if entry.executor == "cuda"]
)
def test_every_rung_replays_its_steps(pretend, rung):
    pretend()
    for settings in ({}, {"optimizer": optimizers.Optimizer("adam")}):
        wanted = trained(one_by_one(), rung=rung, **settings)
        assert trained(cuda_executor.Executor(1), rung=rung, **settings) == wanted


@pytest.mark.parametrize("seed", range(3))
def test_the_branches_of_a_graph_are_the_streams_and_its_edges_their_waits(
    pretend, monkeypatch, seed
):
    """The stand-in runs the latest node that may run: without the waits, the bytes differ."""
    random, wanted = np.random.default_rng(seed), None

    def scattered(made):
        steps = [
            dataclasses.replace(
                one,
                launches=tuple(
                    dataclasses.replace(launch, stream=int(random.integers(3)))
                    for launch in one.launches
                ),
            )
            for one in made.steps
        ]
        return dataclasses.replace(made, steps=tuple(steps))

    pretend()
    wanted = trained(one_by_one())
    assert trained(cuda_executor.Executor(1), changed=scattered) == wanted
    monkeypatch.setattr(cuda_executor, "waits_between_streams", lambda made: [()] * 1000)
    assert trained(cuda_executor.Executor(1), changed=scattered) != wanted


@pytest.mark.parametrize("residency", RESIDENCIES)
@pytest.mark.parametrize("looks", [1, 4, 50])
def test_a_training_in_blocks_resumes_from_any_look_in_the_bytes_of_single_launches(
    pretend, monkeypatch, tmp_path, residency, looks
):
    """Twelve steps an epoch, the last of them a smaller batch; a checkpoint after every look."""
    pretend()
    monkeypatch.setattr(training, "SAVE_AFTER", -1)
    monkeypatch.setattr(training, "LOOK_EVERY", looks)

    def start():
        settings = plan.TrainingSettings(
            network=SMALL,
            rung="gpu_basic",
            batch_size=BATCH,
            epochs=3,
            seed=7,
            learning_rate=0.01,
            optimizer=optimizers.Optimizer("adam"),
        )
        return training.Training(
            settings,
            IMAGES,
            normalization.measure("unit", IMAGES),
            weights.initialize(SMALL, 0),
            1,
            residency,
        )

    def finish(run):
        while not run.done:
            run.run_epoch()
        return run.history["losses"].tobytes(), {
            name: value.tobytes() for name, value in run.values.items()
        }

    eager, whole, first, second = (start() for _ in range(4))
    eager.executor._launcher.refused = "not asked for"
    wanted = finish(eager)
    assert finish(whole) == wanted
    first.run_epoch(tmp_path / "checkpoint.safetensors")
    first.run_epoch(tmp_path / "checkpoint.safetensors")
    if looks < 12:
        assert second.restore(tmp_path / "checkpoint.safetensors") and second.step % 12
    assert finish(second) == wanted


@pytest.mark.parametrize("residency", RESIDENCIES)
def test_a_prepared_training_compiles_nothing_more_and_ends_in_the_same_bytes(pretend, residency):
    pretend()
    settings = plan.TrainingSettings(
        network=LABELLED,
        rung="gpu_basic",
        batch_size=BATCH,
        epochs=2,
        seed=7,
        learning_rate=0.01,
        optimizer=optimizers.Optimizer("adam"),
    )
    plain, run = (
        training.Training(
            settings,
            IMAGES,
            normalization.measure("unit", IMAGES),
            weights.initialize(LABELLED, 0),
            1,
            residency,
            LABELS,
        )
        for _ in range(2)
    )
    run.prepare()
    graphs = [dict(arrays.graphs) for _, arrays in run._batches]
    compiled = compiling.seconds()
    while not run.done:
        run.run_epoch()
    assert (
        compiling.seconds() == compiled and [arrays.graphs for _, arrays in run._batches] == graphs
    )
    while not plain.done:
        plain.run_epoch()
    assert run.losses == plain.losses and run.accuracies == plain.accuracies
    assert all(np.array_equal(run.values[name], value) for name, value in plain.values.items())


# ---- what is replayed, and what is not


def counted(gpu, launches):
    """Steps of each of the graphs launched."""
    return [nodes / launches for nodes in gpu.replayed]


def test_the_first_step_and_the_measured_ones_are_not_replayed_and_all_others_are(pretend):
    gpu = pretend()
    executor = cuda_executor.Executor(1)
    _, made, arrays = bound(executor)
    executor.run_many(made, arrays, 20)  # 0 is the first; 3, 8, 13 and 18 are measured
    executor.synchronize()
    assert counted(gpu, len(made.launches)) == [1, 1] + 3 * [3, 1] + [1]
    # eager, measured, and recorded once for each size
    assert len(gpu.launched) == (1 + 4 + 1 + 3) * len(made.launches)
    assert len(gpu.done) == 20 * len(made.launches)
    assert sum(executor.seconds.values()) == pytest.approx(0.001 * 20 * len(made.launches))


def test_streamed_images_have_a_graph_for_each_slot_and_are_copied_outside(pretend):
    gpu = pretend()
    executor = cuda_executor.Executor(1, "host")
    _, made, arrays = bound(executor)
    executor.run_many(made, arrays, STEPS)
    executor.synchronize()
    assert set(arrays.graphs) == {(1, 0), (1, 1)} and counted(gpu, len(made.launches)) == [1.0] * (
        STEPS - 3
    )
    assert gpu.queued.count("copy") == STEPS + 1  # one ahead


def test_a_graph_of_the_other_slot_gives_other_bytes(pretend, monkeypatch):
    pretend()
    wanted, record = trained(one_by_one("host")), launching.Launcher.recorded
    monkeypatch.setattr(
        launching.Launcher,
        "recorded",
        lambda self, arrays, slot, steps: record(self, arrays, 0, steps),
    )
    assert trained(cuda_executor.Executor(1, "host")) != wanted


def test_every_step_is_measured_if_asked_for(pretend):
    gpu = pretend()
    executor = cuda_executor.Executor(1)
    _, made, arrays = bound(executor)
    executor.measures_every_step = True
    executor.run_many(made, arrays, 7)
    assert not gpu.replayed and sum(executor.seconds.values()) == pytest.approx(
        0.001 * 7 * len(made.launches)
    )


def test_a_training_asks_for_the_steps_between_two_looks_at_once(pretend, monkeypatch):
    pretend()
    monkeypatch.setattr(training, "LOOK_EVERY", 7)
    settings = plan.TrainingSettings(network=SMALL, rung="gpu_basic", batch_size=BATCH, epochs=2)
    run = training.Training(
        settings, IMAGES, normalization.measure("unit", IMAGES), weights.initialize(SMALL, 0), 1
    )
    asked, run_many = [], run.executor.run_many
    monkeypatch.setattr(
        run.executor,
        "run_many",
        lambda made, arrays, count: (
            asked.append((made.batch, count)),
            run_many(made, arrays, count),
        ),
    )
    for monitor in (0, 5):
        run.run_epoch(monitor=monitor)
    assert asked == [(2, 4), (2, 3), (2, 4), (1, 1), (2, 2), (2, 1), (2, 5), (2, 1), (2, 2), (1, 1)]


# ---- copies of weights

COPIED = networks.resolve(
    "copied",
    (4, 4, 2),
    (
        layers.conv2d("a", 40),
        layers.relu("a_relu"),
        layers.conv2d("b", 40),
        layers.relu("b_relu"),
        layers.conv2d("c", 2),
    ),
    "a_relu",
    "mse",
)
ROUNDED = {"network": COPIED, "rung": "gpu_bf16", "multipliers": PRECISIONS["bfloat16"]}


def rounded(array):
    return (to_bfloat16(array).view(np.uint32) >> 16).astype(np.uint16)


def assert_copied(executor, uploaded, arrays):
    for name in ("b.weight", "c.weight"):
        weight = rounded(executor.download(uploaded[name]))
        assert np.array_equal(executor.download(arrays[f"{name}.packed"]), weight), name
        flipped = weight[:, ::-1, ::-1].transpose(3, 1, 2, 0)
        assert np.array_equal(
            executor.download(arrays[f"{name}.flipped"])[..., : len(weight)], flipped
        ), name


def test_the_copies_of_weights_are_those_of_the_weights_before_each_step(pretend):
    """A sequence of one run makes all copies; in longer ones the updates do."""
    pretend()
    wanted = trained(cuda_executor.Executor(1), STEPS * (1,), **ROUNDED)
    for calls in ((STEPS,), (4, 4, 3)):
        assert trained(cuda_executor.Executor(1), calls, **ROUNDED) == wanted


def test_copies_follow_weights_that_are_given(pretend):
    pretend()
    executor, given = cuda_executor.Executor(1), parity.initial(COPIED)
    uploaded, made, arrays = bound(executor, **ROUNDED)
    after = []
    for _ in range(2):
        executor.run_many(made, arrays, 7)
        assert_copied(executor, uploaded, arrays)
        after.append({name: executor.download(uploaded[name]).tobytes() for name in given})
        for name, value in {**given, "counters": [0, 0, 0]}.items():
            executor.fill(uploaded[name], value)
    assert after[0] == after[1]
    executor.run_many(made, arrays, 0)
    assert_copied(executor, uploaded, arrays)


def test_copies_follow_updates_of_other_batches_resumed_weights_and_other_plans(pretend, tmp_path):
    """The last batch of an epoch has a plan of its own, whose update writes other copies; so has
    inference.
    """
    pretend()
    settings = plan.TrainingSettings(batch_size=BATCH, epochs=2, **ROUNDED)
    made = [
        training.Training(
            settings,
            IMAGES,
            normalization.measure("unit", IMAGES),
            weights.initialize(COPIED, 0),
            1,
        )
        for _ in range(3)
    ]
    whole, single, resumed = made
    single.executor.together = 1
    for run in (whole, single):
        run.run_epoch()
        run.save(tmp_path / "checkpoint")
        run.run_epoch()
    assert resumed.restore(tmp_path / "checkpoint")
    resumed.run_epoch()
    for run in (single, resumed):
        assert {name: value.tobytes() for name, value in run.values.items()} == {
            name: value.tobytes() for name, value in whole.values.items()
        }

    executor = whole.executor
    for values in (whole.values, weights.initialize(COPIED, 1)):
        uploaded = executor.upload(
            {
                **values,
                "images": IMAGES,
                "permutation": np.arange(ROWS),
                "counters": np.zeros(3, np.int64),
                "scale": np.ones(2, np.float32),
                "offset": np.zeros(2, np.float32),
            }
        )
        steps = plan.inference_plan(
            COPIED,
            "gpu_bf16",
            BATCH,
            plan.Dataset(ROWS, "uint8"),
            multipliers=PRECISIONS["bfloat16"],
        )
        arrays = executor.allocate(steps, uploaded)
        executor.run(steps, arrays)
        executor.fill(uploaded["b.weight"], values["b.weight"] + 1)
        executor.run(steps, arrays)
        assert np.array_equal(
            executor.download(arrays["b.weight.packed"]), rounded(values["b.weight"] + 1)
        )


# ---- numbers that exceed a half


@pytest.fixture
def hopper(pretend, monkeypatch):
    gpu = pretend()
    monkeypatch.setattr(driver, "gpu", lambda: driver.Gpu("Fake", "sm_90", gpu.total, 227 << 10))
    return gpu


def in_halves(images, rung="gpu_3xf16_sm90", learning_rate=1e-10, **values):
    settings = plan.TrainingSettings(
        network=COPIED, rung=rung, batch_size=BATCH, epochs=2, seed=7, learning_rate=learning_rate
    )
    unchanged = normalization.Statistics(np.ones(2, np.float32), np.zeros(2, np.float32))
    given = {**weights.initialize(COPIED, 0), **values}
    return training.Training(settings, images, unchanged, given, 1)


def finished(run, checkpoint=None):
    while not run.done:
        run.run_epoch(checkpoint)
    return run


def result(run):
    return run.history["losses"].tobytes(), {
        name: value.tobytes() for name, value in run.values.items()
    }


@pytest.fixture
def bright():
    """One picture, in the fifth step of its epoch, is as bright as 10,000 others."""
    images = IMAGES.astype(np.float32) / 255
    order = randomness.generator(7, randomness.SHUFFLE, 0).permutation(ROWS)
    images[order[4 * BATCH]] *= 1e4
    return images


def test_steps_in_which_a_number_exceeds_a_half_are_repeated_with_smaller_powers(
    hopper, monkeypatch, tmp_path, caplog, bright
):
    """From the state before, in new graphs; launched one by one, and resumed from a checkpoint that
    was written after that or in the midst of the epoch before it, in the same bytes.
    """
    monkeypatch.setattr(training, "LOOK_EVERY", 1)
    monkeypatch.setattr(training, "KEEP_EVERY", 3)
    monkeypatch.setattr(training, "SAVE_AFTER", -1)
    monkeypatch.setattr(training.Training, "_next_stop", lambda run, done, *_: done + 1)
    run = in_halves(bright)
    first = run._batches[0][1].graphs
    with caplog.at_level(logging.WARNING):
        run.run_epoch()
    assert run.repeats == 1 and hopper.replayed and first and run._batches[0][1].graphs is not first
    assert [record.getMessage() for record in caplog.records] == [
        "the loss is nan at step 5 (epoch 1): the steps from 4 on are repeated with halves of smaller numbers (1 of 3 times)"
    ]
    wanted, exact = finished(run), finished(in_halves(bright, "gpu_3xtf32_packed"))
    np.testing.assert_allclose(wanted.history["losses"], exact.history["losses"], rtol=1e-5)
    single = in_halves(bright)
    single.executor._launcher.refused = "not asked for"
    assert result(finished(single)) == result(wanted)
    for stop in (5, 9):
        stopped = in_halves(bright)
        monkeypatch.setattr(stopped, "_read_losses", stopping(stopped, stop))
        with pytest.raises(KeyboardInterrupt):
            stopped.run_epoch(tmp_path / "checkpoint")
        resumed = in_halves(bright)
        assert resumed.restore(tmp_path / "checkpoint") and resumed.step == (stop - 1) // 3 * 3
        assert result(finished(resumed)) == result(wanted)


def stopping(run, step):
    """run._read_losses, which is interrupted at this step."""

    def look(done, whole=run._read_losses):
        if done == step:
            raise KeyboardInterrupt
        whole(done)

    return look


@pytest.mark.parametrize("step", [5, 12], ids=["kept", "ends an epoch"])
def test_an_update_that_exceeds_a_half_is_repeated_before_its_state_is_kept(
    hopper, monkeypatch, caplog, step
):
    """Where no loss comes after it."""
    monkeypatch.setattr(training, "LOOK_EVERY", 1)
    monkeypatch.setattr(training, "KEEP_EVERY", 5)
    monkeypatch.setattr(training.Training, "_next_stop", lambda run, done, *_: done + 1)
    run = in_halves(IMAGES / np.float32(255))

    def overflowing(*bound, whole=run.executor.run_many):
        whole(*bound)
        if not run.repeats and run.step + 1 == step:
            run.executor.fill(run._shared["b.weight"], np.full_like(run.values["b.weight"], np.nan))

    monkeypatch.setattr(run.executor, "run_many", overflowing)
    with caplog.at_level(logging.WARNING):
        finished(run)
    assert run.repeats == 1 and f"not finite at step {step} " in caplog.text
    assert all(np.isfinite(values).all() for values in run.values.values())


def test_a_training_whose_repeats_do_not_help_ends_with_one_line(hopper):
    weight = weights.initialize(COPIED, 0)["b.weight"]
    weight.flat[0] = 2**24
    with pytest.raises(
        RunFailed, match="^the loss is nan at step 1 .* 3 repeats with halves"
    ) as failed:
        in_halves(IMAGES, **{"b.weight": weight}).run_epoch()
    assert "\n" not in str(failed.value)


def test_features_that_exceed_a_half_are_computed_again_with_smaller_powers(hopper, bright):
    found = {}
    for rung, images in (("gpu_3xf16_sm90", bright), ("gpu_3xtf32_packed", bright)):
        made = inference.Inference(
            COPIED,
            rung,
            weights.initialize(COPIED, 0),
            normalization.Statistics(np.ones(2, np.float32), np.zeros(2, np.float32)),
            1,
        )
        found[rung] = np.concatenate([values.copy() for _, values in made.batches(images)])
    close, exact = found.values()
    assert np.isfinite(close).all()
    assert np.abs(close - exact).max() <= 1e-5 * np.abs(exact).max()


def test_a_training_with_phases_stopped_within_an_epoch_resumes_in_the_same_bytes(
    pretend, monkeypatch, tmp_path
):
    """Weights, averages, losses, and the copies of phase weights that the resumed run has made
    again.
    """
    pretend()
    images = np.random.default_rng(2).integers(
        0, 256, (11, *zoo.RISING.input_shape), dtype=np.uint8
    )
    settings = plan.TrainingSettings(
        network=zoo.RISING,
        rung="gpu_bf16",
        batch_size=2,
        epochs=2,
        seed=7,
        learning_rate=0.01,
        optimizer=optimizers.Optimizer("adam"),
        multipliers=PRECISIONS["bfloat16"],
    )

    def start():
        return training.Training(
            settings,
            images,
            normalization.measure("unit", images),
            weights.initialize(zoo.RISING, 0),
            1,
        )

    def finish(run):
        while not run.done:
            run.run_epoch()
        copies = {
            name: run.executor.download(run._batches[0][1][name])
            for name, buffer in run.plan.buffers.items()
            if buffer.kind == "copy"
        }
        return {
            name: value.tobytes()
            for name, value in {**run.values, **run.averages, **run.history, **copies}.items()
        }

    def save_and_stop(run, path):
        save(run, path)
        if run.step == 8:
            raise KeyboardInterrupt

    whole, stopped, resumed = (start() for _ in range(3))
    assert {
        step.layer for step in whole.plan.steps if step.operation == "rounded_phase_conv2d_forward"
    } == {"b_up", "c_up"}
    wanted, save = finish(whole), training.Training.save
    monkeypatch.setattr(training.Training, "save", save_and_stop)
    monkeypatch.setattr(training, "LOOK_EVERY", 2)
    monkeypatch.setattr(training, "SAVE_AFTER", -1)
    with pytest.raises(KeyboardInterrupt):
        while True:
            stopped.run_epoch(tmp_path / "checkpoint")
    assert resumed.restore(tmp_path / "checkpoint") and resumed.step == 8
    assert finish(resumed) == wanted


# ---- where a capture is refused


def refuse_begin(gpu, monkeypatch):
    monkeypatch.setattr(
        fake_cupy._Stream,
        "begin_capture",
        fail("cudaErrorNotSupported: \n operation not supported"),
    )
    return "cudaErrorNotSupported: operation not supported"


def refuse_graph(gpu, monkeypatch):
    end = fake_cupy._Stream.end_capture
    monkeypatch.setattr(
        fake_cupy._Stream,
        "end_capture",
        lambda self: (end(self), fail("cudaErrorMemoryAllocation")()),
    )
    return "cudaErrorMemoryAllocation"


def refuse_launch(gpu, monkeypatch):
    within_a_capture(
        monkeypatch, gpu, lambda: gpu.capture.refuse("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")
    )
    return "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"


def within_a_capture(monkeypatch, gpu, happens):
    """Let something happen before the last launch of a recorded step."""
    launched = fake_cupy._Kernel.kernel

    def kernel(self, *arguments):
        if gpu.capture and self.function.name == "advance":
            happens()
        launched(self, *arguments)

    monkeypatch.setattr(fake_cupy._Kernel, "kernel", kernel)


def fail(text):
    def call(*arguments):
        raise fake_cupy.CUDARuntimeError(text)

    return call


@pytest.mark.parametrize("refuse", [refuse_begin, refuse_graph, refuse_launch])
@pytest.mark.parametrize("residency", RESIDENCIES)
def test_where_a_capture_is_refused_launches_are_single_and_the_reason_is_said_once(
    pretend, monkeypatch, caplog, residency, refuse
):
    gpu = pretend()
    wanted = trained(one_by_one(residency))
    reason, executor = refuse(gpu, monkeypatch), cuda_executor.Executor(1, residency)
    assert executor.launching() == "as CUDA graphs"
    with caplog.at_level(logging.INFO):
        assert trained(executor) == wanted
    assert caplog.messages == [f"no CUDA graphs: {reason}; the launches are queued one by one"]
    assert (
        executor.launching() == f"one by one ({reason})"
        and not gpu.replayed
        and gpu.capture is None
    )


def test_another_fault_while_recording_leaves_the_capture(pretend, monkeypatch):
    gpu = pretend()
    within_a_capture(monkeypatch, gpu, interrupt)
    executor = cuda_executor.Executor(1)
    _, made, arrays = bound(executor)
    executor.run_many(made, arrays, 1)
    with pytest.raises(KeyboardInterrupt):
        executor.run_many(made, arrays, 1)
    assert gpu.capture is None and executor.launching() == "as CUDA graphs"


def interrupt():
    raise KeyboardInterrupt


# ---- the stand-in refuses what CUDA refuses


def an_allocation(gpu, stream):
    gpu.cuda.Memory(256)


def waiting_on_the_host(gpu, stream):
    stream.synchronize()


def waiting_for_an_event_on_the_host(gpu, stream):
    stream.record(gpu.cuda.Event()).synchronize()


def a_copy_to_the_host(gpu, stream):
    gpu.array.get(stream, np.empty(4, np.float32))


def a_copy_from_the_host(gpu, stream):
    gpu.array.set(np.zeros(4, np.float32), stream)


def waiting_for_work_outside(gpu, stream):
    stream.wait_event(gpu.streams[1].record(gpu.cuda.Event()))


def a_branch_that_is_not_joined(gpu, stream):
    gpu.streams[1].wait_event(stream.record(gpu.cuda.Event()))
    gpu.streams[1].add(lambda: None)


@pytest.mark.parametrize(
    "work",
    [
        an_allocation,
        waiting_on_the_host,
        waiting_for_an_event_on_the_host,
        a_copy_to_the_host,
        a_copy_from_the_host,
        waiting_for_work_outside,
        a_branch_that_is_not_joined,
    ],
)
def test_a_capture_with_what_cuda_refuses_fails(work):
    gpu = fake_cupy.Gpu()
    streams = [gpu.cuda.Stream(non_blocking=True) for _ in range(2)]
    gpu.array = fake_cupy.ndarray((4,), np.float32, gpu.cuda.MemoryPointer(gpu.cuda.Memory(16), 0))
    streams[0].begin_capture()
    if work is not a_branch_that_is_not_joined:
        with pytest.raises(fake_cupy.CUDARuntimeError):
            work(gpu, streams[0])
    else:
        work(gpu, streams[0])
    with pytest.raises(fake_cupy.CUDARuntimeError, match="Invalidated|Unjoined"):
        streams[0].end_capture()
    work(gpu, streams[0])  # outside it is allowed


def test_a_graph_keeps_the_recorded_numbers_and_reads_arrays_as_they_are():
    gpu, given = fake_cupy.Gpu(), []

    class Function:
        name = "kernel"

        def __call__(self, grid, block, values, shared_bytes):
            given.append(tuple(value.item() for value in values))

    stream = gpu.cuda.Stream(non_blocking=True)
    array = fake_cupy.ndarray((1,), np.float32, gpu.cuda.MemoryPointer(gpu.cuda.Memory(4), 0))
    number = np.array(1, np.int32)
    stream.begin_capture()
    fake_cupy._Kernel(gpu, Function()).kernel((1,), (1,), (array, number), 0, stream)
    graph = stream.end_capture()
    array.values[...], number[...] = 5, 2
    graph.launch(stream)
    stream.synchronize()
    assert given == [(5, 1)]


# ---- ranges for a profiler


def test_ranges_name_step_layer_and_operation_of_launches_and_the_steps_of_a_graph(
    pretend, monkeypatch
):
    gpu = pretend()
    executor = cuda_executor.Executor(1)
    _, made, arrays = bound(executor)
    labels = [
        ("step", f"{step.layer}: {step.operation}") for step in made.steps for _ in step.launches
    ]
    launch, said = fake_cupy._Graph.launch, []
    monkeypatch.setattr(
        fake_cupy._Graph,
        "launch",
        lambda self, stream: (said.append([*gpu.ranges]), launch(self, stream)),
    )
    executor.run_many(made, arrays, 8)  # eager, recorded, replayed, measured, recorded, replayed
    assert [where for where, _ in gpu.ranged] == 6 * labels  # 0, the recorded 1 and 3, 3
    assert said == [["1 steps as a graph"]] * 2 + [["3 steps as a graph"]] + [
        ["1 steps as a graph"]
    ]
    assert not gpu.ranges and ("step", "b: conv2d_forward") in labels


def test_cupy_without_nvtx_costs_the_ranges_only(pretend):
    push, pop = launching.ranges(types.SimpleNamespace())
    assert push("a: conv") is None and pop() is None
    gpu = pretend()
    wanted = trained(cuda_executor.Executor(1))
    del gpu.cuda.nvtx
    assert trained(cuda_executor.Executor(1)) == wanted
