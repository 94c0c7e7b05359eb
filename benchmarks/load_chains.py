"""The longest chain of dependent loads of a launch: how many times one after another a thread waits
for global memory.

The machine code decides which loads are under way together: a group ends where the first of its
numbers is used. The emulator says how often the loads of a line of the source ran, and in runs of
which loops. docs/prediction.md says what is approximate.
"""

import collections
import re

import disassembly

_PLACE = re.compile(r'^//## File "(.*?)", line (\d+)', re.M)
_LOAD = re.compile(r"^LDG\S*?(?:\.(64|128))?(?:\.CONSTANT|\.STRONG\S*)?\s+R(\d+)")


def groups(cubin):
    """{kernel: its groups} of machine code that was compiled with line information."""
    text = disassembly.text(cubin, disassembly.LINES)
    return {name: _groups(code.splitlines()) for name, code in disassembly.sections(text).items()}


def _groups(lines):
    """[Counter {stack: loads}] of one kernel's code with line information, a Counter for each place
    where a warp waits.

    stack: ((name of a file, line), ...) of a load, from the inside, as the emulator's.
    """
    waits, waiting, registers, stack, comments = [], collections.Counter(), set(), (), False
    lines = [line.strip() for line in lines]
    ends = _ends(lines)
    for number, line in enumerate(lines):
        if place := _PLACE.match(line):
            frame = place[1].rpartition("/")[2], int(place[2])
            stack, comments = ((*stack, frame) if comments else (frame,)), True
            continue
        comments = False
        instruction = _instruction(line)
        if waiting and (
            number in ends or registers & set(map(int, re.findall(r"\bR(\d+)", instruction)))
        ):
            waits.append(waiting)
            waiting, registers = collections.Counter(), set()
        if load := _LOAD.match(instruction):
            waiting[stack] += 1
            first = int(load[2])
            registers |= set(range(first, first + int(load[1] or 32) // 32))
    return [*waits, *([waiting] if waiting else [])]


def _instruction(line):
    """Without its address and its predicate."""
    return re.sub(r"^(/\*\w+\*/\s+)?(@!?U?P\w+\s+)?", "", line)


def _ends(lines):
    """Numbers of lines at which no load is under way with one behind: the ends of a path, and those
    of a loop that loads.
    """
    labels = {
        line[:-1]: number for number, line in enumerate(lines) if re.fullmatch(r"\.L\w+:", line)
    }
    ends = {
        number
        for number, line in enumerate(lines)
        if re.match(r"/\*\w+\*/\s+(EXIT|RET|BRA)\b", line)
    }
    for number, line in enumerate(lines):
        for target in re.findall(r"BRA.*`\((\.L\w+)\)", line):
            first = labels.get(target, number)
            if any(_LOAD.match(_instruction(inside)) for inside in lines[first:number]):
                ends |= {first, number}
    return ends


def longest(threads, code):
    """Loads one after another of the slowest thread; threads: as the emulator's count has them;
    code: groups of the kernel.
    """
    return max((_of_thread(thread, code) for thread in threads), default=0)


def _of_thread(thread, code):
    """A thread waits for loads as often as their groups need, and for those that are in one group
    together.

    Lines that are in the same groups count as one: the compiler takes one for the other.
    """
    runs = collections.defaultdict(list)  # numbers of groups -> runs of the lines in them
    sizes = {}  # and how many of these lines' loads each group has
    for stack in {stack for stack, _, _ in thread}:
        counts = {
            number: count
            for number, group in enumerate(code)
            if (count := sum(count for known, count in group.items() if _same(known, stack)))
        }
        of_stack = [
            (loads, iterations, times)
            for (other, loads, iterations), times in thread.items()
            if other == stack
        ]
        runs[frozenset(counts)] += of_stack
        sizes[frozenset(counts)] = collections.Counter(counts) + sizes.get(
            frozenset(counts), collections.Counter()
        )
    unmet = {
        groups: _waits(of_groups, [sizes[groups][number] for number in sorted(groups)])
        for groups, of_groups in runs.items()
        if groups
    }
    chain = 0
    while unmet:
        together = max(
            ([groups for groups in unmet if number in groups] for number in range(len(code))),
            key=len,
        )
        times = min(unmet[groups] for groups in together)
        chain += times
        unmet = {
            groups: left
            for groups, waits in unmet.items()
            if (left := waits - times * (groups in together))
        }
    return chain


def _same(known, stack):
    """Whether two stacks are of one line: either compiler may leave out the outer frames, of a
    function that is not inlined.
    """
    return all(a == b for a, b in zip(known, stack, strict=False))


def _waits(runs, sizes):
    """How often a warp waits for the loads of one line that ran in these runs; sizes: of its
    groups, in the code's order.

    Groups of one size: the compiler has unrolled all loops, or loads nothing where there is
    nothing. Of several: after the largest groups come those for the remainder of each run of the
    loop.
    """
    most = max(sizes)
    if most > 1 and len(set(sizes)) == 1:
        return -(-sum(iterations * times for _, iterations, times in runs) // most)
    first = sizes.index(most) + 1
    after = [*sizes[first:], *sizes[: first - 1]]
    remainder = after[: after.index(most)] if most in after else after
    return sum(
        (loads // most + _of_remainder(loads % most, remainder)) * times for loads, _, times in runs
    )


def _of_remainder(loads, sizes):
    groups = 0
    for size in sizes:
        if size <= loads:
            groups, loads = groups + 1, loads - size
    return groups + loads
