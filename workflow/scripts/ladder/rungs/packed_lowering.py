"""The patterns of a rung whose convolutions read packed operands (packing.py): which steps a group
of layers becomes.

Where such a convolution alone reads what a group makes, no step of its own packs that value: the
group's forward step writes it packed, and the consumer's input gradient writes its gradient packed,
behind the group's pooling and ReLU.
"""

import dataclasses
import functools
from collections.abc import Callable

from ladder.network.layers import Layer
from ladder.rungs import gpu_3xtf32, gpu_opt_v1, packed, patterns
from ladder.rungs.interface import Backward, Implementation, Pattern, PlanBuilder
from ladder.rungs.launches import Gradient, Group, PackedGradient, Shape, StepAttributes
from ladder.rungs.packed_tiles import NumberFormat
from ladder.rungs.packing import (
    PIXELS_OF_LOSS,
    Columns,
    Packing,
    both_gradients,
    has_phases,
    packing_of,
    rows_of_packing,
)
from ladder.rungs.patterns import convolution, is_2x2, sliding, weight_gradients


@dataclasses.dataclass(frozen=True)
class Lowering:
    """packing_of(build, layer): the Packing of a convolution's operands; None if it reads none that
    are packed.

    rounds: whether packing rounds, so that a plan asks for phase weights on every rung
    (Pattern.decomposes).
    """

    packing_of: Callable[[PlanBuilder, Layer], Packing | None]
    rounds: bool = True

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        return (
            Pattern(("conv2d", "relu", "maxpool2d"), self.emit, fits=self._pools),
            Pattern(
                ("upsample2d", "conv2d", "relu"),
                self.emit,
                fits=self._packs_phases,
                decomposes=self.rounds,
            ),
            Pattern(
                ("upsample2d", "conv2d"), self.emit, fits=self._packs_phases, decomposes=self.rounds
            ),
            Pattern(("conv2d", "relu"), self.emit),
            Pattern(("conv2d",), self.emit),
            *gpu_3xtf32.RUNG.patterns,
        )

    def _packs_phases(self, build: PlanBuilder, group: Group) -> bool:
        return self.packing_of(build, group[1]) is not None and has_phases(build, group[1])

    def _pools(self, build: PlanBuilder, group: Group) -> bool:
        """Whether conv2d, relu and maxpool2d are one step."""
        conv, _, pool = group
        height, width, _ = conv.output_shape
        packing = self.packing_of(build, conv)
        if (
            not packing
            or not packing.holds_windows(width)
            or not is_2x2(pool)
            or height % 2
            or width % 2
        ):
            return False
        return self._reader(build, group) is not None

    def emit(self, build: PlanBuilder, group: Group) -> Backward:
        """upsample2d or not, conv2d, ReLU and 2x2 max-pool or not; as gpu_opt_v1.conv_block where
        nothing is packed.
        """
        layers = group[group[0].kind == "upsample2d" :]
        packing = self.packing_of(build, layers[0])
        if not packing:
            return gpu_opt_v1.conv_block(build, group)
        if layers != group:
            build.values.unchanged(group[0])
        reader = self._reader(build, layers)
        return Block(build, group, layers, packing).emit(
            reader, self.packing_of(build, reader) if reader else None
        )

    def _reader(self, build: PlanBuilder, layers: Group) -> Layer | None:
        """The packed convolution that alone reads what `layers` make, directly or through an
        upsampling with phases; or None.

        layers: a packed convolution and those behind it. Where gradients are wanted, neither
        convolution may have a stride.
        """
        conv, output = layers[0], layers[-1].name
        reader: Layer | None = build.values.sole_reader(output)
        if reader and reader.kind == "upsample2d":
            reader = build.values.sole_reader(reader.name)
            if not reader or not has_phases(build, reader):
                return None
        packing = self.packing_of(build, reader) if reader else None
        if not reader or not packing or conv.attributes["filters"] % packing.number_format.chunk:
            return None
        if build.training and build.gradients.is_wanted(output):
            strided = conv.attributes["stride"] != 1 and build.gradients.is_wanted(
                build.values.source(conv)
            )
            if strided or reader.attributes["stride"] != 1:
                return None
        return reader


def rung(below: Implementation, number_format: NumberFormat, rounds: bool = True) -> Implementation:
    """The rung `below` with packed operands of these numbers; rounds: of Lowering."""
    return dataclasses.replace(
        below.with_launches(packed.of_format(number_format)),
        patterns=Lowering(
            functools.partial(packing_of, number_format=number_format), rounds
        ).patterns,
        gradients_in_parts=True,
    )


