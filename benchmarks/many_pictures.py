"""Run the report on many pictures, or on large ones, and print what each stage used.

    python benchmarks/many_pictures.py small 200000     of 32x32
    python benchmarks/many_pictures.py medium 5000      of 64x64
    python benchmarks/many_pictures.py large 5000       of 4,000x3,000
    ... --no-labels                                     the same pictures without their classes

The pictures are CIFAR-10's with a small change each, as JPEG, in folders of their classes below
--scratch, where they stay for another call. The command runs twice: the second time shows what is
read of pictures that are known. Of each stage are printed the seconds of the clock and of all
processors, and the largest sum of the resident memory of its processes; of the command also the
bytes that it has read. Linux only: /proc has all of it.
"""

import concurrent.futures
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
from PIL import Image

from own_pictures import ROOT, Source, command

EVERY = 0.2  # seconds between two looks at the processes
TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
OF_STAGE = re.compile(r"--job\0logs/([a-z0-9_]+)/")
COMMAND = "command"  # what is not in a stage


def main():
    parser = command.parser(__doc__)
    parser.add_argument("kind", choices=SIZES)
    parser.add_argument("count", type=int)
    parser.add_argument("--no-labels", action="store_true")
    parser.add_argument("--scratch", type=pathlib.Path, default=pathlib.Path("/tmp/many_pictures"))
    parser.add_argument("--cifar10", help="CIFAR-10's binary archive, in place of its address")
    parser.add_argument("--keep", action="store_true", help="go on from the results of a call")
    parser.add_argument("--config", nargs="*", default=[], metavar="KEY=VALUE", help="settings")
    arguments = parser.parse_args()
    scratch = arguments.scratch.absolute()
    folder = scratch / f"{arguments.kind}-{arguments.count}"
    if not folder.exists():
        source = Source(scratch / "downloads", arguments.cifar10, None)
        make(folder, arguments.kind, arguments.count, source)
    results = scratch / f"results-{folder.name}{'-without' if arguments.no_labels else ''}"
    if not arguments.keep:
        shutil.rmtree(results, ignore_errors=True)
    results.mkdir(exist_ok=True)
    settings = [f"folder={folder}", *(["labels=none"] * arguments.no_labels), *arguments.config]
    for _ in range(2):
        watched(["report", "table", "--config", "dataset=folder", *settings], results)


# The pictures.

# (size of smooth pictures, size): smooth first, then large, is quicker than smooth and large
SIZES = {
    "small": ((32, 32), (32, 32)),
    "medium": ((64, 64), (64, 64)),
    "large": ((1000, 750), (4000, 3000)),
}


def make(folder, kind, count, source):
    """Write `count` pictures, in turn those of the classes, changed by their number."""
    pictures = list(source.cifar10(5000))
    order = np.random.default_rng(1).permutation(len(pictures))
    wanted = zip(range(count), itertools.cycle(order), strict=False)
    unfinished = folder.with_name(f"{folder.name}.part")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for _ in pool.map(lambda row: write(unfinished, row[0], *pictures[row[1]], kind), wanted):
            pass
    unfinished.rename(folder)


def write(folder, number, label, pixels, kind):
    """One picture, turned to its mirror image, moved and with another brightness by its number."""
    generator = np.random.default_rng(number)
    moved = np.roll(pixels, generator.integers(-2, 3, 2), (0, 1))
    bright = np.clip(moved * generator.uniform(0.8, 1.2), 0, 255).astype(np.uint8)
    image = Image.fromarray(bright[:, :: generator.choice([1, -1])])
    smooth, size = SIZES[kind]
    image = image.resize(smooth, Image.Resampling.BICUBIC).resize(size, Image.Resampling.NEAREST)
    (folder / label).mkdir(parents=True, exist_ok=True)
    image.save(folder / label / f"{number:06d}.jpg", quality=85)


# What the command uses.


def watched(words, folder):
    """Run a command and print what each of its stages used."""
    began = time.monotonic()
    script, snakefile = ROOT / "workflow/scripts/run_workflow.py", ROOT / "Snakefile"
    workflow = [sys.executable, str(script), "--snakefile", str(snakefile), *words]
    process = subprocess.Popen([*workflow, "--cores", str(os.cpu_count())], cwd=folder)
    used, ended = Used(process.pid), threading.Event()
    watcher = threading.Thread(target=used.watch, args=(ended,))
    watcher.start()
    status = process.wait()
    ended.set()
    watcher.join()
    print(f"status {status}, {time.monotonic() - began:.0f} s of the clock")
    print(f"{'stage':14} {'clock s':>8} {'processors s':>13} {'peak GB':>8} {'read GB':>8}")
    for stage in (*used.peaks,):
        own = [row for row in used.processes.values() if row[0] == stage]
        seconds, read = (sum(row[at] for row in own) for at in (1, 2))
        print(
            f"{stage:14} {used.spans[stage][1] - used.spans[stage][0]:8.0f} {seconds:13.0f} "
            f"{used.peaks[stage] / 1e9:8.2f} {read / 1e9:8.2f}"
        )
    total = sum(row[1] for row in used.processes.values())
    print(f"{'all':14} {'':8} {total:13.0f} {used.peak / 1e9:8.2f}", flush=True)


class Used:
    """What the processes below one used.

    processes  id and start -> (stage, seconds of processors, bytes read)
    peaks      stage -> most resident bytes
    spans      stage -> first and last time it was seen
    peak       most resident bytes of all processes together
    """

    def __init__(self, root):
        self._root, self.processes, self.peaks, self.spans, self.peak = root, {}, {}, {}, 0

    def watch(self, ended):
        while not ended.wait(EVERY):
            self._sample()

    def _sample(self):
        now, resident = time.monotonic(), {}
        for pid in below(self._root):
            try:
                began, stage, seconds, read, memory = seen(pid)
            except OSError:  # it has ended
                continue
            # Ids are used again. What has ended has no command line until it is waited for.
            stage = stage or self.processes.get((pid, began), (COMMAND,))[0]
            self.processes[pid, began] = stage, seconds, read
            resident[stage] = resident.get(stage, 0) + memory
            self.spans[stage] = self.spans.get(stage, (now,))[0], now
        for stage, memory in resident.items():
            self.peaks[stage] = max(memory, self.peaks.get(stage, 0))
        self.peak = max(self.peak, sum(resident.values()))


def below(root):
    """The ids of a process and of all that it has started."""
    children = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text("utf-8").rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(folder.name))
    descendants = [root]
    for pid in descendants:
        descendants += children.get(pid, [])
    return descendants


def seen(pid):
    """(start, stage, seconds of processors, bytes read, resident bytes) of a process; the stage is
    empty where it has ended.
    """
    folder = pathlib.Path("/proc", str(pid))
    fields = (folder / "stat").read_text("utf-8").rpartition(")")[2].split()
    words = (folder / "cmdline").read_bytes().decode("utf-8", "replace")
    stage = OF_STAGE.search(words)
    read = int((folder / "io").read_text("utf-8").split()[1])
    return (
        fields[19],
        stage[1] if stage else words and COMMAND,
        (int(fields[11]) + int(fields[12])) / TICKS,
        read,
        int(fields[21]) * PAGE,
    )


if __name__ == "__main__":
    command.run(main)
