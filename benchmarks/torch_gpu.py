"""The same work in PyTorch, for comparison: what gpu.py measures of it, in a process of its own
(ladder/machine/worker.py).

PyTorch gets what makes it fast: cuDNN chooses its algorithms by timing them, Adam is fused, and the
images lie on the GPU as float32 in the layout of the network. The rungs load and convert bytes in
each step.
"""

import gc
import itertools
import statistics
import sys
import time

import torch
from torch import nn

from cases import CONTENDERS, FORMS, LOSS_SCALE, OLDEST, Case
from spread import percentiles
from torch_step import Module

DEVICE = "cuda"
# precision -> type of products and activations
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
BATCHES = 8  # of different images, used in turn
WARM_UP = 10  # steps before a time counts, and before a graph is captured
LAP = 10  # steps between two looks at the clock
SCREENED = 50  # steps of a first look at a contender
ROWS, ROWS_AT_A_TIME = 60_000, 1_000  # images of an extraction
PRODUCT = 8192  # rows and columns of the matrices that measure a ceiling
LOOK_EVERY = 50  # steps of an epoch between looks at the loss, as in the rungs' training
CONVOLUTIONS = "conv2d_forward", "conv2d_input_grad", "conv2d_weight_grad"
CALLS, GRAPHS = 20, 20  # of one of these in a graph; replays

_prepared = {}  # name of a contender -> TorchTraining


def machine():
    """Versions, and whether PyTorch can use the GPU: an exception says why it cannot."""
    torch.zeros(1, device=DEVICE)
    cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": cudnn,
        "python": sys.version.split()[0],
    }


def ceilings():
    """{precision: operations per second of a matrix product}, on random numbers."""
    ceilings, (major, minor) = {}, torch.cuda.get_device_capability()
    for precision in (name for name, oldest in OLDEST.items() if 10 * major + minor >= oldest):
        _set_precision(precision)
        dtype = AUTOCAST.get(precision, torch.float32)
        left, right = (torch.randn(PRODUCT, PRODUCT, device=DEVICE, dtype=dtype) for _ in range(2))
        microseconds = _times(lambda number, left=left, right=right: left @ right, 3, 10)
        ceilings[precision] = 2 * PRODUCT**3 / statistics.median(microseconds) * 1e6
    return ceilings


class TorchTraining:
    """A network's training as one contender does it, ready for its next step."""

    def __init__(self, case, contender):
        self.contender, self.network, self.batch = contender, case.network, case.batch
        _set_precision(contender.precision)
        layout = torch.channels_last if contender.channels_last else torch.contiguous_format
        self.module = Module(self.network).to(DEVICE, memory_format=layout)
        self.optimizer = torch.optim.Adam(
            self.module.parameters(), 1e-3, fused=True, capturable=contender.graph
        )
        # The scale of the loss and the look for infinite gradients stay on the GPU, because Adam is
        # fused.
        self.scaler = torch.amp.GradScaler(
            DEVICE, init_scale=LOSS_SCALE, enabled=contender.precision == "fp16"
        )
        self.forward = _compiled(self.module, FORMS[contender.form])
        height, width, channels = self.network.input_shape
        self.images = torch.rand(self.batch * BATCHES, channels, height, width, device=DEVICE).to(
            memory_format=layout
        )
        self.labels = torch.randint(0, 10, (self.batch * BATCHES,), device=DEVICE)
        self.number, self.graph = 0, None
        if contender.graph:
            self.first_loss = self._capture()
        else:
            self.first_loss = float(self.step())
            for _ in range(WARM_UP):
                self.step()

    def step(self):
        """The next step, queued; its loss, which a graph's next step overwrites."""
        first = self.number % BATCHES * self.batch
        self.number += 1
        return self.step_with(
            self.images[first : first + self.batch], self.labels[first : first + self.batch]
        )

    def step_with(self, images, labels):
        """A step with these images, queued. A batch of another size than the graph's is made
        without it.
        """
        if self.graph is None or len(images) != self.batch:
            return self._step(images, labels)
        self.input.copy_(images)
        if self.network.classifies:
            self.input_labels.copy_(labels)
        self.graph.replay()
        return self.loss

    def require_learning(self):
        """Raise RuntimeError if the steps so far did not train: their times would mean nothing."""
        last = float(self.step())
        if (
            last != last
            or abs(last) == float("inf")
            or (not self.network.classifies and last >= self.first_loss)
        ):
            # labels are random
            raise RuntimeError(
                f"does not learn: the loss was {self.first_loss:.3g} and is {last:.3g}"
            )

    def _step(self, images, labels):
        self.optimizer.zero_grad(set_to_none=True)
        with _autocast(self.contender.precision):
            out = self.forward(images)
            loss = (
                nn.functional.cross_entropy(out, labels)
                if self.network.classifies
                else nn.functional.mse_loss(out, images)
            )
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def _capture(self):
        """Record a whole step as one CUDA graph; the loss of the first step.

        As torch.cuda.graph asks for, the steps before, which compile and choose algorithms, are on
        a stream of their own.
        """
        self.input, self.input_labels = (
            self.images[: self.batch].clone(),
            self.labels[: self.batch].clone(),
        )
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            first_loss = float(self._step(self.input, self.input_labels))
            for _ in range(WARM_UP):
                self._step(self.input, self.input_labels)
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.loss = self._step(self.input, self.input_labels)
        self.graph = graph
        return first_loss


