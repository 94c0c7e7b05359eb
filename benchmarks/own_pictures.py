"""Measure the defaults for pictures of one's own on real folders: writes
benchmarks/own_pictures.json and its table in docs/data.md.

    python benchmarks/own_pictures.py [FOLDER ...]     without names, all
    python benchmarks/own_pictures.py --table          only the table

Each folder is built from a data set that the pipeline downloads, scikit-learn, or a package of PyPI
or Debian, which are downloaded too, and run with no settings but its path, a test share of 0.3 and
the SVM. The record has the sha256 of the folder, every accuracy, the paired intervals of the answer
(kernel ridge regression) against each control, and the seconds of the command: of the clock and of
all processors. A folder whose record is there is measured again only by name.
"""

import hashlib
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "workflow/scripts"))

import numpy as np  # noqa: E402
from PIL import Image, ImageDraw, ImageFont  # noqa: E402

from ladder.data import official  # noqa: E402
from ladder.stage import command  # noqa: E402
from ladder.store import disk  # noqa: E402

RECORD, PAGE = HERE / "own_pictures.json", ROOT / "docs/data.md"
BEGIN, END = "<!-- own_pictures: begin -->\n", "<!-- own_pictures: end -->\n"
SHARE = 0.3
FONTS = {
    "font-amatic-sc": "0.0.4",
    "font-caladea": "0.0.2",
    "font-fredoka-one": "0.0.4",
    "font-hanken-grotesk": "0.0.2",
    "font-intuitive": "0.0.4",
    "font-manrope": "0.0.2",
    "font-roboto": "0.0.1",
    "font-source-sans-pro": "0.0.1",
    "font-source-serif-pro": "0.0.1",
}
OXYGEN = ("oxygen-icon-theme", "5:5.103.0-1", "usr/share/icons/oxygen/base/32x32")
TANGO = ("tango-icon-theme", "0.8.90-11", "usr/share/icons/Tango/32x32")
LETTERS = "ABCDEFGHIJ"
LEAST_OF_A_CLASS = 30  # icons
TILE = 64  # pixels


class Source:
    """Where the pictures come from; downloads: a folder for what is downloaded."""

    def __init__(self, downloads, cifar10, mnist):
        self.downloads, self._cifar10, self._mnist = downloads, cifar10, mnist

    def cifar10(self, per_class, classes=range(10)):
        """(class, uint8 picture) of the first pictures of each class."""
        path = self._cifar10
        urls = [path] if path else settings("cifar10_urls")
        sha256 = disk.sha256(pathlib.Path(path)) if path else settings("cifar10_sha256")
        data = official.load("cifar10", urls, self.downloads, False, sha256)
        yield from first(data, per_class, classes)

    def mnist(self, per_class):
        urls = [self._mnist] if self._mnist else settings("mnist_urls")
        yield from first(official.load("mnist", urls, self.downloads, False), per_class)

    def digits(self):
        from sklearn.datasets import load_digits

        data = load_digits()
        for label, image in zip(data.target, data.images, strict=True):
            yield str(label), (image * 255 / 16).astype(np.uint8)

    def icons(self, package, version, folder):
        """Icons of a theme, by their category."""
        unpacked = self._debian(package, version) / folder
        for category in sorted(path for path in unpacked.iterdir() if path.is_dir()):
            names = [path for path in sorted(category.glob("*.png")) if not path.is_symlink()]
            for path in names if len(names) >= LEAST_OF_A_CLASS else []:
                with Image.open(path) as icon:
                    paper = Image.new("RGBA", icon.size, "white")
                    paper.alpha_composite(icon.convert("RGBA"))
                    yield category.name, np.asarray(paper.convert("RGB"))

    def glyphs(self, by_font=False):
        """Letters in every font of FONTS: ten of them turned twice, by letter; or 20, by font."""
        letters, angles = (LETTERS + LETTERS.lower(), (0,)) if by_font else (LETTERS, (-12, 0, 12))
        for font, file in self._fonts():
            for letter in letters:
                for angle in angles:
                    image = glyph(ImageFont.truetype(str(file), 22), letter, angle)
                    yield font if by_font else letter, image

    def textures(self):
        """Tiles of photographs that come with scikit-image and scikit-learn; a class for each."""
        from sklearn.datasets import load_sample_images

        wheel = self._pypi("scikit-image", "0.25.2", "skimage/data/")
        named = {path.stem: path for path in sorted(wheel.rglob("*")) if path.suffix == ".png"}
        pictures = {
            name: np.asarray(Image.open(named[name]).convert("RGB"))
            for name in ("brick", "grass", "gravel", "coffee", "astronaut")
            if name in named
        }
        samples = load_sample_images()
        pictures |= {
            pathlib.Path(name).stem: image
            for name, image in zip(samples.filenames, samples.images, strict=True)
        }
        for name, picture in pictures.items():
            for top in range(0, picture.shape[0] - TILE + 1, TILE):
                for left in range(0, picture.shape[1] - TILE + 1, TILE):
                    yield name, picture[top : top + TILE, left : left + TILE]

    def _fonts(self):
        for name, version in FONTS.items():
            for file in sorted(self._pypi(name, version, "").rglob("*.ttf")):
                yield file.stem, file

    def _pypi(self, name, version, below):
        """The folder of a package's wheel or sources, of what is `below` a folder."""
        out = self.downloads / f"{name}-{version}"
        if not out.exists():
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d"]
            subprocess.run([*pip, str(out), f"{name}=={version}"], check=True)
        for archive in out.glob("*.whl"):
            with zipfile.ZipFile(archive) as file:
                for member in file.namelist():
                    if member.startswith(below):
                        file.extract(member, out / "unpacked")
        for archive in out.glob("*.tar.gz"):
            (out / "unpacked").mkdir(exist_ok=True)
            subprocess.run(["tar", "xzf", archive, "-C", out / "unpacked"], check=True)
        return out / "unpacked"

    def _debian(self, name, version):
        out = self.downloads / f"{name}-{version.replace(':', '_')}"
        if not out.exists():
            out.mkdir(parents=True)
            get = ["apt-get", "download", f"{name}={version}"]
            subprocess.run(get, cwd=out, check=True)
            (archive,) = out.glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", archive, out / "unpacked"], check=True)
        return out / "unpacked"


