"""The GPU executor on a stand-in for CuPy whose kernels run in the emulator."""

import dataclasses

import numpy as np
import pytest

import emulator_executor
import fake_cupy
import needs
import small_networks
import untrained
from ladder.data import normalization
from ladder.errors import UserError
from ladder.executors import create
from ladder.executors.cuda import clock, nvrtc, streaming
from ladder.executors.cuda import executor as cuda_executor
from ladder.machine import driver
from ladder.network import optimizers
from ladder.plan import plan
from ladder.plan.data import Plan
from ladder.rungs import catalog
from ladder.rungs.launches import Launch, Step, Table
from ladder.training import inference as inference_module
from ladder.training import training
from ladder.verify import parity

pytestmark = needs.COMPILER

SMALL = small_networks.autoencoder((6, 6, 2))
LABELLED = small_networks.classifier((6, 6, 2), stride=2)
IMAGES = np.random.default_rng(0).integers(0, 256, (13, 6, 6, 2), dtype=np.uint8)
LABELS = np.random.default_rng(1).integers(0, 3, 13, dtype=np.uint8)
BATCHES = (4, 4, 4, 1)  # of an epoch


@pytest.fixture
def pretend(monkeypatch, tmp_path):
    """A function that gives this machine a fake_cupy.Gpu and returns it."""
    yield lambda **options: fake_cupy.install(monkeypatch, tmp_path, **options)
    cuda_executor._cupy.cache_clear()


def train(executor, epochs=2, images=IMAGES, rung="gpu_basic", network=SMALL, **settings):
    """(parameters and running statistics, losses and hits) of epochs, the images shuffled, the last
    batch a partial one.
    """
    length, values = plan.Length(epochs * len(BATCHES), len(BATCHES)), parity.initial(network)
    counts = {
        name: np.zeros(len(BATCHES))
        for name in (("losses", "hits") if network.classifies else ("losses",))
    }
    uploaded = executor.upload(
        {
            "images": images,
            "labels": LABELS,
            "scale": np.full(2, 1 / 255, np.float32),
            "offset": np.zeros(2, np.float32),
            "permutation": np.arange(len(images)),
            "counters": np.zeros(3, np.int64),
            "learning_rates": optimizers.learning_rates(0.05, length),
            **counts,
            **values,
        }
    )
    plans = {
        batch: plan.training_plan(
            plan.TrainingSettings(network=network, rung=rung, batch_size=batch, **settings),
            plan.Dataset(len(images), images.dtype.name),
            length,
        )
        for batch in sorted(set(BATCHES), reverse=True)
    }
    bound = {batch: executor.allocate(one, uploaded) for batch, one in plans.items()}
    counted = []
    for epoch in range(epochs):
        executor.fill(
            uploaded["permutation"], np.random.default_rng(epoch).permutation(len(images))
        )
        executor.fill(uploaded["counters"], [epoch * len(BATCHES), 0, 0])
        for batch in BATCHES:
            executor.run(plans[batch], bound[batch])
        counted.append([executor.download(uploaded[name]).copy() for name in counts])
    return {name: executor.download(uploaded[name]) for name in values}, np.array(counted)


@pytest.fixture(scope="module")
def expected():
    return train(emulator_executor.Executor())


def assert_same(found, expected):
    assert np.array_equal(found[1], expected[1])
    for name, value in expected[0].items():
        assert np.array_equal(found[0][name], value), name


EAGER = [(), (0,), (1,), (0, 1)]  # streams: 0 computes, 1 copies images


@pytest.mark.parametrize("eager", EAGER, ids=str)
@pytest.mark.parametrize("residency", ["device", "host"])
def test_both_residencies_give_the_emulators_bytes(pretend, expected, residency, eager):
    pretend(eager=eager)
    assert_same(train(cuda_executor.Executor(1, residency)), expected)


DRAWN = {"network": LABELLED, "augmentation": plan.Augmentation(flip=True, crop=1), "seed": 3}