def prepare(case, name):
    """Make a contender ready for turns of training steps; the time of a step."""
    case = Case.from_dict(case)
    _prepared[name] = TorchTraining(case, CONTENDERS[name])
    turn(name, WARM_UP)
    timed = turn(name, WARM_UP)
    return {
        "batch": case.batch,
        "precision": CONTENDERS[name].precision,
        "step_us": statistics.median(timed["us"]),
    }


def turn(name, steps):
    """{"us": microseconds of a step in each lap of `steps` steps}; a lap begins where the one
    before ended.
    """
    run = _prepared[name]
    _set_precision(run.contender.precision)
    microseconds = _laps(run.step, steps)
    run.require_learning()
    return {"us": microseconds}


def screen(case, name):
    """A first look at a contender: its time in one turn, to find the best for the race."""
    started = time.perf_counter()
    prepare(case, name)
    ready = time.perf_counter() - started
    look = {"us": turn(name, SCREENED)["us"], "prepare_seconds": ready}
    forget()
    return look


def epoch(case, name):
    """Seconds of the second epoch on random images, shuffled on the GPU, with its last partial
    batch.
    """
    case = Case.from_dict(case)
    run = TorchTraining(case, CONTENDERS[name])
    height, width, channels = case.input_shape
    images = torch.rand(case.images, channels, height, width, device=DEVICE)
    if run.contender.channels_last:
        images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (case.images,), device=DEVICE)

    def step():
        losses, order = [], torch.randperm(case.images, device=DEVICE)
        for number, rows in enumerate(order.split(case.batch)):
            losses.append(run.step_with(images[rows], labels[rows]).clone())
            if number % LOOK_EVERY == LOOK_EVERY - 1:
                losses = [torch.stack(losses).mean()]
                losses[0].item()
        return float(losses[-1])

    step()
    _synchronize()
    started = time.perf_counter()
    loss = step()
    _synchronize()
    return {
        "batch": case.batch,
        "images": case.images,
        "steps": -(-case.images // case.batch),
        "seconds": time.perf_counter() - started,
        "loss": loss,
    }


def extraction(case, name):
    """Seconds to compute the features of ROWS images in memory and to fetch them as float32,
    without gradients.
    """
    case, contender = Case.from_dict(case), CONTENDERS[name]
    _set_precision(contender.precision)
    layout = torch.channels_last if contender.channels_last else torch.contiguous_format
    network = case.network
    module = Module(network, network.features).to(DEVICE, memory_format=layout).eval()
    forward = _compiled(module, FORMS[contender.form])
    height, width, channels = network.input_shape
    images = torch.randint(0, 256, (ROWS, channels, height, width), dtype=torch.uint8)
    count = min(ROWS_AT_A_TIME, ROWS)
    staged = torch.empty(
        count, channels, height, width, dtype=torch.uint8, pin_memory=DEVICE == "cuda"
    )
    fetched = None

    def batch(first):
        nonlocal fetched
        staged.copy_(images[first : first + count])
        x = staged.to(DEVICE, non_blocking=True).to(memory_format=layout).float() / 255
        with _autocast(contender.precision):
            features = forward(x)
        if fetched is None:
            fetched = torch.empty_like(
                features, dtype=torch.float32, device="cpu", pin_memory=DEVICE == "cuda"
            )
        fetched.copy_(features)
        return len(features)

    with torch.inference_mode():
        for _ in range(3):
            batch(0)
        _synchronize()
        started, total = time.perf_counter(), 0
        for first in range(0, ROWS - count + 1, count):
            total += batch(first)
        _synchronize()
        seconds = time.perf_counter() - started
    if total != ROWS or not torch.isfinite(fetched).all():
        raise RuntimeError(f"{total} of {ROWS} images came back, or their features are not finite")
    return {"images": ROWS, "seconds": seconds}


def forget():
    """Free what was prepared."""
    _prepared.clear()
    gc.collect()
    if DEVICE == "cuda":
        torch.cuda.empty_cache()


def convolutions(case, precision):
    """{"rows": [{"layer", "operation", "median_us", ...}]} of each pass of each convolution by
    cuDNN, channels last.

    Without the layers around it, and from caches that the calls before have warmed: a CUDA graph of
    CALLS calls, GRAPHS times.
    """
    _set_precision(precision)
    case, rows = Case.from_dict(case), []
    for layer in (layer for layer in case.network.layers if layer.kind == "conv2d"):
        take = layer.attributes
        shape = (
            case.batch,
            *layer.input_shapes[0],
            *(take[name] for name in ("filters", "kernel", "padding", "stride")),
        )
        for name in CONVOLUTIONS:
            work = _counterpart(name, shape, precision)
            rows.append({"layer": layer.name, "operation": name, **percentiles(_in_a_graph(work))})
    return {"rows": rows}


def _in_a_graph(work):
    """Microseconds of a call, in each replay of a graph of CALLS calls; the calls before choose an
    algorithm.
    """
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            work()
    return [taken / CALLS for taken in _times(lambda number: graph.replay(), 2, GRAPHS)]


def operation(name, shape, repetitions, precision="fp32"):
    """Median microseconds of cuDNN's (or PyTorch's own) kernel for an operation, channels last,
    each time with an empty cache.

    shape: batch, height, width, channels and for a convolution filters, kernel, padding, stride.
    None where there is no counterpart.
    """
    _set_precision(precision)
    work = _counterpart(name, shape, precision)
    if work is None:
        return None
    flush = torch.empty(256 << 20 if DEVICE == "cuda" else 1, dtype=torch.uint8, device=DEVICE)
    return statistics.median(
        _times(lambda number: work(), 5, repetitions, before=lambda: flush.zero_())
    )


def _counterpart(name, shape, precision):
    """A function that makes an operation; None without one."""
    functional, gradients, (batch, height, width, channels, *convolution) = (
        nn.functional,
        nn.grad,
        shape,
    )
    of_type, layout = (
        {"device": DEVICE, "dtype": AUTOCAST.get(precision, torch.float32)},
        torch.channels_last,
    )
    x = torch.rand(batch, channels, height, width, **of_type).to(memory_format=layout)
    if name in CONVOLUTIONS:
        filters, kernel, padding, stride = convolution
        window = {"padding": padding, "stride": stride}
        weight = torch.rand(filters, channels, kernel, kernel, **of_type).to(memory_format=layout)
        bias, dy = torch.rand(filters, **of_type), functional.conv2d(x, weight, **window)
        return {
            "conv2d_forward": lambda: functional.conv2d(x, weight, bias, **window),
            "conv2d_input_grad": lambda: gradients.conv2d_input(x.shape, weight, dy, **window),
            "conv2d_weight_grad": lambda: gradients.conv2d_weight(x, weight.shape, dy, **window),
        }[name]
    mean, var = torch.zeros(channels, device=DEVICE), torch.ones(channels, device=DEVICE)
    return {
        "relu_forward": lambda: functional.relu(x),
        "maxpool2d_forward": lambda: functional.max_pool2d(x, 2),
        "avgpool2d_forward": lambda: functional.avg_pool2d(x, 2),
        "dropout_forward": lambda: functional.dropout(x, 0.5),
        "global_avgpool_forward": lambda: functional.adaptive_avg_pool2d(x, 1),
        "add_forward": lambda: x + x,
        "batchnorm_forward": lambda: functional.batch_norm(x, mean, var, mean, var, training=True),
        "lrn_forward": lambda: functional.local_response_norm(x, 5),
        "pad_forward": lambda: functional.pad(x, [1] * 4),
        "upsample2d_forward": lambda: functional.interpolate(x, scale_factor=2),
    }.get(name)


def _set_precision(precision):
    """Set for the steps that follow whether float32 products may be TF32, which PyTorch allows
    convolutions by default.
    """
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


def _autocast(precision):
    return torch.autocast(DEVICE, AUTOCAST.get(precision), enabled=precision in AUTOCAST)


def _compiled(module, mode):
    """The module compiled for its shapes, itself without a mode; an error, not eager execution,
    where that does not work.
    """
    if mode is None:
        return module
    # one process compiles many networks with one `forward`
    for name in ("recompile_limit", "cache_size_limit"):
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, 1000)
            break
    torch._dynamo.config.suppress_errors = False
    return torch.compile(module, dynamic=False, mode=mode)


