"""The same work in PyTorch, for comparison; imported only if PyTorch is installed."""

import statistics
import time

import torch
from torch import nn

from torch_step import Module

# name -> (TF32 allowed, autocast to, memory format, compiled with CUDA graphs)
CONTENDERS = {
    "eager fp32": (False, None, torch.contiguous_format, False),
    "eager TF32": (True, None, torch.contiguous_format, False),
    "eager bf16 channels_last": (True, torch.bfloat16, torch.channels_last, False),
    "compiled + graphs bf16": (True, torch.bfloat16, torch.channels_last, True),
}
BATCHES_COMPILED = (64, 512)


def train_step(name, network, batch, steps, warm_up, device="cuda"):
    """Median, 10th and 90th percentile microseconds of a training step with Adam; each step uses new images."""
    tf32, autocast, layout, compiled = CONTENDERS[name]
    _set_precision(tf32)
    module = Module(network).to(device, memory_format=layout)
    optimizer = torch.optim.Adam(module.parameters(), 1e-3, fused=device == "cuda")
    forward = torch.compile(module, mode="reduce-overhead") if compiled else module
    height, width, channels = network.input_shape
    images = torch.rand(batch * 8, channels, height, width, device=device).to(memory_format=layout)
    labels = torch.randint(0, 10, (batch * 8,), device=device)
    losses = []

    def step(number):
        rows = slice(number % 8 * batch, (number % 8 + 1) * batch)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, autocast, enabled=autocast is not None):
            out = forward(images[rows])
            loss = (nn.functional.cross_entropy(out, labels[rows]) if network.classifies
                    else nn.functional.mse_loss(out, images[rows]))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())

    microseconds = _times(step, warm_up, steps, device)
    if not torch.isfinite(torch.stack(losses)).all() or (not network.classifies and losses[-1] >= losses[0]):
        raise RuntimeError(f"{name} does not learn: its times mean nothing")   # labels are random, there is nothing to learn
    ordered = sorted(microseconds)
    return {"name": name, "batch": batch, "median_us": statistics.median(ordered), "low_us": ordered[len(ordered) // 10],
            "high_us": ordered[-1 - len(ordered) // 10], "repetitions": len(ordered)}


def matrix_product(size=8192, repetitions=10):
    """Operations per second of a bf16 matrix product: the ceiling of the tensor cores."""
    left, right = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    microseconds = _times(lambda number: left @ right, 3, repetitions, "cuda")
    return 2 * size ** 3 / statistics.median(microseconds) * 1e6


def operation(name, shape, repetitions, device="cuda"):
    """Median microseconds of cuDNN's (or PyTorch's own) kernel for one operation, float32 without TF32, channels last.

    shape: batch, height, width, channels and for a convolution filters, kernel, padding, stride. None where there is no
    counterpart.
    """
    _set_precision(False)
    batch, height, width, channels, *convolution = shape
    x = torch.rand(batch, channels, height, width, device=device).to(memory_format=torch.channels_last)
    work = _counterpart(name, x, convolution, device)
    if work is None:
        return None
    flush = torch.empty(256 << 20 if device == "cuda" else 1, dtype=torch.uint8, device=device)
    return statistics.median(_times(lambda number: work(), 5, repetitions, device, before=lambda: flush.zero_()))


def _counterpart(name, x, convolution, device):
    functional, gradients, channels = nn.functional, nn.grad, x.shape[1]
    if name.startswith("conv2d"):
        filters, kernel, padding, stride = convolution
        window = {"padding": padding, "stride": stride}
        weight = torch.rand(filters, channels, kernel, kernel, device=device).to(memory_format=torch.channels_last)
        bias, dy = torch.rand(filters, device=device), functional.conv2d(x, weight, **window)
        return {
            "conv2d_forward": lambda: functional.conv2d(x, weight, bias, **window),
            "conv2d_input_grad": lambda: gradients.conv2d_input(x.shape, weight, dy, **window),
            "conv2d_weight_grad": lambda: gradients.conv2d_weight(x, weight.shape, dy, **window),
        }.get(name)
    mean, var = torch.zeros(channels, device=device), torch.ones(channels, device=device)
    return {"relu_forward": lambda: functional.relu(x), "maxpool2d_forward": lambda: functional.max_pool2d(x, 2),
            "avgpool2d_forward": lambda: functional.avg_pool2d(x, 2), "dropout_forward": lambda: functional.dropout(x, 0.5),
            "global_avgpool_forward": lambda: functional.adaptive_avg_pool2d(x, 1), "add_forward": lambda: x + x,
            "batchnorm_forward": lambda: functional.batch_norm(x, mean, var, mean, var, training=True),
            "lrn_forward": lambda: functional.local_response_norm(x, 5), "pad_forward": lambda: functional.pad(x, [1] * 4),
            "upsample2d_forward": lambda: functional.interpolate(x, scale_factor=2)}.get(name)


def _set_precision(tf32):
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32


def _times(work, warm_up, repetitions, device, before=lambda: None):
    """Microseconds of each work(number)."""
    for number in range(warm_up):
        work(number)
    if device != "cuda":
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
