"""Runs a kernel in several orders of its threads, each in a process of its own, every access
watched, and tells all that is wrong with it.
"""

import ctypes
import dataclasses
import functools
import math
import mmap
import operator
import os
import signal
import tempfile
import time

import numpy as np

import cuda_emulator
from cuda_emulator import faults
from cuda_emulator.arguments import ArgumentError
from cuda_emulator.faults import Fault, KernelFault

SECONDS = 60  # of the processor, that a launch may take in one order
# Part of the largest number by which sums of atomics may differ between two orders, or so many
# steps of the type, if that is more
TOLERANCE, STEPS = 1e-5, 16
FOLLOW = "unwritten output", "no access"  # notes that follow from errors
ELSEWHERE = 63  # the bit of Faults.atomics for all that is no argument


@dataclasses.dataclass(frozen=True)
class Report:
    """What a check has found: faults, errors first; accesses to memory that were watched, of all
    orders; seconds that it took.
    """

    kernel: str
    faults: tuple
    accesses: int
    seconds: float

    @property
    def errors(self):
        return tuple(fault for fault in self.faults if fault.severity == "error")

    @property
    def notes(self):
        return tuple(fault for fault in self.faults if fault.severity == "note")


def check(function, grid, block, args, shared_mem=0, orders=None, **options):
    """As cuda_emulator.check. options: of `examine`. Raises KernelFault if there is an error."""
    report = examine(function, grid, block, args, shared_mem, orders, **options)
    if report.errors:
        raise KernelFault.of_all(report.faults)
    return report


def examine(
    function,
    grid,
    block,
    args,
    shared_mem=0,
    orders=None,
    *,
    allow=(),
    tolerance=None,
    uninitialised=(),
    before=None,
    cluster=None,
    seconds=SECONDS,
):
    """The Report of a launch in several orders of threads and blocks; its arrays then hold the
    results of the first. It raises no KernelFault but for arguments that no launch can have.

    allow: patterns of faults that are left out (Fault.allowed); tolerance: where a kernel has
    atomics, which come in any order, floats that differ between two orders by up to this part of
    an array's largest number are a note, TOLERANCE or STEPS if it is None; uninitialised: names or
    numbers of parameters whose arrays hold nothing at first; before: of a programmatic dependent
    launch {parameter: "reads" or "writes"}, what the launch before does with its arrays; cluster:
    blocks of a cluster, by axis, if not those of __cluster_dims__; seconds: of the processor,
    whole, that an order may take. Raises ValueError for a number of them below 1.
    """
    orders = tuple(orders or cuda_emulator.ORDERS)
    kind = "watched"
    if cuda_emulator.arithmetic == "fused":
        orders, kind = orders[:1], "plain"
    launch = Launch(function, grid, block, args, shared_mem, seconds, cluster)
    listed = launch.over_bounds()
    function.module.library(kind, function.name)  # compiled before the time begins
    start = time.monotonic()
    processes = []
    try:
        for order in () if listed else orders:
            processes.append(
                Process(launch, order, kind, launch.numbers(uninitialised), launch.uses(before))
            )
        for process in processes:
            listed += process.wait()
            if any(fault.kind == "time limit" for fault in listed):
                break  # the other orders would take as long
    finally:
        for process in processes:
            process.end()

    def not_allowed(listed):
        return [fault for fault in merged(listed) if not fault.allowed(allow)]

    left = not_allowed(listed)
    if any(fault.severity == "error" for fault in left):
        left = [fault for fault in left if fault.kind not in FOLLOW]
    else:
        left += not_allowed(differences(launch, processes, tolerance))
    for process in processes[:1]:
        process.copy_back()
    left.sort(key=lambda fault: faults.SEVERITIES.index(fault.severity))
    accesses = sum(process.faults.accesses for process in processes)
    return Report(function.name, tuple(left), accesses, time.monotonic() - start)


