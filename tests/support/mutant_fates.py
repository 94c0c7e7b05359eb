"""A pytest plugin that finds the fates of mutants in a process that has imported and compiled all, from which it forks.

    MUTANTS=work.json python -m pytest -p mutant_fates TESTS

work.json: "mutants": {number: [file, start, end, new text]}, numbers from 1 on; "at_once": whether they may be chosen at run
time, of texts that are compiled once (mutant_schemata.py); "results": the descriptor to which lines "number fate" go.

The tests run on the kernels as they are, and then with each mutant those that meet it, the quickest first, until one fails. A
mutant that no test meets at run time, for instance in a constant expression, is compiled for itself. Tests with the parameter
`architecture`, which look at what NVRTC makes of a kernel, are left out.
"""

import ctypes
import json
import os
import pathlib
import re
import signal
import time

import pytest
from _pytest.runner import runtestprotocol

import mutant_schemata

SECONDS, TIMES = 2, 5   # of the processor, that a test may take: so many, and so many times what it takes without a mutant
QUICK = 0.3   # seconds: such tests judge first
FATES = "survived", "killed", "does not compile"
ERROR = re.compile(r"/kernels/(\S+?):(\d+):(\d+): error: ")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    import cuda_emulator  # of the copy of the project, which pytest has put on the path by now

    for kind in ("_PLAIN", "_WATCHED", "_COUNTED"):   # what is compiled with many mutants takes longer to compile than to run
        flags = getattr(cuda_emulator, f"{kind}_FLAGS")
        setattr(cuda_emulator, f"{kind}_FLAGS", ("-O1", *flags[1:]))
    work = json.loads(pathlib.Path(os.environ["MUTANTS"]).read_text())
    kernels = Kernels(cuda_emulator, {int(number): mutant for number, mutant in work["mutants"].items()})
    launches = Launches(cuda_emulator)
    tests = [Test(item, kernels, launches) for item in session.items if "architecture" not in item.fixturenames]
    tests = [test for test in tests if test.concerns()]
    with os.fdopen(work["results"], "w", buffering=1) as results:
        def report(number, fate):
            results.write(f"{number} {FATES[fate]}\n")
            del kernels.mutants[number]

        judge_met(kernels, tests if work["at_once"] else [], report)
        judge_others(kernels, tests, report)
    return True


def judge_met(kernels, tests, report):
    """Report the mutants that tests meet at run time."""
    met, slow = set(), []
    for test in tests:
        kernels.write_schemata()
        test.run()
        while kernels.leave_out(test.failure):
            test.run()
        met |= test.met
        if test.failure:   # a test that reads the text may fail with schemata
            continue
        if test.seconds > QUICK:
            slow.append(test)
        else:
            judge_by(test, kernels, report)
    for test in sorted(slow, key=lambda test: test.seconds):
        judge_by(test, kernels, report)
    for number in sorted(met & kernels.mutants.keys()):
        report(number, FATES.index("survived"))
    kernels.write()
    kernels.emulator.load.cache_clear()


def judge_by(test, kernels, report):
    for number in sorted(test.met & kernels.mutants.keys()):
        fate = forked([test], lambda: choose(test.libraries, number))   # noqa: B023 (called before the next)
        if fate:
            report(number, fate)


def choose(libraries, number):
    for library in libraries:
        ctypes.c_int.in_dll(library, "mutant_chosen").value = number


def judge_others(kernels, tests, report):
    """Report the others, each compiled for itself."""
    for test in tests:
        if test.failure is None or test.failure:
            test.run()
        if test.failure:
            pytest.exit(f"{test.item.nodeid}: the tests fail on the kernels as they are\n{test.failure}", returncode=1)
    for number, (file, *_) in sorted(kernels.mutants.items()):
        kernels.write(number)
        report(number, forked([test for test in tests if file in test.files], kernels.emulator.load.cache_clear))
        kernels.write()