@pytest.fixture(scope="module")
def drawn():
    return train(emulator_executor.Executor(), **DRAWN)


@pytest.mark.parametrize("eager", EAGER, ids=str)
@pytest.mark.parametrize("residency", ["device", "host"])
def test_labels_and_draws_are_those_of_the_real_order_and_step(pretend, drawn, residency, eager):
    pretend(eager=eager)
    assert drawn[1][:, 1].any()  # hits
    assert_same(train(cuda_executor.Executor(1, residency), **DRAWN), drawn)


@pytest.mark.parametrize("entry", ["cross_entropy_rows", "draw_augmentation", "dropout_forward"])
def test_a_kernel_given_the_order_or_step_of_the_streamed_batch_gives_other_bytes(
    pretend, drawn, monkeypatch, entry
):
    pretend()
    right = cuda_executor.Executor._arguments

    def wrong(self, launch, arrays):
        if launch.entry != entry:
            return right(self, launch, arrays)
        return tuple(
            tuple(
                slot.get(name, arrays[name]) if isinstance(name, str) else name
                for name in launch.arguments
            )
            for slot in arrays.batches.substitutes
        )

    monkeypatch.setattr(cuda_executor.Executor, "_arguments", wrong)
    _, counted = train(cuda_executor.Executor(1, "host"), **DRAWN)
    assert not np.array_equal(counted, drawn[1])


@pytest.mark.parametrize(
    "rung", [name for name, entry in catalog.RUNGS.items() if entry.executor == "cuda"][1:]
)
def test_every_rung_runs_on_streamed_images(pretend, rung):
    pretend()
    device, host = (
        train(cuda_executor.Executor(1, residency), rung=rung) for residency in ("device", "host")
    )
    assert_same(host, device)
    assert_same(host, train(emulator_executor.Executor(), rung=rung))


@pytest.mark.parametrize(
    "name, broken",
    [
        (
            "take",
            lambda self, batch, stream, measured: (
                self._staged[self._slot] == (self._offset, batch)
                or self._stage(self._slot, self._offset, batch),
                (self._slot, []),
            )[1],
        ),
        ("release", lambda self, stream, batch: setattr(self, "_offset", self._offset + batch)),
    ],
)
def test_a_feed_that_does_not_wait_or_turn_gives_other_bytes(
    pretend, expected, monkeypatch, name, broken
):
    """Without the wait for the copy, or with a single buffer, bytes must differ: else the tests
    above prove nothing.
    """
    pretend()
    monkeypatch.setattr(streaming.HostBatchStream, name, broken)
    parameters, losses = train(cuda_executor.Executor(1, "host"))
    assert not np.array_equal(losses, expected[1])


def outputs(executor, *actions):
    """Outputs of a network after each batch; actions: batches, or functions of (executor, uploaded)
    in between.
    """
    uploaded = executor.upload(
        {
            "images": IMAGES,
            "permutation": np.arange(13),
            "counters": np.zeros(3, np.int64),
            "scale": np.full(2, 1 / 255, np.float32),
            "offset": np.zeros(2, np.float32),
            **parity.initial(SMALL),
        }
    )
    plans = {
        batch: inference(batch)
        for batch in sorted((each for each in actions if isinstance(each, int)), reverse=True)
    }
    bound, found = {batch: executor.allocate(made, uploaded) for batch, made in plans.items()}, []
    for action in actions:
        if isinstance(action, int):
            executor.run(plans[action], bound[action])
            found.append(executor.download(bound[action][plans[action].output]).copy())
        else:
            action(executor, uploaded)
    return found


def reorder(executor, uploaded):
    executor.fill(uploaded["permutation"], np.arange(13)[::-1])


def reorder_and_forget(executor, uploaded):
    """The caller's array changes after it was filled in."""
    order = np.arange(13)[::-1].copy()
    executor.fill(uploaded["permutation"], order)
    order[...] = 0