# Folder -> its pictures, in the order of their number; the last three were kept aside until the
# recipe was fixed.
FOLDERS = {
    "cifar300": lambda source: source.cifar10(30),
    "mnist300": lambda source: source.mnist(30),
    "textures": Source.textures,
    "cifar2": lambda source: source.cifar10(300, (0, 1)),
    "glyphs": Source.glyphs,
    "cifar1000": lambda source: source.cifar10(100),
    "oxygen": lambda source: source.icons(*OXYGEN),
    "digits": Source.digits,
    "mnist2000": lambda source: source.mnist(200),
    "cifar5000": lambda source: source.cifar10(500),
    "tango": lambda source: source.icons(*TANGO),
    "fonts": lambda source: source.glyphs(by_font=True),
    "animals": lambda source: source.cifar10(150, (2, 3, 4, 5, 6, 7)),
}
ASIDE = ("tango", "fonts", "animals")


def main():
    parser = command.parser(__doc__)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help=", ".join(FOLDERS))
    parser.add_argument("--table", action="store_true", help="only write the table of docs/data.md")
    parser.add_argument("--downloads", type=pathlib.Path, default=ROOT / "results/downloads")
    parser.add_argument("--cifar10", help="CIFAR-10's binary archive, in place of its address")
    parser.add_argument("--mnist", help="folder of MNIST's four files, in place of their addresses")
    arguments = parser.parse_args()
    record = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    source = Source(arguments.downloads.absolute(), arguments.cifar10, arguments.mnist)
    named = arguments.folders or [name for name in FOLDERS if name not in record]
    for name in [] if arguments.table else named:
        record[name] = measured(name, FOLDERS[name](source))
        print(name, json.dumps(record[name]["accuracies"]), flush=True)
        ordered = {key: record[key] for key in FOLDERS if key in record}
        disk.write_atomically(RECORD, (json.dumps(ordered, indent=1) + "\n").encode())
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    text = before + BEGIN + table(record) + END + rest.partition(END)[2]
    disk.write_atomically(PAGE, text.encode())


def settings(key):
    """The default of a key of the configuration."""
    from ladder.workflow.settings import Settings

    return Settings().by_key()[key]


def first(data, per_class, classes=range(10)):
    """(class, picture) of the first training images of each class."""
    labels = np.asarray(data.train_labels)
    for label in classes:
        for row in np.flatnonzero(labels == label)[:per_class]:
            yield data.classes[label], np.squeeze(np.asarray(data.train_images[row]))


def glyph(font, letter, angle):
    """A letter in the middle of a white picture of 32x32 pixels."""
    image = Image.new("L", (32, 32), 255)
    ImageDraw.Draw(image).text((16, 16), letter, 0, font, anchor="mm")
    return np.asarray(image.rotate(angle, Image.Resampling.BICUBIC, fillcolor=255))


def measured(name, pictures):
    """The record of a folder."""
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as scratch:
        folder = pathlib.Path(scratch, name)
        content = hashlib.sha256()
        for number, (label, picture) in enumerate(pictures):
            content.update(f"{label} {number} {picture.shape} ".encode() + picture.tobytes())
            (folder / label).mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(folder / label / f"{number:05d}.png")
        began, before = time.perf_counter(), processors()
        keys = [f"folder={folder}", f"test_share={SHARE}", "svm_kernel=rbf"]
        snakemake = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
        subprocess.run(
            [*snakemake, "report", "--config", "dataset=folder", *keys], cwd=scratch, check=True
        )
        clock, busy = time.perf_counter() - began, processors() - before
        summary = json.loads(pathlib.Path(scratch, "results/summary.json").read_text("utf-8"))
    svm = sum(spent for role, spent in summary["seconds"].items() if role.startswith("svm"))
    return {
        "sha256": content.hexdigest(),
        "images": {key: summary["images"][key] for key in ("train", "test")},
        "classes": len(summary["classes"]),
        "accuracies": summary["evaluations"],
        "against": {
            control["control"]: [control["difference"], *control["difference_interval"]]
            for control in summary["controls"]
        },
        "seconds": {"clock": round(clock), "processors": round(busy), "svm": round(svm)},
        "chosen": summary["choices"],
    }


def processors():
    """Seconds of all processors in the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(record):
    """Accuracies in percent, SVM / kernel ridge."""
    heads = ("folder", "train", "default", "own untrained", "best untrained", "raw pixels", "s")
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for name, row in record.items():
        cells = [
            " / ".join(
                f"{100 * row['accuracies'][f'{classifier}{tail}']:.1f}"
                for classifier in ("svm", "ridge")
            )
            for tail in ("", "_random", "_strong", "_pixels")
        ]
        aside = " (kept aside)" if name in ASIDE else ""
        lines.append(
            f"| {name}{aside} | {row['images']['train']:,} | {' | '.join(cells)} | "
            f"{row['seconds']['processors']} |"
        )
    missing = [name for name in FOLDERS if name not in record]
    lines += ["", f"Not measured yet: {', '.join(missing)}."] if missing else []
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command.run(main)