def forked(tests, prepare):
    """Index in FATES: what becomes of the tests in a process of their own."""
    child = os.fork()
    if child == 0:
        prepare()
        for test in sorted(tests, key=lambda test: test.seconds):
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS + TIMES * test.seconds)   # its signal ends the process
            failure = test.outcome()
            if failure:
                os._exit(2 if "CompileError" in failure else 1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if status >= 0 else 1   # an endless loop and a crash count as killed


class Launches:
    """modules: the cuda_emulator.Modules of all launches; while `dry`, launches do nothing else."""

    def __init__(self, emulator):
        self.modules, self.dry = set(), False
        for name in ("__call__", "watched", "count"):
            setattr(emulator.Function, name, self._recorded(getattr(emulator.Function, name)))

    def _recorded(self, method):
        def call(function, *args, **kwargs):
            self.modules.add(function.module)
            if not self.dry:
                return method(function, *args, **kwargs)

        return call


class Kernels:
    """The files of mutants {number: (file, start, end, new text)}, in a copy of the project; wrong: numbers."""

    def __init__(self, emulator, mutants):
        self.emulator, self.mutants, self.wrong = emulator, mutants, set()
        self.size, self.texts = max(mutants) + 1, {file: (emulator.KERNELS / file).read_text() for file, *_ in mutants.values()}

    def write(self, number=None):
        """As they are, or with one mutation."""
        for file, text in self.texts.items():
            (self.emulator.KERNELS / file).write_text(text)
        if number:
            file, start, end, new = self.mutants[number]
            text = self.texts[file]
            (self.emulator.KERNELS / file).write_text(text[:start] + new + text[end:])

    def write_schemata(self):
        """Of the mutants that compile so, as far as is known."""
        for file, text in self.texts.items():
            mutations = {number: mutation for number, (of, *mutation) in self.mutants.items()
                         if of == file and number not in self.wrong}
            (self.emulator.KERNELS / file).write_text(mutant_schemata.with_all(text, mutations))

    def leave_out(self, failure):
        """Whether schemata failed to compile and now are without the mutants that g++ complains of."""
        before = len(self.wrong)
        for file, line, column in ERROR.findall(failure):
            text = (self.emulator.KERNELS / file).read_text().splitlines()[int(line) - 1].encode()[:int(column) + 8]
            self.wrong.update(int(number) for number in re.findall(rb"mutant\((\d+)\)", text)[-1:])
        if len(self.wrong) > before:
            self.write_schemata()
        return len(self.wrong) > before


class Test:
    """One test, with what it did when it last ran in this process.

    failure: its text, or "", or None before it ran; seconds: of the processor; files: of the kernels that it launched, below
    kernels/, headers included; libraries: those kernels'; met: numbers of mutants.
    """

    def __init__(self, item, kernels, launches):
        self.item, self.kernels, self.launches, self.failure = item, kernels, launches, None

    def outcome(self):
        reports = runtestprotocol(self.item, log=False, nextitem=None)
        return "".join(str(report.longrepr) for report in reports if report.failed)

    def concerns(self):
        """Whether it launches kernels of mutated files, as far as it comes without their results, or fails without launches."""
        self.launches.modules, self.launches.dry = set(), True
        failure, self.launches.dry = self.outcome(), False
        return bool(failure and not self.launches.modules or self._launched() & self.kernels.texts.keys())

    def run(self):
        self.launches.modules = set()
        start = time.process_time()
        self.failure = self.outcome()
        self.seconds = time.process_time() - start
        self.files, self.libraries, self.met = self._launched(), set(), set()
        for module in self.launches.modules:
            self.libraries |= {vars(module)[name] for name in ("plain", "watched", "counted") if name in vars(module)}
        for library in self.libraries:
            met = (ctypes.c_char * self.kernels.size).in_dll(library, "mutants_met")
            self.met |= {number for number, one in enumerate(met.raw) if one != 0}
            met.raw = bytes(self.kernels.size)

    def _launched(self):
        folder = self.kernels.emulator.KERNELS
        return {path.relative_to(folder).as_posix() for module in self.launches.modules
                for path in self.kernels.emulator.with_headers(module.source) if path.is_relative_to(folder)}