def move_and_forget(executor, uploaded):
    counters = np.array([0, 7, 0])
    executor.fill(uploaded["counters"], counters)
    counters[...] = 0


@pytest.mark.parametrize("eager", EAGER, ids=str)
@pytest.mark.parametrize(
    "actions",
    [
        (4, reorder, 4),
        (4, 4, reorder, 4),
        (reorder_and_forget, 4, 4),
        (4, reorder_and_forget, 4),
        (4, move_and_forget, 4),
        (4, 2, 4),
        (2, 4, 4),
        (1, 2, 4, 2, 1, 2),
        (4, reorder, 2, reorder, 4),
    ],
    ids=lambda actions: "-".join(getattr(each, "__name__", str(each)) for each in actions),
)
@pytest.mark.parametrize("residency", ["device", "host"])
def test_images_are_those_of_the_order_and_batch_at_the_time_of_the_run(
    pretend, residency, eager, actions
):
    pretend(eager=eager)
    for found, wanted in zip(
        outputs(cuda_executor.Executor(1, residency), *actions),
        outputs(emulator_executor.Executor(), *actions),
        strict=True,
    ):
        assert np.array_equal(found, wanted)


def copies_ahead(gpu):
    """(batches whose successor's copy was queued when their run returned, batches whose successor
    was copied before their first kernel ran) in an epoch, when copies run as early as they may and
    kernels as late as they may.
    """
    executor, counts = cuda_executor.Executor(1, "host"), []
    run = executor.run
    executor.run = lambda *arguments: (run(*arguments), counts.append(gpu.queued.count("copy")))
    train(executor, epochs=1)
    copied = [place for place, name in enumerate(gpu.done) if name == "copy"]
    begun = [place for place, name in enumerate(gpu.done) if name == "load_batch_uint8"]
    assert len(copied) == len(begun) == len(counts) == len(BATCHES)
    return (
        [number for number, count in enumerate(counts[:-1]) if count > number + 1],
        [number for number, following in enumerate(copied[1:]) if following < begun[number]],
    )


def test_the_next_batch_is_copied_while_one_is_computed(pretend):
    assert copies_ahead(pretend(eager=(1,))) == ([0, 1, 2], [0, 1, 2])


def on_one_stream(monkeypatch):
    made = streaming.HostBatchStream.__init__

    def made_late(self, cupy, *arguments):
        made(self, cupy, *arguments)
        self._stream = cupy.streams[0]

    monkeypatch.setattr(streaming.HostBatchStream, "__init__", made_late)


def waiting_for_the_batch(monkeypatch):
    stage = streaming.HostBatchStream._stage

    def staged(self, slot, *batch):
        self._stream.wait_event(self._read[1 - slot])
        stage(self, slot, *batch)

    monkeypatch.setattr(streaming.HostBatchStream, "_stage", staged)


def waiting_on_the_host(monkeypatch):
    release = streaming.HostBatchStream.release

    def released(self, stream, batch):
        stream.synchronize()
        release(self, stream, batch)

    monkeypatch.setattr(streaming.HostBatchStream, "release", released)


def when_it_is_needed(monkeypatch):
    def released(self, stream, batch):
        stream.record(self._read[self._slot])
        self._staged[self._slot] = None
        self._slot, self._offset = 1 - self._slot, self._offset + batch

    monkeypatch.setattr(streaming.HostBatchStream, "release", released)


@pytest.mark.parametrize(
    "broken", [on_one_stream, waiting_for_the_batch, waiting_on_the_host, when_it_is_needed]
)
def test_copies_that_do_not_overlap_are_noticed(pretend, monkeypatch, broken):
    gpu = pretend(eager=(1,))
    broken(monkeypatch)
    queued, copied = copies_ahead(gpu)
    assert not queued or not copied


