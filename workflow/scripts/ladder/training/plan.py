"""A plan: the steps that process one batch, over buffers that are allocated once.

A step is data: an operation, the buffers it reads and writes, its attributes and its FLOPs. A plan is independent of the
device that runs it; an executor is independent of the network.
"""

import collections
import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladder.arithmetic.multipliers import DIRECTIONS, EXACT, PRECISIONS, ByDirection, kernel_defines
from ladder.errors import UserError
from ladder.network import optimizers
from ladder.network.layers import KINDS, Layer
from ladder.network.networks import INPUT, Network
from ladder.network.optimizers import Optimizer
from ladder.rungs import tiles
from ladder.rungs.patterns import Gradient, Launch, Pattern
from ladder.rungs.variants import VARIANTS, rung
from ladder.training import limits, recompute

Shape = tuple[int, ...]

# (pattern of the operation's name, category its time is reported under); the first match counts.
WORK = (
    (r"conv2d.*(grad|backward)", "convolution backward"),
    (r"conv2d|collapse", "convolution forward"),
    (r"dense", "dense layers"),
    (r"batchnorm", "batch normalisation"),
    (r"relu", "ReLU"),
    (r"pool", "pooling"),
    (r"upsample", "upsampling"),
    (r"mse|cross_entropy", "loss"),
    (r"update|advance|scale", "update"),
    (r"load|augmentation|jitter", "input"),
    (r"^(add|pad|flatten)", "shortcuts and shapes"),
    (r"dropout|lrn", "dropout and LRN"),
    (r"norm|contrast", "norms and contrast"),
    (r"threshold", "thresholds"),
    (r"winner|penalty", "sparsity"),
    (r"^sample", "sampling"),
    (r"attention", "attention"),
    (r"", "other"),
)

# Operation -> its direction, which selects its multiplier. A multiplier that is not exact becomes an attribute of the step.
DIRECTION_OF = {f"{kind}_{direction}": direction
                for kind in ("conv2d", "dense", "approximate_conv2d", "collapsed_conv2d") for direction in DIRECTIONS}


# Kind of buffer of a training step -> the purpose under which its bytes are reported. The data set is none of them.
PURPOSES = {"parameter": "weights", "state": "running statistics", "gradient": "gradients", "optimizer": "optimizer",
            "activation": "activations", "mask": "masks", "derived": "workspace", "workspace": "workspace",
            "copy": "weights",
            "shared": "activations and gradients in turn"}
SHARED = "shared memory"   # the buffer in which others have places (recompute.py); no layer can have this name
EXECUTOR = "workspace of the executor"   # what the plan does not know: memory that the executor takes for itself


