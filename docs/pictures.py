"""Make the pictures of README.md and docs/ again: python docs/pictures.py [--config KEY=VALUE ...]

Each is the first screen of a page, which Snakemake makes where it is missing. Needs Chromium.
"""

import argparse
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import browser  # noqa: E402  (after sys.path)

PICTURES = {"report.png": (("report",), "results/report.html")}   # in docs/: (what Snakemake makes, page)
WIDTH, HEIGHT = 1280, 640   # CSS pixels; the picture has twice as many


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", nargs="+", default=[], metavar="KEY=VALUE", help="settings of the runs, as of Snakemake")
    more = parser.parse_args().config
    if browser.find() is None:
        sys.exit("no Chromium found (Debian package: chromium)")
    for name, (target, page) in PICTURES.items():
        if status := subprocess.run([sys.executable, "-m", "snakemake", *target, *more], cwd=ROOT, check=False).returncode:
            return status
        photograph(ROOT / page, ROOT / "docs" / name)
        print(f"docs/{name}: {page}")
    return 0


def photograph(page, picture):
    """Write the first screen of a page as a PNG."""
    chromium = browser.Browser(browser.find())
    try:
        chromium.open(page, WIDTH, HEIGHT)
        chromium.screenshot(picture, WIDTH, HEIGHT, scale=2)
    finally:
        chromium.close()


if __name__ == "__main__":
    sys.exit(main())