def test_auto_keeps_images_on_the_device_while_they_leave_room(pretend):
    for memory, on_host in ((1 << 30, False), (2 * IMAGES.nbytes - 1, True)):
        pretend(memory=memory)
        executor = cuda_executor.Executor(1)
        assert executor._streams_images(IMAGES) == on_host


def test_a_streamed_run_counts_its_copies_and_its_buffers(pretend):
    pretend()
    executor = cuda_executor.Executor(1, "host")
    train(executor)
    assert create.COPIES in executor.seconds
    assert executor.workspace_bytes() == 2 * 4 * IMAGES[0].nbytes + 4 * 8 + 3 * 8


def test_the_buffers_of_a_feed_are_made_for_the_largest_batch_first(pretend):
    pretend()
    executor = cuda_executor.Executor(1, "host")
    uploaded = executor.upload({"images": IMAGES, "permutation": np.arange(13)})
    executor.allocate(inference(1), uploaded)
    with pytest.raises(RuntimeError, match="largest batch first"):
        executor.allocate(inference(4), uploaded)


def inference(batch):
    return plan.inference_plan(SMALL, "gpu_basic", batch, plan.Dataset(len(IMAGES), "uint8"))


# ---- memory


def test_every_buffer_is_aligned_zero_and_apart(pretend):
    gpu = pretend()
    executor = cuda_executor.Executor(1)
    made = inference(3)
    arrays = executor.allocate(made, {})
    executor.synchronize()
    ranges = sorted((array.data.ptr, array.data.ptr + array.nbytes) for array in arrays.values())
    assert all(begin % 256 == 0 for begin, _ in ranges)
    assert all(end <= begin for (_, end), (begin, _) in zip(ranges, ranges[1:], strict=False))
    assert not any(array.values.any() for array in arrays.values())
    assert executor.device_bytes() == gpu.used >= sum(made.bytes_by_kind().values())


def test_a_run_allocates_nothing_more(pretend):
    gpu = pretend()
    executor = cuda_executor.Executor(1)
    made = inference(3)
    arrays = executor.allocate(
        made, executor.upload({"images": IMAGES, "permutation": np.arange(13)})
    )
    before = gpu.used
    executor.run(made, arrays)
    assert gpu.used == before


def test_too_little_memory_says_how_much_and_which_batch_fits(pretend):
    pretend(memory=40_000)
    executor = cuda_executor.Executor(1)
    with pytest.raises(UserError) as error:
        executor.allocate(inference(64), {})
    assert "batch_size 64 needs " in str(error.value) and "40.0 kB are free" in str(error.value)
    fitting = int(str(error.value).rpartition("batch_size ")[2].split()[0])
    executor.allocate(inference(fitting), {})
    with pytest.raises(UserError):
        cuda_executor.Executor(1).allocate(inference(fitting + 4), {})


def test_memory_that_holds_not_even_one_image_says_so(pretend):
    pretend(memory=5_000)
    with pytest.raises(UserError, match="not even batch_size 1 fits"):
        cuda_executor.Executor(1).allocate(inference(8), {})


def test_images_that_do_not_fit_may_be_streamed(pretend):
    pretend(memory=500)
    with pytest.raises(
        UserError, match="need .* of GPU memory and 500 B are free; set data_residency to host"
    ):
        cuda_executor.Executor(1, "device").upload({"images": IMAGES, "permutation": np.arange(13)})


# ---- streams


def step(number, reads, writes, stream, operation="add"):
    """A step that launches once, with the buffers as arguments."""
    launch = Launch("x.cu", operation, (1,), (1,), (*reads, *writes), stream=stream)
    return Step(
        f"{operation}{number}",
        "",
        {name: name for name in reads},
        {name: name for name in writes},
        {},
        launches=(launch,),
    )


def planned(*steps):
    return Plan(None, "", 1, {}, steps, (), "")