class Block:
    """A group of layers around a packed convolution; layers: those from it on."""

    def __init__(self, build: PlanBuilder, group: Group, layers: Group, packing: Packing) -> None:
        self.build, self.group, self.layers, self.packing = build, group, layers, packing
        self.conv = conv = layers[0]
        self.x, self.weight, self.bias = convolution(build, conv)
        self.relu, upsamples = len(layers) > 1, layers != group
        self.flop = patterns.flop_of_phases(conv) if upsamples else 2 * conv.macs
        self.input_stride = 2 if upsamples else 1  # of the convolution that is the input gradient
        # Whether that is one with the flipped weight: behind a stride it would need zeros between
        # the pixels of dy.
        self.flips = (
            build.training and build.gradients.is_wanted(self.x) and conv.attributes["stride"] == 1
        )
        # The border of dy, which the input gradient reads, and behind an upsampling the weight
        # gradient too.
        self.padding = (
            conv.attributes["kernel"] - 1 - conv.attributes["padding"]
            if upsamples or self.flips
            else 0
        )
        self.pooled: dict[str, str] = {}  # "index" of the pooling, where dy is behind it

    def emit(self, reader: Layer | None, reader_packing: Packing | None) -> Backward:
        """Append the forward steps; the returned function appends the backward steps. reader:
        Lowering._reader.
        """
        build, conv_op, (kernel, stride) = (
            self.build,
            self.packing.conv_op,
            self.packing.slides(self.conv),
        )
        shapes = self.packing.weight(build.values.shape(self.weight)).items()
        weights = build.values.copies(
            self.weight,
            {role: shape for role, shape in shapes if self.flips or role != "flipped"},
            self.packing.number_format.dtype,
        )
        x = self._packed_input()
        y, writes, padding = self._output(reader, reader_packing)
        attributes: StepAttributes = {"stride": stride, "relu": self.relu, **padding}
        build.steps.add(
            f"{conv_op}_forward",
            self.group,
            {"x": x, "weight": weights["packed"], "bias": self.bias},
            writes,
            flop=self.flop,
            **attributes,
        )

        def backward() -> None:
            dy = build.gradients.packed.get(y) or self._packed_gradient(y)
            bordered, without_border = both_gradients(dy.writes)
            if self.flips:
                self._input_gradient({"dy": bordered, "flipped": weights["flipped"]}, x)
            elif build.gradients.is_wanted(self.x):
                build.steps.add(
                    "conv2d_input_grad",
                    self.group,
                    {"dy": dy.whole, "weight": self.weight},
                    {"dx": build.gradients.part(self.x)},
                    flop=self.flop,
                    **sliding(self.conv),
                )
            reads = {
                "x": x,
                "dy": without_border,
                "bias_partials": dy.writes["bias_partials"],
                **self.pooled,
            }
            build.steps.add(
                f"{conv_op}_weight_grad",
                self.group,
                reads,
                self._weight_gradients(reads),
                flop=self.flop,
                stride=stride,
                padding=dy.padding,
                kernel=kernel,
            )

        return backward

    def _packed_input(self) -> str:
        """The buffer of packed x, packed by a step of its own unless the step that makes x does
        so.
        """
        if self.x in self.build.packed_inputs:
            return self.build.packed_inputs[self.x]
        build, padding = self.build, self.conv.attributes["padding"]
        packed = packed_input(build, self.conv, self.packing, build.values.shape(self.x))
        if not isinstance(self.packing, Columns):
            build.steps.add(
                f"{self.packing.pack_op}_input",
                self.group,
                {"x": self.x},
                {"rounded": packed},
                padding=padding,
            )
        elif build.steps.appended[-1].operation == "load_batch":
            build.steps.extend_last(
                {"columns": packed}, window=self.packing.window, padding=padding
            )
        else:
            build.steps.add(
                "gather_columns",
                self.group,
                {"x": self.x},
                {"columns": packed},
                window=self.packing.window,
                padding=padding,
            )
        return packed

    def _output(
        self, reader: Layer | None, packing: Packing | None
    ) -> tuple[str, dict[str, str], StepAttributes]:
        """(value, what the forward step writes of it, further attributes); without a reader it is
        in float32.
        """
        build, last = self.build, self.layers[-1]
        if not reader or not packing:
            y = build.values.activation(last)
            if self._loss_packs():
                rows = rows_of_packing(build.values.shape(y), self.padding, PIXELS_OF_LOSS)
                build.gradients.packed[y] = self._gradient(rows, self.conv)
            return y, {"y": y}, {}
        build.values.unstored(last)
        index = {"index": build.values.mask(last)} if last.kind == "maxpool2d" else {}
        image = build.values.batch, *last.output_shape
        if build.training and build.gradients.is_wanted(last.name):
            rows = packing.bias_partials(
                image, reader.attributes["filters"], reader.attributes["kernel"]
            )
            # the weight gradient leads it through the pooling
            if index and isinstance(self.packing, Columns):
                self.pooled = index
                build.gradients.packed[last.name] = self._gradient(rows, last)
            else:
                build.gradients.packed[last.name] = self._gradient(rows, self.conv, **index)
        copy = build.packed_inputs[last.name] = packed_input(build, reader, packing, image)
        return last.name, {"copy": copy, **index}, {"padding": reader.attributes["padding"]}

    def _loss_packs(self) -> bool:
        """Whether the loss is the mean squared error of this group's output, whose gradient is read
        packed alone.
        """
        build, conv = self.build, self.conv
        reads_loss = (
            build.with_loss
            and build.values.layers[-1] is conv
            and build.gradients.is_wanted(conv.name)
        )
        only_packed = self.flips or not build.gradients.is_wanted(self.x)
        return (
            reads_loss
            and only_packed
            and not build.network.classifies
            and self.packing.pack_op == Packing.pack_op
        )

    def _gradient(self, rows: int, layer: Layer, **more: str) -> PackedGradient:
        """Buffers for the gradient of the layer's output, with so many rows of bias partials."""
        build, conv = self.build, self.conv
        shapes = self.packing.gradient((build.values.batch, *layer.output_shape), self.padding)
        dtype = self.packing.number_format.dtype
        writes = {
            role: build.values.kept(f"{conv.name}.dy.{role}", shape, dtype)
            for role, shape in shapes.items()
        }
        writes["bias_partials"] = build.values.kept(
            f"{conv.name}.dy.bias_partials", (rows, conv.attributes["filters"])
        )
        return PackedGradient(writes, self.padding, self.relu, **more)

    def _packed_gradient(self, y: str) -> PackedGradient:
        """Of a value in float32, whose gradient steps of their own lead back through the ReLU and
        pack.
        """
        dy = gpu_opt_v1.gradient_before_relu(self.build, self.layers, y)
        gradient = self._gradient(
            rows_of_packing(self.build.values.shape(y), self.padding), self.conv, whole=dy
        )
        self.build.steps.add(
            f"{self.packing.pack_op}_gradient",
            self.layers,
            {"dy": dy},
            gradient.writes,
            padding=self.padding,
        )
        return gradient

    def _input_gradient(self, reads: dict[str, str], packed: str) -> None:
        """The convolution of dy with the flipped weight, which `reads` names; packed: the buffer of
        packed x.
        """
        build, x, operation = self.build, self.x, f"{self.packing.conv_op}_input_grad"
        flop, stride = self.flop, self.input_stride
        if x in build.gradients.packed:
            dx = build.gradients.packed[x]
            index = {"index": dx.index} if dx.index else {}
            build.steps.add(
                operation,
                self.group,
                {**reads, "kept": packed, **index},
                dx.writes,
                flop=flop,
                stride=stride,
                relu=dx.relu,
                kept_padding=self.conv.attributes["padding"],
                padding=dx.padding,
            )
            return
        part, masks = build.gradients.part(x), gpu_opt_v1.reader_applies_relu(build.network, x)
        whole = (
            build.values.workspace(f"{self.conv.name}.whole_gradient", build.values.shape(x))
            if masks
            else part
        )
        zeros = build.values.zeros(f"{self.conv.name}.no_shift", build.values.shape(x)[3:])
        build.steps.add(
            operation,
            self.group,
            {**reads, "zeros": zeros},
            {"dx": whole},
            flop=flop,
            stride=stride,
        )
        if masks:
            build.steps.add("relu_backward", self.group, {"y": x, "dy": whole}, {"dx": part})

    def _weight_gradients(self, reads: dict[str, str]) -> dict[str, str]:
        """{role: buffer} that the weight gradient's step writes: parts for the update to add, or
        sums; reads: what it reads.
        """
        build, conv = self.build, self.conv
        if not build.in_parts:
            return weight_gradients(build, conv)
        shape = self.packing.weight_parts(
            build.values.shape(reads["x"]), build.values.shape(reads["dy"]), conv
        )
        parts = build.values.workspace(f"{conv.name}.parts", shape)
        build.gradients.leave_in_parts({f"{conv.name}.weight": Gradient(parts, in_parts=True)})
        if conv.attributes["bias"]:
            build.gradients.leave_in_parts(
                {f"{conv.name}.bias": Gradient(reads["bias_partials"], in_parts=True)}
            )
        return {"parts": parts}


def packed_input(build: PlanBuilder, conv: Layer, packing: Packing, image: Shape) -> str:
    """The buffer of a convolution's packed input, which is an image of this shape."""
    return build.values.kept(
        f"{conv.name}.x.packed",
        packing.image(image, conv.attributes["padding"]),
        packing.number_format.dtype,
    )