@dataclasses.dataclass(frozen=True)
class Buffer:
    """kind: dataset, control, parameter, copy, state, gradient, optimizer, activation, mask, derived, workspace or shared.

    Activations are NHWC. A copy is one of a parameter, in another form, that lasts from step to step.
    """

    name: str
    shape: Shape
    dtype: str
    kind: str

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation. reads, writes: argument name of the operation -> buffer name; flop: for the whole batch.

    launches: on a GPU rung, the kernel launches that compute it, in order; pass_: 'load', 'forward', 'backward' (from the loss
    on), 'recompute' (of the forward pass, made again) or 'update', which its time is reported under too.
    """

    operation: str
    layer: str
    reads: Mapping[str, str]
    writes: Mapping[str, str]
    attributes: Mapping[str, Any]
    flop: int = 0
    launches: tuple[Launch, ...] = ()
    pass_: str = ""

    @property
    def work(self) -> str:
        """The category its time is reported under, e.g. 'convolution forward'."""
        return next(work for pattern, work in WORK if re.search(pattern, self.operation))


def numpy_view(memory: NDArray[np.uint8], offset: int, buffer: Buffer) -> NDArray[Any]:
    """The array of a Buffer at this offset in uint8 `memory`."""
    return memory[offset:offset + buffer.bytes].view(buffer.dtype).reshape(buffer.shape)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Steps in order over buffers (name -> Buffer); output: the buffer of the network's output.

    first: steps that an executor runs before the first of a row of steps (`run`, `run_many`): they make the copies of the
    parameters, which the update keeps up to date within the row. Whatever else changes a parameter does so between two rows.
    kernels: (layers of a group, operation of their forward pass), in order; places: buffer -> its offset in the buffer SHARED,
    for those that have no memory of their own because they are not in use at the same time.
    """

    network: Network
    variant: str
    batch: int
    buffers: Mapping[str, Buffer]
    steps: tuple[Step, ...]
    kernels: tuple[tuple[tuple[str, ...], str], ...]
    output: str
    first: tuple[Step, ...] = ()
    places: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def flop(self) -> int:
        """Floating-point operations of one run."""
        return sum(step.flop for step in self.steps)

    @property
    def launches(self) -> list[Launch]:
        """The kernel launches of all steps, in order."""
        return [launch for step in self.steps for launch in step.launches]

    @property
    def kernel_table(self) -> list[dict[str, str]]:
        """A JSON-able row for each of `kernels`: layer (e.g. 'conv1 + conv1_relu'), kernel."""
        return [{"layer": " + ".join(layers), "kernel": operation} for layers, operation in self.kernels]

    def sharing(self, places: Mapping[str, int], size: int) -> "Plan":
        """This plan with the buffer SHARED of `size` bytes, in which these buffers have places."""
        buffers = {**self.buffers, SHARED: Buffer(SHARED, (size,), "uint8", "shared")}
        return dataclasses.replace(self, buffers=buffers, places=places)

    @property
    def own(self) -> dict[str, Buffer]:
        """Name -> Buffer of those with memory of their own."""
        return {name: buffer for name, buffer in self.buffers.items() if name not in self.places}

    def views(self, arrays: Mapping[str, Any], view: Callable[[Any, int, Buffer], Any] = numpy_view) -> dict[str, Any]:
        """Name -> array of each buffer with a place in SHARED, whose array is one of `arrays`.

        view: function of that array, an offset and a Buffer; by default of NumPy arrays.
        """
        return {name: view(arrays[SHARED], offset, self.buffers[name]) for name, offset in self.places.items()}

    def memory(self, names: Iterable[str]) -> set[str]:
        """The names of the buffers whose memory these have."""
        return {SHARED if name in self.places else name for name in names}

    @property
    def bytes(self) -> int:
        """Bytes of the buffers of a step, without the data set and the counters of a run."""
        return sum(self.bytes_by_purpose().values())

    def bytes_by_kind(self) -> dict[str, int]:
        """Kind of buffer -> total bytes."""
        total: dict[str, int] = {}
        for buffer in self.own.values():
            total[buffer.kind] = total.get(buffer.kind, 0) + buffer.bytes
        return total

    def bytes_by_purpose(self) -> dict[str, int]:
        """Purpose -> total bytes of the buffers of a step, without the data set and the counters of a run."""
        total: dict[str, int] = {}
        for kind, count in self.bytes_by_kind().items():
            if kind in PURPOSES:
                total[PURPOSES[kind]] = total.get(PURPOSES[kind], 0) + count
        return {purpose: total[purpose] for purpose in dict.fromkeys(PURPOSES.values()) if purpose in total}


@dataclasses.dataclass(frozen=True)
class Dataset:
    """The images that a plan draws batches from: their number and their stored dtype."""

    rows: int
    dtype: str


