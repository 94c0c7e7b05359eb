"""A stand-in for PyTorch as far as benchmarks/torch_gpu.py uses it to train: `log` has what was
done, in order.

A step's loss falls with every update, unless `learns` is False. A captured step runs at each
replay, and not at its capture.
"""

import contextlib
import sys
import types


class Torch(types.ModuleType):
    def __init__(self):
        super().__init__("torch")
        self.log, self.learns, self.updates, self._stream, self._graph = (
            [],
            True,
            0,
            "default",
            None,
        )
        self.graphs = []
        self.channels_last, self.contiguous_format, self.bfloat16, self.float32 = (
            "channels_last",
            "contiguous",
            "bf16",
            "fp32",
        )
        self.float16, self.amp = "fp16", types.SimpleNamespace(GradScaler=self._scaler)
        self.backends = types.SimpleNamespace(
            cudnn=types.SimpleNamespace(allow_tf32=True, benchmark=False)
        )
        self.matmul = "highest"
        self.randint = lambda *shape, **_: Tensor(self, shape[2][0])
        self.rand = lambda *shape, dtype="fp32", **_: Tensor(
            self, shape[0], dtype=dtype, shape=shape
        )
        self.compile = lambda module, dynamic, mode: (
            self.log.append(f"compile dynamic={dynamic} mode={mode}") or module
        )
        self._dynamo = types.SimpleNamespace(
            config=types.SimpleNamespace(recompile_limit=8, suppress_errors=True)
        )
        self.optim = types.SimpleNamespace(Adam=self._adam)
        self.cuda = types.SimpleNamespace(
            Stream=lambda: types.SimpleNamespace(name="own", wait_stream=lambda other: None),
            stream=self._on,
            current_stream=lambda: types.SimpleNamespace(wait_stream=lambda other: None),
            synchronize=lambda: None,
            CUDAGraph=lambda: Graph(self),
            graph=self._capture,
            Event=lambda enable_timing: Event(),
            empty_cache=lambda: None,
        )
        self.nn = types.ModuleType("torch.nn")
        self.nn.Module = Module
        self.nn.functional = types.ModuleType("torch.nn.functional")
        self.nn.functional.mse_loss = lambda out, images: Loss(self, len(images))
        self.nn.functional.conv2d = self._convolution
        self.nn.grad = types.SimpleNamespace(
            conv2d_input=self._convolution, conv2d_weight=self._convolution
        )

    def install(self, monkeypatch):
        """Make this what `import torch` gives."""
        for name, module in (
            ("torch", self),
            ("torch.nn", self.nn),
            ("torch.nn.functional", self.nn.functional),
        ):
            monkeypatch.setitem(sys.modules, name, module)

    def set_float32_matmul_precision(self, precision):
        self.matmul = precision

    @contextlib.contextmanager
    def autocast(self, device, dtype, enabled):
        self.log.append(f"autocast {dtype}" if enabled else "no autocast")
        yield

    def _adam(self, parameters, rate, fused, capturable):
        self.log.append(f"Adam fused={fused} capturable={capturable}")
        return types.SimpleNamespace(zero_grad=lambda set_to_none: None, step=lambda: None)

    def _scaler(self, device, init_scale, enabled):
        log = self.log.append if enabled else lambda entry: None
        return types.SimpleNamespace(
            scale=lambda loss: log(f"loss times {init_scale}") or loss,
            update=lambda: None,
            step=lambda optimizer: log("update unless infinite") or optimizer.step(),
        )

    def _convolution(self, x, *rest, padding, stride):
        """In a graph that is captured, a call of it."""
        if self._graph is not None:
            self._graph.calls.append([one.dtype for one in (x, *rest) if isinstance(one, Tensor)])
        return Tensor(self, 1, dtype=getattr(x, "dtype", None), shape=())

    @contextlib.contextmanager
    def _on(self, stream):
        self._stream = stream.name
        yield
        self._stream = "default"

    @contextlib.contextmanager
    def _capture(self, graph):
        self._graph = graph
        yield
        self._graph = None

    def step(self, size):
        """Forward, backward and update of `size` images; recorded if a graph is being captured."""
        if self._graph is not None:
            self._graph.sizes.append(size)
            return
        self.updates += 1
        self.log.append(f"step of {size} on {self._stream}")


class Graph:
    def __init__(self, torch):
        self.torch, self.sizes, self.calls = torch, [], []
        torch.graphs.append(self)

    def replay(self):
        self.torch.log.append("replay")
        self.torch.updates += len(self.sizes)


class Event:
    def record(self):
        pass

    def elapsed_time(self, end):
        return 1.0


class Loss:
    def __init__(self, torch, size):
        self.torch, self.size = torch, size

    def backward(self):
        self.torch.step(self.size)

    def detach(self):
        return self

    def __float__(self):
        return 1.0 / (1 + self.torch.updates) if self.torch.learns else 1.0


class Tensor:
    """`size` images in a memory format."""

    def __init__(self, torch, size, layout=None, dtype=None, shape=None):
        self.torch, self.size, self.layout, self.dtype, self.shape = (
            torch,
            size,
            layout,
            dtype,
            shape,
        )

    def __len__(self):
        return self.size

    def __getitem__(self, rows):
        return Tensor(self.torch, rows.stop - (rows.start or 0), self.layout)

    def to(self, *device, memory_format=None):
        return Tensor(self.torch, self.size, memory_format, self.dtype, self.shape)

    def clone(self):
        return Tensor(self.torch, self.size, self.layout)

    def copy_(self, other):
        self.torch.log.append(f"copy of {other.size} in {other.layout}")


class Module:
    def to(self, device, memory_format):
        return self

    def parameters(self):
        return []

    def __call__(self, images):
        return images