@dataclasses.dataclass(frozen=True)
class Launch:
    """A launch of a kernel, whatever the order; seconds: of the processor, whole, that a process of
    its own may take; cluster: as of examine. Raises ValueError for a number of seconds below 1.
    """

    function: object
    grid: tuple
    block: tuple
    args: tuple
    shared_mem: int
    seconds: int = SECONDS
    cluster: tuple | None = None

    def __post_init__(self):
        if self.seconds not in range(1, 1 << 31):
            raise ArgumentError(
                f"seconds is a whole number from 1 on, below 2^31, not {self.seconds}"
            )

    def names(self):
        return faults.parameter_names(self.function)

    def numbers(self, parameters):
        """The numbers of parameters that are named or numbered; raises ValueError for others."""
        names = self.names()
        for parameter in parameters:
            if isinstance(parameter, str) and parameter not in names:
                raise ArgumentError(f"{self.function.name} has no parameter {parameter}")
        return [names.index(each) if isinstance(each, str) else each for each in parameters]

    def uses(self, before):
        """The same with numbers for names, or None; raises ValueError for another word."""
        if before is None:
            return None
        for word in before.values():
            if word not in cuda_emulator.BEFORE[1:]:
                raise ArgumentError(f"before: {word!r} is neither 'reads' nor 'writes'")
        return dict(zip(self.numbers(before), before.values(), strict=True))

    def over_bounds(self):
        """A list with the fault of a block larger than the kernel's __launch_bounds__, if so."""
        declared = faults.declarations(self.function.module)
        most, size = declared.launch_bounds(self.function.name), math.prod(self.block)
        if most is None or size <= most:
            return []
        message = f"a block of {size} threads, where __launch_bounds__ allows {most}"
        return [Fault(self.function.name, "impossible launch", message)]


def counted(launch, counts, fields):
    """The words of the runs that a launch in a process of its own leaves, beside its `counts`, in
    memory of both; fields: of cuda_emulator._launch. Raises KernelFault.
    """
    with tempfile.TemporaryFile() as file:
        counts.file = file.fileno()
        process = Process(launch, "forward", "counted", **fields)
        try:
            listed = process.wait()
        finally:
            process.end()
        if listed:
            raise KernelFault.of_all(listed)
        process.copy_back()
        file.seek(0)
        return np.frombuffer(file.read(), np.uint64).tolist()


class Process:
    """A launch in one order, in a process that has begun.

    faults  what it has found
    kind    of Module.library
    empty   numbers of the arguments that hold nothing at first
    before  of a dependent launch, {number: what the launch before does with it}, else None
    fields  further arguments of cuda_emulator._launch
    """

    def __init__(self, launch, order, kind, empty=(), before=None, **fields):
        self.launch, self.order = launch, order
        self.library = launch.function.module.library(kind, launch.function.name)
        self.memory = cuda_emulator._Allocations(self.library, launch, True, empty, before)
        self.faults = faults.All.from_buffer(mmap.mmap(-1, ctypes.sizeof(faults.All)))
        self.faults.most = 1 if kind == "counted" else faults.MOST
        begin = self.memory.memory.ctypes.data
        self.number = cuda_emulator._launch(
            self.library,
            launch,
            self.memory.args,
            order,
            self.memory.buffers if kind == "watched" else [],
            faults=ctypes.addressof(self.faults),
            guards_begin=begin,
            guards_end=begin + self.memory.memory.nbytes,
            seconds=launch.seconds,
            variables=self._add_variables(),
            dependent=before is not None,
            **fields,
        )
        if self.number < 0:
            raise OSError("no process could be started for a kernel")
        self.running = self.number > 1  # 1, which no child has: the launch is impossible

    def _add_variables(self):
        """The address of memory in which the process leaves the __device__ variables, as the
        results that they are.
        """
        module = self.launch.function.module
        written = [variable for variable in self.library.globals if variable.writable]
        memory = np.frombuffer(
            mmap.mmap(-1, sum(variable.bytes for variable in written) or 1), np.uint8
        )
        start = 0
        module._add_globals(self.library)
        for variable in written:
            copy = memory[start : start + variable.bytes]
            self.memory.copies.append((ELSEWHERE, module._globals[variable.name], copy))
            start += variable.bytes
        return memory.ctypes.data

    def wait(self):
        """The list of faults, when it has ended."""
        has_run, status = self.running, 0
        if has_run:
            status = os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1])
            self.running = False
        raws = self.faults.list[: self.faults.count]
        function, args = self.launch.function, self.launch.args
        listed = [faults.named(raw, self.library, function, args, self.order) for raw in raws]
        if has_run and not self.faults.ended:  # a kernel may call exit(0)
            why = signal.Signals(-status).name if status < 0 else f"status {status}"
            message = f"the process that ran it ended with {why}"
            listed.append(Fault(function.name, "crash", message, orders=(self.order,)))
        if self.faults.lost:
            message = f"{self.faults.lost} faults more than the {faults.MOST} that are kept"
            listed.append(Fault(function.name, "more faults", message, orders=(self.order,)))
        return listed + self._changed_constants()

    def _changed_constants(self):
        constant = set(map(id, cuda_emulator._read_only(self.launch.args)))
        message = "an array of a table that is only to be read was changed"
        return [
            Fault(self.launch.function.name, "write to a constant", message, orders=(self.order,))
            for _, array, copy in self.memory.copies
            if id(array) in constant and array.tobytes() != copy.tobytes()
        ][:1]

    def copy_back(self):
        self.memory.__exit__()

    def end(self):
        """End the process, if it still runs."""
        if self.running:
            os.kill(self.number, signal.SIGKILL)
            os.waitpid(self.number, 0)
            self.running = False


