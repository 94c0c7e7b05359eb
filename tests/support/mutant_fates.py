"""A pytest plugin that finds the fates of mutants in a process that has imported and compiled all,
from which it forks.

    MUTANTS=work.json python -m pytest -p mutant_fates TESTS

work.json: "mutants": {number: [file, start, end, new text]}, numbers from 1 on; "at_once": whether
they may be chosen at run time, of texts that are compiled once (mutant_schemata.py); "results": the
descriptor to which lines "number fate" go.

The tests run on the kernels as they are, and then with each mutant those that meet it, the quickest
first, until one fails. A mutant that no test meets at run time, for instance in a constant
expression, is compiled for itself. Tests with the parameter `architecture`, which look at what
NVRTC makes of a kernel, are left out.
"""

import ctypes
import gc
import json
import os
import pathlib
import re
import signal
import time

import pytest
from _pytest.runner import runtestprotocol

import mutant_schemata

# of the processor, that a test may take: so many, and so many times what it takes without a mutant
SECONDS, TIMES = 0.5, 4
QUICK = 0.3  # seconds: such tests judge first
CORES = len(os.sched_getaffinity(0))  # processes that judge at once
FATES = "survived", "killed", "does not compile"
ERROR = re.compile(r"/kernels/(\S+?):(\d+):(\d+): error: ")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    import cuda_emulator  # of the copy of the project, which pytest has put on the path by now
    import emulated

    # what is compiled with many mutants takes longer to compile than to run
    for kind in ("_PLAIN", "_WATCHED", "_COUNTED"):
        flags = getattr(cuda_emulator, f"{kind}_FLAGS")
        setattr(cuda_emulator, f"{kind}_FLAGS", ("-O1", *flags[1:]))
    work = json.loads(pathlib.Path(os.environ["MUTANTS"]).read_text())
    kernels = Kernels(
        cuda_emulator,
        emulated.KERNELS,
        {int(number): mutant for number, mutant in work["mutants"].items()},
    )
    # that a fault is found is enough
    cuda_emulator.faults.source_place = lambda library, address: ("", 0)
    launched = watch_launches(cuda_emulator)
    tests = [
        Test(item, kernels, launched)
        for item in session.items
        if "architecture" not in item.fixturenames
    ]
    with os.fdopen(work["results"], "w", buffering=1) as results:

        def report(number, fate):
            results.write(f"{number} {FATES[fate]}\n")
            del kernels.mutants[number]

        judge_met(kernels, tests if work["at_once"] else [], report)
        judge_others(kernels, tests, report)
    return True


def watch_launches(emulator):
    """The set to which every launch adds its cuda_emulator.Module from now on."""
    launched = set()

    def recorded(method):
        def call(function, *args, **kwargs):
            launched.add(function.module)
            return method(function, *args, **kwargs)

        return call

    for name in ("__call__", "watched", "count"):
        setattr(emulator.Function, name, recorded(getattr(emulator.Function, name)))
    return launched


def in_one_order(emulator):
    """From now on cuda_emulator.check has a kernel run in its first order alone: races are found in
    any.
    """
    watched, first = emulator.Function.watched, {}

    def run_once(function, grid, block, args, shared_mem=0, order="forward"):
        arrays = [array for arg in args for array in emulator._arrays_of(arg)]
        if first.get("args") is not args:
            watched(function, grid, block, args, shared_mem, order)
            first.update(args=args, results=[array.copy() for array in arrays])
        for array, result in zip(arrays, first["results"], strict=True):
            if array.flags.writeable:
                array[...] = result

    emulator.Function.watched = run_once


def judge_met(kernels, tests, report):
    """Report the mutants that tests meet at run time."""
    met, slow = set(), []
    for test in tests:
        kernels.write_schemata()
        test.run()
        while kernels.leave_out(test.failure):
            test.run()
        if test.failure:  # a test that reads the text may fail with schemata
            continue
        met |= test.met
        if test.seconds > QUICK:
            slow.append(test)
        else:
            judge_by(test, kernels, report)
    for test in sorted(slow, key=lambda test: test.seconds):
        judge_by(test, kernels, report)
    for number in sorted(met & kernels.mutants.keys() - kernels.wrong):
        report(number, FATES.index("survived"))
    kernels.write()
    kernels.emulator._loaded.cache_clear()


def judge_by(test, kernels, report):
    """Report those that the test kills, on every core."""
    running = {}  # process -> number
    for number in sorted(test.met & kernels.mutants.keys()):
        if len(running) == CORES:
            report_one(running, report)
        running[started(kernels, [test], lambda: choose(test.libraries, number))] = number  # noqa: B023 (called before the next)
    while running:
        report_one(running, report)


def report_one(running, report):
    process, status = os.wait()
    number, fate = running.pop(process), fate_of(status)
    if fate:
        report(number, fate)


