"""The back ends of the project, and how each performs one operation of operation_cases.py.

The GPU rungs are those of the ladder's own table. A rung is asked for what it launches otherwise
than the rung below: its own kernels, and those of others that it compiles for other tiles or
products. They run in the emulator, and where a GPU is, there.
"""

import functools
import inspect

import numpy as np
import pytest

import cpu_rung
import cuda_emulator
import numpy_reference
import operation_cases
import references
from ladder.arithmetic.multipliers import FORMATS, to_bfloat16, to_float16, to_tf32
from ladder.executors import sequential
from ladder.executors.cpu import executor as cpu_executor
from ladder.executors.cpu import small
from ladder.executors.cuda import executor as cuda_executor
from ladder.executors.cuda.launching import Bound
from ladder.rungs import catalog
from ladder.rungs.interface import implementation
from ladder.rungs.launches import Gradient
from operation_cases import Near
from rung_checks import ORDERS, completed_launches, kernel_folder, run_launches

UNIT, UNIT_64 = 2.0**-24, 2.0**-47  # of the bounds; in float64 the definitions err too
ROUNDED = {"float32": None, "tf32": to_tf32, "bfloat16": to_bfloat16, "float16": to_float16}
# Of products on tensor cores, three of TF32 for one of float32: of 8 terms, each may be cut at the
# last bit of the largest one, twice what rounding it would cost, and the sum again; two roundings
# are those of the operands' small parts.
ROUNDINGS = 3 * 2 * 10 // 8 + 2


class Functions:
    """A rung whose operations are functions of arrays, which compute in float64 if these are."""

    rounded, variation = None, ""

    def __init__(self, name, operations):
        self.name, self.operations = name, operations

    def has(self, case):
        """Whether it performs the operation, and a fused ReLU if that is asked for."""
        return (
            case.operation in self.operations
            and not case.claimed
            and ("relu" in self._roles(case) or not case.attributes.get("relu"))
        )

    def perform(self, case, orders):
        """{role: array} of what the operation writes."""

        def own(arrays):
            return {
                role: value.astype(np.float64)
                if self.unit(case) == UNIT_64 and value.dtype == np.float32
                else value.copy()
                for role, value in arrays.items()
                if role in self._roles(case)
            }

        writes = own(case.writes)
        with np.errstate(all="ignore"):
            self.call(
                case.operation,
                own(case.reads)
                | writes
                | {
                    name: value
                    for name, value in case.attributes.items()
                    if name in self._roles(case)
                },
            )
        return writes

    def unit(self, case):
        return UNIT if case.exact else UNIT_64

    def _roles(self, case):
        function = self.operations[case.operation]
        return inspect.signature(getattr(function, "py_func", function)).parameters


class Sequential(Functions):
    """Its operations that are definitions in float64 are compared with these in float32."""

    def __init__(self):
        super().__init__("cpu_sequential", sequential.OPERATIONS)

    def has(self, case):
        return super().has(case) and (case.exact or case.operation not in references.LOOPS)

    def call(self, operation, operands):
        self.operations[operation](**operands)


class Cpu(Functions):
    """One thread, which does all at once, or several that share pieces: of filters, or of images.

    pieces: convolutions as pieces of large ones, in place of tasks where they can be.
    """

    def __init__(self, threads, pieces):
        super().__init__(
            "cpu pieces" if pieces else "cpu", small.OPERATIONS | cpu_executor.OPERATIONS
        )
        self.threads, self.pieces = threads, pieces
        self.variation = f"{threads} threads"

    def has(self, case):
        return super().has(case) and (not self.pieces or case.operation.startswith("conv2d_"))

    def call(self, operation, operands):
        with pytest.MonkeyPatch.context() as patched:
            if self.threads > 1:
                cpu_rung.cut_at_any_size(
                    patched, cpu_rung.BY_FILTER if self.threads == 2 else cpu_rung.BY_IMAGE
                )
            if self.pieces:
                patched.setattr(small, "MOST_WEIGHTS", 0)
            cpu_rung.perform(_executor(self.threads), operation, **operands)