def differences(launch, processes, tolerance):
    """A list with a Fault for each array that differs between the first order and another."""
    names, listed, unequal = launch.names(), [], set()
    atomics = functools.reduce(operator.or_, (each.faults.atomics for each in processes), 0)
    for process in processes[1:]:
        pairs = zip(processes[0].memory.copies, process.memory.copies, strict=True)
        for (number, array, first), (_, _, second) in pairs:
            if id(array) in unequal or first.tobytes() == second.tobytes():
                continue
            unequal.add(id(array))
            passed = any(arg is array for arg in launch.args)  # else of a table, or a variable
            name = names[number] if passed and number < len(names) else "an array"
            values = [copy.view(array.dtype) for copy in (first, second)]
            orders = processes[0].order, process.order
            message, near = _difference(name, values, orders, tolerance)
            fault = Fault(launch.function.name, "order dependence", message, orders=orders)
            summed = atomics >> min(number, ELSEWHERE) & 1 and array.dtype.kind == "f"
            explained = near if summed else atomics
            if explained:
                kind = "order of sums" if near else "order of atomics"
                fault = dataclasses.replace(fault, kind=kind, severity="note")
            elif place := faults.uninitialised(process.library, launch.function):
                file, line, variable = place
                message += f"; {variable} may be read before it is written"
                fault = dataclasses.replace(fault, message=message, file=file, line=line)
            listed.append(fault)
    return listed


def _difference(name, values, orders, tolerance):
    """(message, whether it may be of sums in another order) of an array's values, those of two
    orders, that differ.
    """
    first, second = values
    rows, other_rows = (each.view(np.uint8).reshape(each.size, -1) for each in values)
    places = np.flatnonzero((rows != other_rows).any(axis=1))
    place = int(places[0])
    message = (
        f"{name}[{place}] is {first[place]} in the order {orders[0]} of threads and blocks and "
        f"{second[place]} in the order {orders[1]}; {len(places)} of {first.size} elements differ"
    )
    if first.dtype.kind != "f":
        return message, False
    largest = np.nanmax(np.abs(first)) if not np.isnan(first).all() else 0.0
    part = np.abs(first[places].astype(float) - second[places]).max() / (largest or 1.0)
    if tolerance is None:
        tolerance = max(TOLERANCE, STEPS * float(np.finfo(first.dtype).eps))
    return f"{message}, by up to {part:.1e} of the largest", part <= tolerance


def merged(listed):
    """The faults with those of several orders as one."""
    faults_by_place = {}
    for fault in listed:
        key = fault.kind, fault.places, "" if fault.line else fault.message
        faults_by_place.setdefault(key, []).append(fault)
    return [functools.reduce(_joined, same) for same in faults_by_place.values()]


def _joined(first, second):
    orders = tuple(dict.fromkeys((*first.orders, *second.orders)))
    severity = min(first.severity, second.severity)  # "error" before "note"
    times = max(first.times, second.times)
    return dataclasses.replace(first, orders=orders, severity=severity, times=times)