@pytest.mark.parametrize(
    "launched, waits",
    [
        (
            [
                ("a", "b", 0),
                ("b", "c", 1),  # reads the other's output
                ("d", "e", 0),  # unrelated
                ("d", "f", 1),  # both only read d
                ("f", "b", 0),  # reads f, and overwrites b, which launch 1 reads: f is the later
                ("b", "c", 1),  # the new b
            ],
            [(), (0,), (), (), (3,), (4,)],
        ),
        # nothing is waited for twice
        ([("a", "b", 0), ("b", "c", 1), ("b", "d", 1), ("a", "b", 0)], [(), (0,), (), (2,)]),
        # each stream waits for itself
        (
            [
                ("a", "b", 0),
                ("b", "c", 1),
                ("b", "d", 2),  # although stream 1 has waited for it
                ("cd", "e", 0),  # for both others
                ("e", "c", 2),  # what stream 1 wrote, and stream 0 has waited for
            ],
            [(), (0,), (0,), (1, 2), (1, 3)],
        ),
    ],
    ids=["another stream", "not twice", "each stream"],
)
def test_a_launch_waits_for_its_data_from_another_stream(launched, waits):
    steps = [step(number, *one) for number, one in enumerate(launched)]
    assert cuda_executor.waits_between_streams(planned(*steps)) == waits


def test_an_argument_not_listed_as_read_counts_as_written():
    one, other = step(0, "a", "b", 0), step(1, "a", "c", 1)
    launch = one.launches[0]
    one = dataclasses.replace(
        one, launches=(dataclasses.replace(launch, arguments=(*launch.arguments, "scratch")),)
    )
    launch = other.launches[0]
    other = dataclasses.replace(
        other, launches=(dataclasses.replace(launch, arguments=(*launch.arguments, "scratch")),)
    )
    assert cuda_executor.waits_between_streams(planned(one, other)) == [(), (0,)]


def test_the_buffers_of_a_table_are_waited_for():
    one, other = step(0, "a", "b", 0), step(1, "bd", "c", 1)
    table = Table((7, "b", 1, "d", "c"), frozenset("c"))
    launches = (dataclasses.replace(other.launches[0], arguments=(table,)),)
    assert launches[0].buffers == {"b", "c", "d"}
    waits = cuda_executor.waits_between_streams(
        planned(one, dataclasses.replace(other, launches=launches))
    )
    assert waits == [(), (0,)]
    assert table.array({"b": 100, "c": 200, "d": 300}.get).tolist() == [7, 100, 1, 300, 200]