@dataclasses.dataclass(frozen=True)
class Length:
    """Length of a training run in steps."""

    steps: int
    steps_per_epoch: int

    @classmethod
    def of(cls, images: int, batch_size: int, epochs: int | Any, steps: int | None) -> "Length":   # Any: None beside steps
        """Of `steps` or, if that is None, of so many passes over the images, each with a smaller last batch if need be."""
        per_epoch = -(-images // batch_size)
        return cls(epochs * per_epoch if steps is None else steps, per_epoch)


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Random changes of training images: horizontal flips, then shifts, rotations, and a factor for each colour channel.

    Shifts are by up to `crop` pixels in each axis, rotations by up to `rotate` degrees about the centre, both padded with
    zeros; factors are between 1 - colour and 1 + colour.
    """

    flip: bool = False
    crop: int = 0
    rotate: float = 0.0
    colour: float = 0.0

    def __bool__(self) -> bool:
        return self.flip or self.crop > 0 or self.jitters

    @property
    def jitters(self) -> bool:
        """Whether images are rotated or coloured, and so computed from several pixels in place of moved."""
        return self.rotate > 0 or self.colour > 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """One training run of `steps` steps or, if that is None, of `epochs` epochs.

    schedule: keyword arguments of optimizers.learning_rates. gradient_scale: 'mean' divides the gradient of the summed squared
    error by all elements of the batch, 'batch' by its images only (always the case for the cross-entropy). seed: of the random
    numbers of a step and of the shuffling. multipliers: of convolutions and dense layers. loss_scale: factor on all gradients,
    divided out before the updates; exact if it is a power of two and nothing overflows. frozen: names of layers whose
    parameters are not trained; no gradient is computed for them. recompute: see recompute.py; it changes no byte, nor does
    multiprocessors, the number of the GPU's for which tiles are chosen (None: of this machine's GPU).
    """

    network: Network
    variant: str
    batch_size: int
    optimizer: Optimizer = Optimizer("sgd")
    learning_rate: float = 1e-3
    schedule: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    epochs: int | None = None
    steps: int | None = None
    gradient_scale: str = "mean"
    augmentation: Augmentation = Augmentation()
    seed: int = 0
    multipliers: ByDirection = EXACT
    loss_scale: float = 1
    frozen: tuple[str, ...] = ()
    recompute: bool = False
    multiprocessors: int | None = None


def made_for(variant: str) -> ByDirection:
    """The ByDirection of the precision that a rung is made for: what measurements and checks of the rung let it multiply."""
    return PRECISIONS[VARIANTS[variant].precision]


def training_plan(settings: Settings, dataset: Dataset, length: Length, dtype: str = "float32",
                  fuse_update: bool = True) -> Plan:
    """One training step: load a batch of settings.batch_size, forward, loss, backward, update.

    Layers that the output does not depend on, which only features read, are left out.

    fuse_update: let a rung with GRADIENTS_IN_PARTS leave gradients in parts, which its update adds; otherwise every gradient
    has a buffer of its own. Raises ValueError if the variant has no operation for a layer or a frozen layer reads a trained
    one, UserError if the network cannot be trained or the batch is too large for the variant.
    """
    network = settings.network
    for layer in trained_layers(network):
        if not KINDS[layer.kind].has_gradient:
            raise UserError(f"network {network.name} cannot be trained by gradient: layer {layer.name} ({layer.kind}) has "
                            "none; set training to patches")

    def made(batch: int) -> Plan:
        return _training_plan(dataclasses.replace(settings, batch_size=batch), dataset, length, dtype, fuse_update)

    plan = limits.within_indices(made, settings.batch_size, settings.variant)
    return recompute.recomputed(plan) if settings.recompute else plan


def _training_plan(settings: Settings, dataset: Dataset, length: Length, dtype: str, fuse_update: bool) -> Plan:
    network, optimizer = settings.network, settings.optimizer
    build = Builder(settings, trained_layers(network), dtype, training=True)
    build.in_parts = fuse_update and settings.loss_scale == 1 and getattr(build.rung, "GRADIENTS_IN_PARTS", False)
    build.load_batch(dataset, augmentation=settings.augmentation)
    build.lower()
    build.loss(dataset, settings.gradient_scale, length)
    if settings.loss_scale != 1:
        build.scale_gradients(settings.loss_scale)
    build.go_back()
    build.update(learning(network, settings.frozen), optimizer, length)
    build.advance()
    return build.plan()


def one_step(network: Network, variant: str, batch: int, optimizer: str, recompute: bool = False) -> Plan:
    """The plan of a training step of `batch` images, which are all; optimizer: its name."""
    settings = Settings(network=network, variant=variant, batch_size=batch, optimizer=Optimizer(optimizer), recompute=recompute)
    return training_plan(settings, Dataset(batch, "uint8"), Length(1, 1))


def trained_layers(network: Network) -> tuple[Layer, ...]:
    """The layers that the output depends on, in execution order."""
    return network.needed_for(network.layers[-1].name)


def learning(network: Network, frozen: Collection[str] = ()) -> dict[str, Shape]:
    """Parameter name -> shape for all layers that are not frozen."""
    return {name: shape for layer in network.layers if layer.name not in frozen for name, shape in layer.parameters.items()}


def inference_plan(network: Network, variant: str, batch: int, dataset: Dataset, until: str | None = None, flip: bool = False,
                   multipliers: ByDirection = EXACT) -> Plan:
    """Load a batch (mirrored left to right with `flip`) and run forward to the layer `until`, by default the last.

    Raises UserError if the batch is too large for the variant.
    """
    def made(batch: int) -> Plan:
        settings = Settings(network=network, variant=variant, batch_size=batch, multipliers=multipliers)
        build = Builder(settings, network.needed_for(until or network.layers[-1].name), "float32", training=False)
        build.load_batch(dataset, flip)
        build.lower()
        build.advance()
        return build.plan()

    return limits.within_indices(made, batch, variant)


class Builder:
    """A plan under construction; the rung's patterns append to it.

    The backward pass visits the groups of layers in reverse. Each reader of a value registers a buffer with its part of the
    value's gradient (`gradient_part`, `pass_gradient`); the group that produced the value first sums the parts (`gradient`).
    """

    def __init__(self, settings: Settings, layers: tuple[Layer, ...], dtype: str, training: bool) -> None:
        self.network, self.variant, self.batch, self.dtype = settings.network, settings.variant, settings.batch_size, dtype
        self.layers, self.training, self.seed, self.multipliers = layers, training, settings.seed, settings.multipliers
        self.rung = rung(settings.variant)
        # Of a GPU rung; Any stands for the None of another one, which reads neither.
        self.launches: Mapping[str, Callable[[Step, Builder], tuple[Launch, ...]]] | Any = getattr(self.rung, "LAUNCHES", None)
        self.multiprocessors: int | Any = settings.multiprocessors or (self.launches and tiles.multiprocessors())
        for layer in layers:   # also one that a fused group never writes: kernels count its pixels
            self._check_indices(layer.name, (self.batch, *layer.output_shape))
        self.buffers: dict[str, Buffer] = {}
        self.steps: list[Step] = []
        self.kernels: list[tuple[tuple[str, ...], str]] = []
        self.in_parts = False   # whether weight gradients are left in parts
        self.loss_scale: float = 1   # factor on all gradients
        self.divisor = 1        # of the sum over the batch whose gradient is followed
        self.output = INPUT
        self._pass = "load"     # of the steps that are appended
        self._left_in_parts: dict[str, Gradient] = {}   # by parameter
        self._copies: dict[str, dict[str, str]] = {}   # parameter -> {role: buffer} of its copies
        self.receivers: dict[str, Any] = {}   # value -> what a rung's patterns tell its reader about where its gradient belongs
        self._unstored: dict[str, Shape] = {}   # value that no buffer holds as it is -> its shape
        self._values = {INPUT: INPUT}   # layer -> buffer of its output
        self._parts: dict[str, list[str]] = {}   # value -> buffers whose sum is its gradient
        self._backward: list[Callable[[], None] | None] = []   # function of each group, in order
        self._readers = collections.Counter(name for layer in layers for name in layer.inputs)
        self._trained = self._depending_on_parameters(settings.frozen)

    def _check_indices(self, name: str, shape: Shape) -> None:
        if self.launches is not None:
            limits.check_indices(name, shape, self.batch)

    def _depending_on_parameters(self, frozen: Collection[str]) -> set[str]:
        found: set[str] = set()
        for layer in self.layers:
            if found & set(layer.inputs):
                if layer.name in frozen:
                    raise ValueError(f"layer {layer.name} cannot be frozen: it reads the output of a trained layer")
                found.add(layer.name)
            elif layer.parameters and layer.name not in frozen:
                found.add(layer.name)
        return found

    def plan(self) -> Plan:
        return Plan(self.network, self.variant, self.batch, self.buffers, self._launched(self.steps), tuple(self.kernels),
                    self.output, self._launched(self._first()))

    def _first(self) -> list[Step]:
        if not self._copies:
            return []
        return [Step("copy_weights", "", {name: name for name in self._copies}, self._copies_of(self._copies),
                     {"copies": self._copies}, pass_="load")]

    def _copies_of(self, names: Iterable[str]) -> dict[str, str]:
        """{role of an operand: buffer} of the copies of these parameters."""
        return {f"{name}.{role}": buffer for name in names for role, buffer in self._copies.get(name, {}).items()}

    def _launched(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        if self.launches is None:
            return tuple(steps)
        return tuple(dataclasses.replace(step, launches=self._launches_of(step)) for step in steps)

    def _launches_of(self, step: Step) -> tuple[Launch, ...]:
        launches = self.launches[step.operation](step, self)
        limits.check_grids(launches, step.layer, self.variant)
        if "multiplier" not in step.attributes:
            return launches
        defines = kernel_defines(step.attributes["multiplier"])
        return tuple(dataclasses.replace(launch, defines=(*launch.defines, *defines)) for launch in launches)

    def lower(self) -> None:
        """Cover the layers with the variant's patterns, always with the first (longest) that matches."""
        self._pass = "forward"
        left = self.layers
        while left:
            pattern = self._pattern(left)
            group, left = left[:len(pattern.kinds)], left[len(pattern.kinds):]
            begun, backward = len(self.steps), pattern.emit(self, group)
            self._backward.append(backward if self.wants_gradient(group[-1].name) else None)
            if len(self.steps) > begun:
                self.kernels.append((tuple(layer.name for layer in group), self.steps[-1].operation))

    def _pattern(self, layers: tuple[Layer, ...]) -> Pattern:
        collapses = self.collapses(layers[:2])
        for pattern in self.rung.PATTERNS:
            group = layers[:len(pattern.kinds)]
            if pattern.collapses != collapses:
                continue
            fits = tuple(layer.kind for layer in group) == pattern.kinds and self._is_chain(group) and pattern.accepts(group)
            if fits and (self.multipliers.exact or not pattern.exact_only) and pattern.fits(self, group):
                return pattern
        raise ValueError(f"variant {self.variant} has no operation for layer {layers[0].name} ({layers[0].kind})")

    def collapses(self, group: tuple[Layer, ...]) -> bool:
        """Whether an upsampling and a convolution multiply sums of taps, each rounded once, on every rung.

        In bfloat16 a 3x3 convolution with stride 1 and padding 1 does, unless another layer of the network reads the larger
        image, whether this plan has it or not: the precision includes what is rounded.
        """
        if tuple(layer.kind for layer in group) != ("upsample2d", "conv2d") or not self._is_chain(group):
            return False
        if len(self.network.readers(group[0].name)) > 1:
            return False
        conv, formats = group[1].attributes, {getattr(self.multipliers, direction).name for direction in DIRECTIONS}
        return formats == {"bfloat16"} and (conv["kernel"], conv["stride"], conv["padding"]) == (3, 1, 1)

    def _is_chain(self, group: tuple[Layer, ...]) -> bool:
        """Whether each layer's first input is the previous layer, and no other layer reads that one."""
        return all(after.inputs[0] == layer.name and self._readers[layer.name] == 1
                   for layer, after in itertools.pairwise(group))

    def go_back(self) -> None:
        """The backward pass, starting from the gradient of the output."""
        for backward in reversed(self._backward):
            if backward is not None:
                backward()

    def load_batch(self, dataset: Dataset, flip: bool = False, augmentation: Augmentation = Augmentation()) -> None:
        image = self.network.input_shape
        self._buffer(INPUT, (self.batch, *image), self.dtype, "activation")
        reads = {"images": self._buffer("images", (dataset.rows, *image), dataset.dtype, "dataset"),
                 "permutation": self._permutation(dataset),
                 "counters": self._counters(),
                 "scale": self._control("scale", image[2:], "float32"),
                 "offset": self._control("offset", image[2:], "float32")}
        if augmentation:
            drawn = self.workspace("augmentation", (self.batch, 3), "int32")
            self._append("draw_augmentation", "", {"counters": self._counters()}, {"augmentation": drawn},
                         crop=augmentation.crop, flip=augmentation.flip, seed=self.seed)
            reads["augmentation"] = drawn
            if not augmentation.jitters:
                self._append("load_augmented_batch", "", reads, {"batch": INPUT})
                return
            jitter = self.workspace("jitter", (self.batch, 2 + image[2]))
            self._append("draw_jitter", "", {"counters": self._counters()}, {"jitter": jitter},
                         tangent=math.tan(math.radians(augmentation.rotate) / 2), colour=augmentation.colour, seed=self.seed)
            self._append("load_jittered_batch", "", {**reads, "jitter": jitter}, {"batch": INPUT})
        else:
            self._append("load_batch", "", reads, {"batch": INPUT}, flip=flip)

    def loss(self, dataset: Dataset, gradient_scale: str, length: Length) -> None:
        self._pass = "backward"
        losses = self._control("losses", (length.steps_per_epoch,), "float64")
        writes = {"gradient": self.gradient_part(self.output), "losses": losses}
        if self.network.classifies:
            self.divisor = self.batch
            reads = {"prediction": self.output, "labels": self._buffer("labels", (dataset.rows,), "uint8", "dataset"),
                     "permutation": self._permutation(dataset), "counters": self._counters()}
            self._append("cross_entropy", "", reads, {**writes, "hits": self.by_step("hits")})
            return
        if self.shape(self.output) != self.shape(INPUT):
            raise ValueError(f"network {self.network.name} puts out {self.shape(self.output)} for {self.shape(INPUT)}: "
                             "it cannot be trained to rebuild its images")
        elements = math.prod(self.network.input_shape)
        self.divisor = {"mean": self.batch * elements, "batch": self.batch}[gradient_scale]
        self._append("mse", "", {"prediction": self.output, "target": INPUT, "counters": self._counters()}, writes,
                     flop=4 * elements * self.batch, divisor=self.divisor)

    def scale_gradients(self, factor: float) -> None:
        """Multiply the gradient of the output, and so all gradients, by `factor` until the updates."""
        self.loss_scale = factor
        (gradient,) = self._parts[self.output]
        scaled = self._buffer(f"{self.output}.gradient.scaled", self.shape(self.output), self.dtype, "gradient")
        self._append("scale", "", {"x": gradient}, {"y": scaled}, factor=float(factor))
        self._parts[self.output] = [scaled]

    def update(self, names: Collection[str], optimizer: Optimizer, length: Length) -> None:
        """Update these parameters: in one step if the rung has UPDATES_TOGETHER, else in one step each."""
        self._pass = "update"
        gradients = {name: self._gradient_of(name) for name in names}
        if getattr(self.rung, "UPDATES_TOGETHER", False):
            reads = {f"{name}.gradient": gradient.buffer for name, gradient in gradients.items()}
            writes: dict[str, str] = {}
            for name in names:
                averages = self._averages(name, optimizer)
                writes |= {name: name, **{f"{name}.{average}": buffer for average, buffer in averages.items()}}
            copies: dict[str, Any] = {"copies": self._copies} if self._copies else {}
            self._append(f"{optimizer.name}_update", "", {**reads, **self._schedule(length)},
                         {**writes, **self._copies_of(names)}, gradients=gradients, **copies,
                         **optimizers.attributes(optimizer))
            return
        for name, gradient in gradients.items():
            self._append(f"{optimizer.name}_update", name.rpartition(".")[0],
                         {"gradient": gradient.buffer, **self._schedule(length)},
                         {"parameter": name, **self._averages(name, optimizer)}, **optimizers.attributes(optimizer))

    def _gradient_of(self, name: str) -> Gradient:
        """The Gradient of a parameter, the loss scale divided out."""
        if name in self._left_in_parts:
            return self._left_in_parts[name]
        gradient = self.parameter_gradient(name)
        if self.loss_scale == 1:
            return Gradient(gradient)
        unscaled = self._buffer(f"{name}.gradient.unscaled", self.shape(name), self.dtype, "gradient")
        self._append("scale", name.rpartition(".")[0], {"x": gradient}, {"y": unscaled}, factor=1 / self.loss_scale)
        return Gradient(unscaled)

    def leave_in_parts(self, gradients: Mapping[str, Gradient]) -> None:
        """gradients: parameter -> Gradient; its step leaves it so for the update."""
        self._left_in_parts |= gradients

    def _averages(self, name: str, optimizer: Optimizer) -> dict[str, str]:
        return {average: self._buffer(f"{name}.{average}", self.network.parameters[name], self.dtype, "optimizer")
                for average in optimizers.AVERAGES[optimizer.name]}

    def _schedule(self, length: Length) -> dict[str, str]:
        return {"counters": self._counters(),
                "learning_rates": self._control("learning_rates", (length.steps,), "float64")}

    def advance(self) -> None:
        self._append("advance", "", {}, {"counters": self._counters()}, batch=self.batch)

    def step(self, operation: str, group: tuple[Layer, ...], reads: Mapping[str, str], writes: Mapping[str, str], flop: int = 0,
             **attributes: Any) -> None:
        """Append a step of a group of layers; flop: per image."""
        if operation in DIRECTION_OF and (multiplier := getattr(self.multipliers, DIRECTION_OF[operation])).name != "exact":
            attributes["multiplier"] = multiplier
        self._append(operation, group[0].name, reads, writes, flop * self.batch, **attributes)

    # Values.

    def value(self, name: str) -> str:
        """The buffer with the output of layer `name`, or with the images."""
        return self._values[name]

    def source(self, layer: Layer) -> str:
        """The buffer with the layer's only input."""
        (name,) = layer.inputs
        return self.value(name)

    def sources(self, layer: Layer) -> list[str]:
        """The buffers with the layer's inputs."""
        return [self.value(name) for name in layer.inputs]

    def activation(self, layer: Layer) -> str:
        """A new buffer for the layer's output."""
        self.output = self._values[layer.name] = layer.name
        return self._buffer(layer.name, (self.batch, *layer.output_shape), self.dtype, "activation")

    def unstored(self, layer: Layer) -> None:
        """The layer's output is a value that its reader has in a form of its own, and no other layer reads."""
        self.output = self._values[layer.name] = layer.name
        self._unstored[layer.name] = (self.batch, *layer.output_shape)

    def sole_reader(self, name: str) -> Layer | None:
        """The layer that follows layer `name`, if it alone reads it; else None."""
        names = [layer.name for layer in self.layers]
        following = self.layers[names.index(name) + 1:][:1]
        return following[0] if following and self._readers[name] == 1 and following[0].inputs == (name,) else None

    def unchanged(self, layer: Layer) -> None:
        """The layer's output is its first input, without a step."""
        self.output = self._values[layer.name] = self.value(layer.inputs[0])

    # Gradients of values.

    def wants_gradient(self, value: str) -> bool:
        """Whether the value depends on a trained parameter; the images do not, so they need no gradient."""
        return value in self._trained

    def gradient_part(self, value: str) -> str:
        """A new buffer for one reader's part of the value's gradient."""
        parts = self._parts.setdefault(value, [])
        name = f"{value}.gradient{f'.{len(parts) + 1}' if parts else ''}"
        parts.append(self._buffer(name, self.shape(value), self.dtype, "gradient"))
        return parts[-1]

    def pass_gradient(self, value: str, buffer: str) -> None:
        """Register an existing buffer as one reader's part of the value's gradient."""
        if self.wants_gradient(value):
            self._parts.setdefault(value, []).append(buffer)

    def gradient(self, value: str) -> str:
        """The buffer with the gradient of a value, once all its readers have registered their parts."""
        first, *others = self._parts[value]
        for number, other in enumerate(others, 1):
            total = self._buffer(f"{value}.gradient.sum{number}", self.shape(value), self.dtype, "gradient")
            self._append("add_forward", value, {"a": first, "b": other}, {"y": total})
            first = total
        self._parts[value] = [first]
        return first

    # Other buffers.

    def mask(self, layer: Layer, name: str = "index") -> str:
        return self._buffer(f"{layer.name}.{name}", (self.batch, *layer.output_shape), "uint8", "mask")

    def parameter(self, name: str) -> str:
        return self._buffer(name, self.network.parameters[name], self.dtype, "parameter")

    def copies(self, name: str, shapes: Mapping[str, Shape]) -> dict[str, str]:
        """{role: buffer} of copies of a parameter in 16-bit words, which the rung's update keeps up to date (Plan.first)."""
        self._copies[name] = {role: self._buffer(f"{name}.{role}", shape, "uint16", "copy") for role, shape in shapes.items()}
        return self._copies[name]

    def parameter_gradient(self, name: str) -> str:
        return self._buffer(f"{name}.gradient", self.network.parameters[name], self.dtype, "gradient")

    def state(self, name: str) -> str:
        return self._buffer(name, self.network.state[name], self.dtype, "state")

    def kept(self, name: str, shape: Shape, dtype: str | None = None) -> str:
        """A buffer for values that the forward pass saves for the backward pass, by default of the plan's type."""
        return self._buffer(name, shape, dtype or self.dtype, "activation")

    def by_step(self, name: str) -> str:
        """A number for each step of an epoch, as the loss."""
        return self._control(name, self.shape("losses"), "float64")

    def zeros(self, name: str, shape: Shape) -> str:
        """A buffer that holds zeros."""
        return self._control(name, shape, self.dtype)

    def derived(self, name: str, shape: Shape) -> str:
        return self._buffer(name, shape, self.dtype, "derived")

    def workspace(self, name: str, shape: Shape, dtype: str = "float32") -> str:
        """A scratch buffer between the launches of one step."""
        return self._buffer(name, shape, dtype, "workspace")

    def shape(self, name: str) -> Shape:
        """Of a buffer, or of a value that is not stored."""
        return self.buffers[name].shape if name in self.buffers else self._unstored[name]

    def _permutation(self, dataset: Dataset) -> str:
        return self._control("permutation", (dataset.rows,), "int64")

    def _counters(self) -> str:
        """[step, offset into the permutation, step of this epoch]; set by the host, advanced by the last step."""
        return self._control("counters", (3,), "int64")

    def _control(self, name: str, shape: Shape, dtype: str) -> str:
        return self._buffer(name, shape, dtype, "control")

    def _buffer(self, name: str, shape: Shape, dtype: str, kind: str) -> str:
        buffer = Buffer(name, tuple(shape), dtype, kind)
        if self.buffers.setdefault(name, buffer) != buffer:
            raise ValueError(f"two buffers are called {name}: {self.buffers[name]} and {buffer}")
        if kind not in limits.INDEXED_WITH_64_BITS:
            self._check_indices(name, shape)
        return name

    def _append(self, operation: str, layer: str, reads: Mapping[str, str], writes: Mapping[str, str], flop: int = 0,
                **attributes: Any) -> None:
        self.steps.append(Step(operation, layer, reads, writes, attributes, flop, pass_=self._pass))