def _laps(step, count):
    """Microseconds of a step in each of the laps of LAP steps that `count` steps make; as the rungs
    are timed (timing.laps).
    """
    size = min(LAP, count)
    if DEVICE != "cuda":
        marks = [time.perf_counter()]
        for _ in range(count // size):
            for _ in range(size):
                step()
            marks.append(time.perf_counter())
        return [1e6 * (end - begin) / size for begin, end in itertools.pairwise(marks)]
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count // size + 1)]
    marks[0].record()
    for mark in marks[1:]:
        for _ in range(size):
            step()
        mark.record()
    torch.cuda.synchronize()
    return [1000 * begin.elapsed_time(end) / size for begin, end in itertools.pairwise(marks)]


def _synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def _times(work, warm_up, repetitions, before=lambda: None):
    """Microseconds of each work(number)."""
    for number in range(warm_up):
        work(number)
    if DEVICE != "cuda":
        times = []
        for number in range(repetitions):
            before()
            started = time.perf_counter()
            work(number)
            times.append(1e6 * (time.perf_counter() - started))
        return times
    torch.cuda.synchronize()
    events = []
    for number in range(repetitions):
        before()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work(number)
        end.record()
        events.append((begin, end))
    torch.cuda.synchronize()
    return [1000 * begin.elapsed_time(end) for begin, end in events]