class NumPy(Functions):
    """The reference of benchmarks/gpu_check.py where there is no Numba."""

    def __init__(self):
        super().__init__("NumPy", numpy_reference.OPERATIONS)

    def call(self, operation, operands):
        self.operations[operation](**operands)


@functools.cache
def _executor(threads):
    return cpu_executor.Executor(threads)


class Rung:
    """A GPU rung in the emulator, every access watched.

    arithmetic, tensor_sums: of cuda_emulator; launches: in place of the rung's own.
    """

    def __init__(self, name, arithmetic="rounded", tensor_sums="rounded", launches=None):
        self.name, self.entry, rung = name, catalog.RUNGS[name], implementation(name)
        self.launches, self.together = (
            launches or rung.launches,
            rung.updates_together,
        )
        self.arithmetic, self.tensor_sums = arithmetic, tensor_sums
        self.variation = (
            "fused" if arithmetic == "fused" else "truncated" if tensor_sums == "truncated" else ""
        )
        self.rounded = ROUNDED[self.entry.precision]

    def has(self, case):
        """Whether it launches the operation otherwise than the rung below, with a fused ReLU if
        that is asked for.
        """
        below = self.entry.below and implementation(self.entry.below)
        if (
            case.operation not in self.launches
            or below
            and self.launches[case.operation] is below.launches.get(case.operation)
        ):
            return False
        # exact in either model
        if self.tensor_sums != "rounded" and (case.exact or not case.products):
            return False
        if self.entry.on_tensor_cores and any(
            np.isinf(array).any() for array in case.reads.values()
        ):
            return False  # the small part of an infinite operand is no number
        found = self.launched_by(case)
        without = {**case.attributes, "relu": False}
        if case.attributes.get("relu") and found == self.launched_by(case, attributes=without):
            return False
        return (
            not below
            or case.operation not in below.launches
            or found != self.launched_by(case, below)
        )

    def launched_by(self, case, below=None, attributes=None):
        """What it launches, or what the rung below does."""
        together = below.updates_together if below else self.together
        reads, writes, given = self._operands(case, together)
        launches = below.launches if below else self.launches
        return completed_launches(
            launches[case.operation],
            {**reads, **writes},
            reads,
            writes,
            case.operation,
            **(given if attributes is None else given | attributes),
        )

    def perform(self, case, orders=ORDERS):
        reads, writes, attributes = self._operands(case, self.together)
        arrays = {**reads, **writes}
        launches = completed_launches(
            self.launches[case.operation], arrays, reads, writes, case.operation, **attributes
        )
        self.run(launches, arrays, orders)
        used = set().union(*(launch.buffers for launch in launches))
        found = {role: arrays[role] for role in writes if role in used}
        return joined(found) if self._is_split(case, self.together) else found

    def run(self, launches, arrays, orders):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cuda_emulator, "arithmetic", self.arithmetic)
            patched.setattr(cuda_emulator, "tensor_sums", self.tensor_sums)
            run_launches(launches, arrays, orders)

    def unit(self, case):
        return ROUNDINGS * UNIT if self.entry.on_tensor_cores and case.products else UNIT

    def _operands(self, case, together):
        """(reads, writes, attributes) of the step."""
        reads = {
            role: array.astype(np.float32)
            if array.dtype == np.float64 and role != "learning_rates"
            else array
            for role, array in case.reads.items()
        }
        writes, attributes = (
            {role: array.copy() for role, array in case.writes.items()},
            dict(case.attributes),
        )
        if case.products and self.rounded:
            attributes["multiplier"] = FORMATS[self.entry.precision]
        if self._is_split(case, together):
            return split(reads, writes, attributes)
        return reads, writes, attributes

    def _is_split(self, case, together):
        return together and case.operation.endswith("_update")