@pytest.mark.parametrize(
    "streams, eager",
    [
        (2, ()),
        (2, (0,)),
        (2, (1,)),
        (2, (0, 1)),
        (3, ()),
        (3, (0,)),
        (3, (1,)),
        (3, (2,)),
        (3, (0, 2)),
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", range(2))
def test_launches_on_several_streams_give_the_bytes_of_one(
    pretend, expected, monkeypatch, streams, eager, seed
):
    """Each step of the plan on a stream drawn at random."""
    pretend(eager=eager)
    random = np.random.default_rng(seed)
    training_plan = plan.training_plan

    def scattered(*arguments):
        made = training_plan(*arguments)
        steps = []
        for one in made.steps:
            stream = int(random.integers(streams))
            launches = tuple(dataclasses.replace(launch, stream=stream) for launch in one.launches)
            steps.append(dataclasses.replace(one, launches=launches))
        return dataclasses.replace(made, steps=tuple(steps))

    monkeypatch.setattr(plan, "training_plan", scattered)
    assert_same(train(cuda_executor.Executor(1, "device")), expected)


def test_without_the_waits_two_streams_give_other_bytes(pretend, expected, monkeypatch):
    pretend()
    training_plan = plan.training_plan

    def alternating(*arguments):
        made = training_plan(*arguments)
        steps = tuple(
            dataclasses.replace(
                one,
                launches=tuple(
                    dataclasses.replace(launch, stream=number % 2) for launch in one.launches
                ),
            )
            for number, one in enumerate(made.steps)
        )
        return dataclasses.replace(made, steps=steps)

    monkeypatch.setattr(plan, "training_plan", alternating)
    monkeypatch.setattr(cuda_executor, "waits_between_streams", lambda made: [()] * 1000)
    _, losses = train(cuda_executor.Executor(1, "device"))
    assert not np.array_equal(losses, expected[1])


# ---- time


def test_seconds_are_those_of_sampled_steps_scaled_to_all_images(pretend, monkeypatch):
    gpu = pretend()
    monkeypatch.setattr(clock, "WARM_UP", 2)
    monkeypatch.setattr(clock, "SAMPLE_EVERY", 4)
    executor = cuda_executor.Executor(1, "device")
    train(executor)  # batches 4, 4, 4, 1 twice: steps 2 and 6 are sampled, 8 of 26 images
    launches = {}
    settings = plan.TrainingSettings(network=SMALL, rung="gpu_basic", batch_size=4)
    for one in plan.training_plan(settings, plan.Dataset(13, "uint8"), plan.Length(8, 4)).steps:
        launches[one.work] = launches.get(one.work, 0) + len(one.launches)
    assert executor.seconds == pytest.approx(
        {work: 0.001 * 2 * count * 26 / 8 for work, count in launches.items()}
    )
    assert len(gpu.done) == 8 * sum(launches.values())
    assert set(executor.passes) == {"load", "forward", "backward", "update"}
    assert sum(executor.passes.values()) == pytest.approx(sum(executor.seconds.values()))

    # as after a restart
    executor.seconds, executor.passes = {"loss": 5.0, "input": 1.0}, {"load": 2.0}
    assert (executor.seconds, executor.passes) == ({"loss": 5.0, "input": 1.0}, {"load": 2.0})
    executor.measures_every_step = True
    train(executor)
    assert executor.seconds["loss"] == pytest.approx(5.0 + 0.001 * 8 * launches["loss"])


@pytest.mark.parametrize("eager", EAGER, ids=str)
@pytest.mark.parametrize("share", [0.25, 1, 3])
def test_of_a_copy_only_what_outlasts_the_step_before_it_is_waited_for(pretend, share, eager):
    """A copy takes `share` of a step. The first one of an epoch has no step before it."""
    gpu = pretend(eager=eager)
    executor = cuda_executor.Executor(1, "host")
    train(executor, epochs=1)
    launches = len(gpu.launched) // len(BATCHES)
    gpu.copy_ms = share * launches
    executor.measures_every_step, executor.seconds = True, {}
    train(executor)
    waited = 2 * (gpu.copy_ms + 3 * max(0, gpu.copy_ms - launches))
    assert executor.seconds[create.COPIES] == pytest.approx(0.001 * 8 * gpu.copy_ms)
    assert executor.seconds[create.WAITING] == pytest.approx(0.001 * waited)


def test_images_on_the_device_are_neither_copied_nor_waited_for(pretend):
    pretend()
    executor = cuda_executor.Executor(1, "device")
    executor.measures_every_step = True
    train(executor)
    assert executor.seconds and executor.seconds.keys().isdisjoint({create.COPIES, create.WAITING})


def test_too_few_steps_are_not_measured(pretend):
    pretend()
    executor = cuda_executor.Executor(1)
    arrays = executor.allocate(
        made := inference(2), executor.upload({"images": IMAGES, "permutation": np.arange(13)})
    )
    executor.run(made, arrays)
    assert executor.seconds == {}


# ---- kernels


def test_machine_code_is_cached_by_everything_it_was_made_from(pretend, monkeypatch, tmp_path):
    pretend()
    kernels = tmp_path / "kernels"
    (kernels / "rung").mkdir(parents=True)
    source, header = kernels / "rung/one.cu", kernels / "tile.cuh"
    source.write_text("one")
    header.write_text("tile")
    monkeypatch.setattr(nvrtc, "KERNELS", kernels)
    compiled = []

    def compile_text(*arguments):
        compiled.append(arguments)
        return nvrtc.Compiled("sm_80", b"code", "", {})

    monkeypatch.setattr(nvrtc, "compile_file", compile_text)

    def cubin(architecture="sm_80", defines=()):
        return cuda_executor.cubin(source, architecture, defines)

    found = {cubin(), cubin()}
    assert len(found) == len(compiled) == 1 and cubin().read_bytes() == b"code"
    found |= {cubin("sm_90"), cubin(defines=("TILE=8",))}
    header.write_text("tile 2")
    found.add(cubin())
    source.write_text("two")
    found.add(cubin())
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    found.add(cubin())
    assert len(found) == len(compiled) == 6


def test_kernels_that_were_carried_run_whatever_nvrtc_is_here_or_without_one(
    pretend, monkeypatch, tmp_path
):
    pretend()
    monkeypatch.setattr(driver, "cuda_version", lambda: (13, 0))
    monkeypatch.setattr(cuda_executor, "_cache", lambda: tmp_path)
    source = nvrtc.KERNELS / "gpu_basic/relu.cu"
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    carried = cuda_executor.cubin(source, "sm_80", ())
    (tmp_path / "nvrtc.txt").write_text("13.0\n")
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 2))
    monkeypatch.setattr(nvrtc, "installed", lambda: True)
    assert (
        cuda_executor.compilers() == ["13.0", "13.2"]
        and cuda_executor.cubin(source, "sm_80", ()) == carried
    )
    assert (
        cuda_executor.find_cubin(source, "sm_86", ()) is None
        and cuda_executor.cubin(source, "sm_86", ()) != carried
    )
    monkeypatch.setattr(nvrtc, "installed", lambda: False)
    assert (
        cuda_executor.compilers() == ["13.0"]
        and cuda_executor.cubin(source, "sm_80", ()) == carried
    )
    monkeypatch.setattr(driver, "cuda_version", lambda: (12, 8))
    monkeypatch.setattr(nvrtc, "version", lambda: (12, 8))
    assert cuda_executor.compilers() == ["12.8"], "the driver is too old for code of CUDA 13"


