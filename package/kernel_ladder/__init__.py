"""The command `kernel-ladder`: Snakemake's own, with the workflow that lies beside this file, in
the folder where it runs.
"""

import os
import pathlib
import sys

HOME = pathlib.Path(__file__).parent
# the beginnings of words that say how many cores
CORES = ("-c", "--cores", "--profile", "--workflow-profile")
HELP = """\
Kernel Ladder {version}: image features without labels, and the kernels that train them.

  kernel-ladder report                                the whole chain on digits that come with it
  kernel-ladder report PICTURES                       on your own: a folder, with or without a folder for each class
  kernel-ladder report -n --config batch_size=32      what would run, and why; without -n it runs
  kernel-ladder report --configfile {presets}/cifar10_wta.yaml
  kernel-ladder runs --config 'runs=[{{optimizer: [adam, sgd]}}]'
  kernel-ladder all_settings                          every key and its value

Other targets: the stages (data, normalized, patches, train, evaluate, features, svm), model, pages as
results/network.html, history, predictions, settings, explain, gc. Results, logs and config.yaml are in this folder.
Options are Snakemake's (kernel-ladder report --help), with --cores all where none says how many; -v: its own words.
"""


def main() -> None:
    """Run Snakemake with the words of the command line; without any, or with --help alone, print
    what there is to type.
    """
    words = sys.argv[1:]
    if words in ([], ["-h"], ["--help"]):
        from ladder import __version__

        print(HELP.format(version=__version__, presets=HOME / "presets"), end="")
        return
    # What Numba compiles would lie beside the modules, where nothing would ever take it away.
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    os.environ.setdefault("NUMBA_CACHE_DIR", str(pathlib.Path(cache, "kernel-ladder", "numba")))
    given = "SNAKEMAKE_PROFILE" in os.environ or any(word.startswith(CORES) for word in words)
    cores = [] if given else ["--cores", "all"]
    sys.path.insert(0, f"{HOME}/workflow/scripts")  # where Snakemake finds what writes the lines
    from ladder.workflow import terminal

    sys.exit(terminal.run(["-s", f"{HOME}/Snakefile", *cores, *words]))
