"""Make the pictures of README.md and docs/ again: python docs/pictures.py [--config KEY=VALUE ...]

Each is the beginning of a page, which Snakemake makes where it is missing. Needs Chromium.
"""

import argparse
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from PIL import Image  # noqa: E402  (after sys.path)

import browser  # noqa: E402

# In docs/: (what Snakemake makes, page, height in CSS pixels, settings); the picture has twice as
# many.
PICTURES = {
    "report.png": ("report", "results/report.html", 640, ()),
    "network.png": (
        "results/network.html",
        "results/network.html",
        900,
        ("network=autoencoder", "dataset=cifar10"),
    ),
}
WIDTH = 1280
COLOURS = 128  # enough for text and lines, and a third of the bytes


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--config",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="settings of the runs, as of Snakemake",
    )
    more = parser.parse_args().config
    if browser.find() is None:
        sys.exit("no Chromium found (Debian package: chromium)")
    for name, (target, page, height, own) in PICTURES.items():
        config = ["--config", *own, *more] if own or more else []
        if status := subprocess.run(
            [sys.executable, "-m", "snakemake", target, *config], cwd=ROOT, check=False
        ).returncode:
            return status
        photograph(ROOT / page, ROOT / "docs" / name, height)
        print(f"docs/{name}: {page}")
    return 0


def photograph(page, picture, height):
    """Write the beginning of a page as a PNG."""
    chromium = browser.Browser(browser.find())
    try:
        chromium.open(page, WIDTH, height)
        chromium.screenshot(picture, WIDTH, height, scale=2)
        Image.open(picture).convert("RGB").quantize(COLOURS).save(picture, optimize=True)
    finally:
        chromium.close()


if __name__ == "__main__":
    sys.exit(main())