def test_a_kernel_that_does_not_compile_stops_before_any_work(pretend, monkeypatch):
    gpu = pretend()

    def refuse(path, architecture, defines=()):
        raise UserError(f"{path}:12: expected a ';' (compiling for {architecture})")

    monkeypatch.setattr(nvrtc, "compile_file", refuse)
    with pytest.raises(
        UserError, match=r"load_batch\.cu:12: expected a ';' \(compiling for sm_80\)"
    ):
        cuda_executor.Executor(1).allocate(inference(2), {})
    assert not gpu.launched


def test_a_kernel_is_allowed_the_shared_memory_it_asks_for(pretend):
    gpu = pretend()
    executor = cuda_executor.Executor(1)
    launch = inference(2).steps[0].launches[0]
    for count in (70 << 10, 60 << 10):
        executor._kernel(dataclasses.replace(launch, shared_bytes=count))
        assert gpu.largest_shared[launch.entry] == 70 << 10
    with pytest.raises(
        UserError, match="needs 122880 bytes of shared memory and this Fake gives a block 102400"
    ):
        executor._kernel(dataclasses.replace(launch, shared_bytes=120 << 10))


# ---- unusable machines


def test_without_a_gpu_the_reason_is_one_line(pretend, monkeypatch):
    pretend()
    monkeypatch.setattr(catalog, "no_gpu", lambda: "needs an NVIDIA GPU and no driver answers here")
    with pytest.raises(
        UserError,
        match="^a GPU rung needs an NVIDIA GPU and no driver answers here, or set variant to cpu$",
    ):
        cuda_executor.Executor(1)