def split(reads, writes, attributes):
    """The arrays of an update in several parameters of 3, 2, 1 and 3 blocks, if they are large, and
    one.
    """
    ends = np.unique(np.minimum([0, 514, 771, 772, 10**6], writes["parameter"].size))
    pieces = {f"p{number}": slice(*ends[number : number + 2]) for number in range(len(ends) - 1)}
    own = {f"{name}.gradient": reads["gradient"][piece].copy() for name, piece in pieces.items()}
    shared = {role: array for role, array in reads.items() if role != "gradient"}
    written = {
        name if role == "parameter" else f"{name}.{role}": array[piece].copy()
        for name, piece in pieces.items()
        for role, array in writes.items()
    }
    return (
        own | shared,
        written,
        attributes | {"gradients": {name: Gradient(f"{name}.gradient") for name in pieces}},
    )


def joined(arrays):
    """{role: array} of an update in several parameters."""
    roles = {}
    for name, array in arrays.items():
        roles.setdefault(name.partition(".")[2] or "parameter", []).append(array)
    return {role: np.concatenate(pieces) for role, pieces in roles.items()}


class OnGpu(Rung):
    """A rung on the GPU of this machine."""

    def __init__(self, name):
        super().__init__(name)
        self.variation = "on the GPU"

    def run(self, launches, arrays, orders):
        executor = cuda_executor.Executor(1, "device")
        uploaded = Bound(executor.upload(arrays), None)
        for launch in launches:
            arguments = executor._arguments(launch, uploaded)[0]
            executor._kernel(launch)(
                launch.grid, launch.block, arguments, launch.shared_bytes, executor.stream
            )
        for name, array in uploaded.items():
            arrays[name][...] = executor.download(array)


def backends():
    """All of them, the rungs in the order of the ladder."""
    found = [Cpu(threads, pieces) for pieces in (False, True) for threads in (1, 2, 3)]
    found += [Sequential(), NumPy()]
    for name, entry in catalog.RUNGS.items():
        if entry.executor == "cuda":
            found += of_rung(name, entry)
    return found


def of_rung(name, entry):
    """In both arithmetics where its kernels are its own, and with both models of tensor cores where
    it uses them.
    """
    yield Rung(name)
    if entry.on_tensor_cores:
        yield Rung(name, tensor_sums="truncated")
    elif entry.role != "lesson" and kernel_folder(name) == name:
        yield Rung(name, arithmetic="fused")
    if catalog.unavailable(name) is None:
        yield OnGpu(name)


# ---- checks


def check(backend, case, orders=ORDERS):
    """orders: of the threads of a GPU rung; sums of integers show a dependence on them."""
    found = backend.perform(case, orders)
    wanted = case.results(backend.rounded)
    # which some rungs have by conv2d_bias_grad alone
    assert wanted.keys() - found.keys() <= {"dbias"}
    for role in wanted.keys() & found.keys():
        value, bound = expected(backend, case, wanted[role], found)
        value = np.asarray(value)
        with np.errstate(all="ignore"):
            right = np.abs(found[role] - value) <= bound
        if np.ndim(bound) == 0 and bound == 0:
            value = value.astype(found[role].dtype)
        # equal, infinite, or both NaN
        right |= (found[role] == value) | (found[role] != found[role]) & (value != value)
        assert right.all(), (
            f"{role} of {case.operation}: {found[role][~right][:5]} is not {value[~right][:5]}"
        )


def expected(backend, case, wanted, found):
    """(value, bound of the error)."""
    unit = backend.unit(case)
    if callable(wanted):
        return wanted(found, unit)
    if not isinstance(wanted, Near):
        return wanted, 0
    value, size = wanted.value, np.abs(wanted.value) if wanted.size is None else wanted.size
    if backend.rounded and case.products:  # another rounding would be a hundred times as far
        return value, 1e-5 * np.nanmax(np.abs(value))
    error = wanted.terms * unit
    return value, error / (1 - error) * size + wanted.slack


def check_convolution(backend, shape, stride=1):
    """All directions, on integers and on other numbers; for a rung with launches that it would not
    choose by itself.
    """
    for draw in operation_cases.BOTH:
        for case in operation_cases.conv2d(draw, shape, stride):
            if case.operation in backend.launches and case.operation != "conv2d_bias_grad":
                check(backend, case, ORDERS if case.exact else ("random",))