def choose(libraries, number):
    for library in libraries:
        ctypes.c_int.in_dll(library, "mutant_chosen").value = number


def met_by(libraries):
    """The numbers of the mutants that these libraries' kernels have met since the last call."""
    numbers = set()
    for library in libraries:
        flags = (ctypes.c_char * (mutant_schemata.MOST + 1)).in_dll(library, "mutants_met")
        numbers |= {number for number, flag in enumerate(flags.raw) if flag}
        flags.raw = bytes(len(flags))
    return numbers


def judge_others(kernels, tests, report):
    """Report the others, each compiled for itself."""
    for test in tests:
        if test.failure is None or test.failure:
            test.run()
        if test.failure:
            pytest.exit(
                f"{test.item.nodeid}: the tests fail on the kernels as they are\n{test.failure}",
                returncode=1,
            )
    for number, (file, *_) in sorted(kernels.mutants.items()):
        kernels.write(number)
        those = [test for test in tests if file in test.files]
        report(number, forked(kernels, those, kernels.emulator._loaded.cache_clear))
        kernels.write()


def forked(kernels, tests, prepare):
    """Index in FATES: what becomes of the tests in a process of their own."""
    return fate_of(os.waitpid(started(kernels, tests, prepare), 0)[1])


def started(kernels, tests, prepare):
    """A process that runs the tests in one order of threads and blocks."""
    gc.freeze()  # or collections would touch, and so copy, all pages
    child = os.fork()
    if child == 0:
        prepare()
        in_one_order(kernels.emulator)
        for test in sorted(tests, key=lambda test: test.seconds):
            # its signal ends the process
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS + TIMES * test.seconds)
            failure = test.outcome()
            if failure:
                os._exit(2 if "CompileError" in failure else 1)
        os._exit(0)
    return child


def fate_of(status):
    """Index in FATES; an endless loop and a crash count as killed."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 1


class Kernels:
    """The files of mutants {number: (file, start, end, new text)}, in a copy of the project; wrong:
    numbers.
    """

    def __init__(self, emulator, folder, mutants):
        self.emulator, self.folder, self.mutants, self.wrong, self.written = (
            emulator,
            folder,
            mutants,
            set(),
            {},
        )
        self.texts = {file: (folder / file).read_text() for file, *_ in mutants.values()}

    def write(self, number=None):
        """As they are, or with one mutation."""
        for file, text in self.texts.items():
            (self.folder / file).write_text(text)
        if number:
            file, start, end, new = self.mutants[number]
            text = self.texts[file]
            (self.folder / file).write_text(text[:start] + new + text[end:])

    def write_schemata(self):
        """Of the mutants that are left and compile so, as far as is known."""
        self.emulator._loaded.cache_clear()  # which knows the files as they were
        for file, text in self.texts.items():
            mutations = {
                number: mutation
                for number, (of, *mutation) in self.mutants.items()
                if of == file and number not in self.wrong
            }
            if self.written.get(file) != mutations.keys():
                (self.folder / file).write_text(mutant_schemata.with_all(text, mutations))
                self.written[file] = mutations.keys()

    def files_of(self, module):
        """None of a copy that a test made, which is gone by now."""
        if not module.source.is_relative_to(self.folder):
            return set()
        return {
            path.relative_to(self.folder).as_posix()
            for path in self.emulator.with_headers(module.source, (self.folder,))
            if path.is_relative_to(self.folder)
        }

    def leave_out(self, failure):
        """Whether schemata failed to compile and now are without the mutants that g++ complains
        of.
        """
        before = len(self.wrong)
        for file, line, column in ERROR.findall(failure):
            text = (
                (self.folder / file)
                .read_text()
                .splitlines()[int(line) - 1]
                .encode()[: int(column) + 14]
            )
            self.wrong.update(int(number) for number in re.findall(rb"mutant\((\d+)\)", text)[-1:])
        if len(self.wrong) > before:
            self.write_schemata()
        return len(self.wrong) > before


class Test:
    """One test, with what it did when it last ran in this process.

    failure: its text, or "", or None before it ran; seconds: of the processor; files: of the
    kernels that it launched, below kernels/, headers included; libraries: those kernels'; met:
    numbers of mutants.
    """

    def __init__(self, item, kernels, launched):
        self.item, self.kernels, self.launched, self.failure = item, kernels, launched, None
        # no traceback, which takes long
        item.repr_failure = lambda error, style=None: f"{error.typename}: {error.value}"

    def outcome(self):
        reports = runtestprotocol(self.item, log=False, nextitem=None)
        return "".join(str(report.longrepr) for report in reports if report.failed)

    def run(self):
        self.launched.clear()
        start = time.process_time()
        self.failure = self.outcome()
        self.seconds = time.process_time() - start
        self.files, self.libraries = set(), set()
        for module in self.launched:
            self.files |= self.kernels.files_of(module)
            self.libraries |= set(module.libraries.values())
        self.met = met_by(self.libraries)