def test_a_driver_older_than_the_compiler_is_named(pretend, monkeypatch):
    pretend()
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    with pytest.raises(
        UserError,
        match=r"driver is too old: NVRTC here is of CUDA 13\.0, the driver runs CUDA 12\.4",
    ):
        cuda_executor.Executor(1)


def test_a_gpu_that_does_not_answer_is_named(pretend):
    gpu = pretend()

    def fail():
        raise fake_cupy.CUDARuntimeError("cudaErrorDevicesUnavailable")

    gpu.cuda.runtime.memGetInfo = fail
    with pytest.raises(UserError, match="the GPU cannot be used: cudaErrorDevicesUnavailable"):
        cuda_executor.Executor(1)


def test_machine_code_that_the_driver_refuses_is_named(pretend):
    gpu = pretend()

    def refuse(path):
        raise fake_cupy.CUDADriverError("CUDA_ERROR_INVALID_IMAGE")

    gpu.RawModule = refuse
    with pytest.raises(
        UserError,
        match=r"does not take .*load_batch\.cu .*CUDA_ERROR_INVALID_IMAGE; update the driver",
    ):
        cuda_executor.Executor(1).allocate(inference(2), {})


def test_the_device_is_named_with_driver_and_cuda(pretend, monkeypatch):
    pretend()
    monkeypatch.setattr(driver, "version", lambda: "550.54.14")
    assert cuda_executor.Executor(1).device() == (
        "Fake, driver 550.54.14 (CUDA 12.4), CuPy 0.0 for CUDA 12.9, NVRTC 12.9"
    )


# ---- whole runs


def trainer(residency, network=SMALL):
    settings = plan.TrainingSettings(
        network=network,
        rung="gpu_basic",
        batch_size=4,
        epochs=2,
        optimizer=optimizers.Optimizer("adam"),
        learning_rate=0.01,
        seed=7,
    )
    values = untrained.values(network, 0)
    return training.Training(
        settings,
        IMAGES,
        normalization.measure("unit", IMAGES),
        values,
        1,
        residency,
        LABELS if network.classifies else None,
    )


@pytest.mark.parametrize("network", [SMALL, LABELLED], ids=lambda network: network.name)
@pytest.mark.parametrize("residency", ["device", "host"])
def test_a_training_that_is_interrupted_ends_in_the_same_bytes(
    pretend, monkeypatch, tmp_path, residency, network
):
    """After the third of an epoch's four steps."""
    pretend()
    monkeypatch.setattr(training, "LOOK_EVERY", 1)
    monkeypatch.setattr(training, "SAVE_AFTER", 0)
    whole, first, second = (trainer(residency, network) for _ in range(3))
    for _ in range(2):
        whole.run_epoch()
    first.run_epoch(tmp_path / "checkpoint.safetensors")
    assert second.restore(tmp_path / "checkpoint.safetensors") and second.step == 3
    second.run_epoch()
    second.run_epoch()
    assert second.losses == whole.losses and second.accuracies == whole.accuracies
    for name, value in whole.values.items():
        assert np.array_equal(second.values[name], value)


@pytest.mark.parametrize("network", [SMALL, LABELLED], ids=lambda network: network.name)
@pytest.mark.parametrize("residency", ["device", "host"])
def test_inference_gives_every_image_its_own_values(pretend, monkeypatch, residency, network):
    pretend()
    monkeypatch.setattr(inference_module, "BATCH", 4)
    arguments = (
        parity.initial(network),
        normalization.measure("unit", IMAGES),
        1,
        network.features,
    )
    encoder = inference_module.Inference(network, "gpu_basic", *arguments, data_residency=residency)
    reference = inference_module.Inference(network, "cpu", *arguments)
    for flip in (False, True):
        found, wanted = (
            np.concatenate([values.copy() for _, values in one.batches(IMAGES, flip)])
            for one in (encoder, reference)
        )
        assert found.shape == (13, 3, 3, 4) and np.allclose(found, wanted, rtol=1e-6, atol=1e-6)
