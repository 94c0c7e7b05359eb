"""What gpu_check.py measures: trainings, and PyTorch's configurations. Imports neither CuPy nor
PyTorch.
"""

import dataclasses
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "workflow/scripts"))

import roofline  # noqa: E402
from ladder.network import networks  # noqa: E402
from ladder.rungs import catalog  # noqa: E402

# compute capability with instructions for the precision
OLDEST = {"fp32": 75, "tf32": 80, "bf16": 80, "fp16": 75}
PRECISIONS = tuple(OLDEST)
LOSS_SCALE = 1024  # of fp16 products


@dataclasses.dataclass(frozen=True)
class Case:
    """A training to time with Adam: batches of `batch` images, `images` of them in an epoch."""

    name: str
    input_shape: tuple
    batch: int
    images: int
    options: tuple = ()  # of the network, (name, value)
    multiplier: str = "exact"

    @classmethod
    def from_dict(cls, described):
        """The Case that dataclasses.asdict described, after a way through JSON."""
        shape = tuple(described["input_shape"])
        options = tuple(
            (name, tuple(value) if isinstance(value, list) else value)
            for name, value in described["options"]
        )
        return cls(**{**described, "input_shape": shape, "options": options})

    @property
    def network(self):
        return networks.build(self.name, self.input_shape, **dict(self.options))

    @property
    def label(self):
        """'resnet18, width 32, batch 128, am32'."""
        options = [f"{name} {value}" for name, value in self.options]
        multiplier = [self.multiplier] if self.multiplier != "exact" else []
        return ", ".join([self.name, *options, f"batch {self.batch}", *multiplier])


# In their forms for CIFAR-10 and for MNIST. The headline's batches come first.
# The fastest rungs of each precision, and of each kind of its products: measured first, in this
# order.
HEADLINE_RUNGS = (
    "gpu_bf16_sm90",
    "gpu_tf32",
    "gpu_3xtf32_packed",
    "gpu_3xf16_sm90",
    "gpu_f16_sm90",
    "gpu_f16",
    "gpu_bf16",
    "gpu_opt_v2",
)
HEADLINES = tuple(Case("autoencoder", (32, 32, 3), batch, 50_000) for batch in (64, 32))
LARGE = Case("autoencoder", (32, 32, 3), 512, 50_000)
OTHERS = (
    Case("lenet_5", (28, 28, 1), 64, 60_000),
    Case("resnet18", (32, 32, 3), 128, 50_000),
    Case("resnet50", (28, 28, 1), 32, 60_000),
)
MULTIPLIED = Case("resnet18", (32, 32, 3), 128, 50_000, (("width", 32),))


@dataclasses.dataclass(frozen=True)
class Contender:
    """A way to train in PyTorch. tf32: float32 with TF32 products; bf16, fp16: autocast, with
    float32 weights.

    form: a key of FORMS; graph: the whole step, optimizer included, is one CUDA graph.
    """

    precision: str
    form: str
    channels_last: bool
    graph: bool

    @property
    def name(self):
        words = (self.form, "channels_last" if self.channels_last else "contiguous")
        return " ".join(("PyTorch", self.precision, *words, *(["graph"] if self.graph else [])))


# Form -> mode of torch.compile, None without it. The step is captured in a graph of our own.
FORMS = {"compiled": "default", "eager": None, "max-autotune": "max-autotune-no-cudagraphs"}
# Those that are likely to be fastest first. In one way only: fp16, whose products have the rate of
# bf16's where there are both (roofline.py), and what takes minutes, to choose kernels by timing
# them.
CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender(precision, form, channels_last, graph)
        for graph in (True, False)
        for channels_last in (True, False)
        for form in FORMS
        for precision in PRECISIONS
        if (form != "max-autotune" and precision != "fp16") or (graph and channels_last)
    )
}


def gpu_rungs():
    return [name for name, entry in catalog.RUNGS.items() if entry.executor == "cuda"]


def newest_first(rungs=None):
    """The rungs, by default all of a GPU, from the top of the ladder; lessons, which are there to
    be read, last.
    """
    chosen = gpu_rungs() if rungs is None else rungs
    return sorted(
        chosen, key=lambda rung: (catalog.RUNGS[rung].role == "lesson", -gpu_rungs().index(rung))
    )


def precision(contestant):
    """The precision of the products of a rung or of a PyTorch configuration: one of PRECISIONS."""
    if contestant in CONTENDERS:
        return CONTENDERS[contestant].precision
    return {"float32": "fp32", "tf32": "tf32", "bfloat16": "bf16", "float16": "fp16"}[
        catalog.RUNGS[contestant].precision
    ]


def products(rung):
    """The instructions that a rung makes its products of, which set its ceiling: a key of
    roofline.H200.
    """
    entry = catalog.RUNGS[rung]
    if not entry.on_tensor_cores or precision(rung) != "fp32":
        return precision(rung)
    # Hopper's own instructions sum over rows of numbers of 16 bits alone
    return roofline.THREE_HALVES if entry.newest else roofline.THREE_PRODUCTS
