"""Shared by all pages: the templates of assets/, and the formats of
numbers and names of networks.
"""

import base64
import functools
import hashlib
import itertools
import pathlib
import re

import jinja2
import markupsafe

from ladder import progress
from ladder.pages import charts

# The scripts of a page with charts that answer questions.
CHARTS = ("saving.js", "charts.js")
TEMPLATES = pathlib.Path(__file__).parent / "assets"
NARROW_SPACE = "\N{NARROW NO-BREAK SPACE}"
# Networks whose key is not the common name.
NETWORKS = {
    "autoencoder": "An autoencoder",
    "wta_autoencoder": "A winner-take-all autoencoder",
    "autoencoder_classifier": "An autoencoder’s encoder with a head",
    "lenet_300_100": "LeNet-300-100",
    "lenet_5": "LeNet-5",
    "small_cnn": "A small CNN",
    "patch_net": "A patch network",
    "alexnet": "AlexNet",
}
DATASETS = {
    "mnist_small": "a part of MNIST",
    "digits": "handwritten digits",
    "cifar10": "CIFAR-10",
    "mnist": "MNIST",
    # likewise
    "fashion_mnist": "Fashion-MNIST",
    "cifar100": "CIFAR-100",
    "svhn": "SVHN",
    "folder": "your pictures",
}
# The pages of the site, each in results/ under its name: name -> title. The first one is that of
# the latest run.
SITE = {
    "report": "Report",
    "runs": "Runs",
    "network": "Network",
    "parity": "Ladder",
    "predictions": "Predictions",
}
LONG = 24  # longer lists of layers are folded by stage
# the beginning of the name of a layer in a block of a stage
BLOCK = re.compile(r"(stage\d+)_\d+(?=_|$)")


def render(template, context):
    """The page made from assets/<template>, one HTML text. A variable that `context` lacks
    is an error.
    """
    return _environment().get_template(template).render(context)


@functools.cache  # with the templates that it has compiled
def _environment():
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "count": count,
        "counted": counted,
        "listed": listed,
        "percent": percent,
        "duration": duration,
        "size": size,
        "large": large,
        "setting": setting,
        "brief": brief,
        "moment": moment,
        "rate": rate,
    }
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    environment.globals |= {
        "script": script,
        "scripts_allowed": scripts_allowed,
        "CHARTS": CHARTS,
        "plain": charts.plain,
        "SITE": SITE,
    }
    return environment


def script(name):
    """assets/<name> as a script element."""
    return markupsafe.Markup(f"<script>{_script_text(name)}</script>")


def scripts_allowed(*names):
    """The part of a page's Content-Security-Policy with the hashes of these scripts, so that no
    other script runs.
    """
    digests = (hashlib.sha256(_script_text(name).encode()).digest() for name in names)
    return markupsafe.Markup(
        "; script-src "
        + " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    )


def _script_text(name):
    return (TEMPLATES / name).read_text("utf-8")


def network_title(name, variational=False):
    """The network's name at the beginning of a sentence: 'LeNet-5', 'An autoencoder'; 'ResNet-50'
    for 'resnet50'.

    variational: whether an autoencoder's latent values are draws.
    """
    if variational:
        return NETWORKS[name].replace("An autoencoder", "A variational autoencoder")
    return NETWORKS.get(name) or re.sub(
        r"^vgg(?=\d)", "VGG-", re.sub(r"^resnet(?=\d)", "ResNet-", name)
    )


def dataset_title(name):
    """The data set's common name, within a sentence."""
    return DATASETS.get(name, name)


def program(summary):
    """The version of the program that made a run, with its git commit if that is known; summary: of
    the run.
    """
    made_by = summary["program"]
    changed = "" if made_by.get("clean", True) else " with changed files"
    return made_by["version"] + (
        f", git commit {made_by['commit']}{changed}" if "commit" in made_by else ""
    )


def in_stages(names):
    """Names of layers in their order by stage: [(stage, names)]; stage is '' for layers outside the
    stages ('stem').
    """
    return _grouped(names, 1)


def in_blocks(names):
    """As `in_stages`, by block: [('stage1_1', names)]."""
    return _grouped(names, 0)


def _grouped(names, part):
    groups = itertools.groupby(names, lambda name: (match := BLOCK.match(name)) and match[part])
    return [(block or "", list(layers)) for block, layers in groups]


def folded(names):
    """As `in_stages` for more than LONG layers; else all of them in one part without a name."""
    return in_stages(names) if len(names) > LONG else [("", list(names))]


def span(names):
    """['conv1', 'pool1', 'fc1'] -> 'conv1 to fc1'."""
    return " to ".join(dict.fromkeys((names[0], names[-1])))


def part(stage, names, rows, costs):
    """A part of a network, as pieces.html draws it: its rows and the sums of their costs; stage: ''
    outside the stages.
    """
    return {
        "name": stage or span(names),
        "stage": stage,
        "rows": rows,
        "layers": len(rows),
        "blocks": len(in_blocks(names)),
        "shape": rows[-1]["shape"],
        **{cost: sum(row[cost] for row in rows) for cost in costs},
    }


def bars(values, text, largest=None):
    """Rows of a bar chart of values (name -> number); lengths are in percent of `largest`; text:
    the format of a value.
    """
    largest = largest or max(values.values(), default=0) or 1
    return [
        {
            "name": name,
            "value": value,
            "length": round(100 * value / largest, 2),
            "text": text(value),
        }
        for name, value in values.items()
    ]


def shape(sizes):
    """(28, 28, 6) -> '28 × 28 × 6'; a vector (1, 1, 84) -> '84'."""
    return " × ".join(map(str, sizes[2:] if tuple(sizes[:2]) == (1, 1) else sizes))


def add_cells(items, costs):
    """Add `cells` to each item: text, share of the total and length of a bar for each cost (key ->
    function that writes it).
    """
    for cost, written in costs.items():
        values = [item[cost] for item in items]
        for item in items:
            item.setdefault("cells", []).append(
                {
                    "text": written(item[cost]) if item[cost] else "",
                    "length": round(100 * item[cost] / (max(values) or 1), 2),
                    "share": small_percent(item[cost] / (sum(values) or 1)),
                }
            )


def count(value):
    """1437 -> '1,437'."""
    return f"{value:,}"


def counted(value, noun):
    """(1, "image") -> '1 image', (1437, "image") -> '1,437 images', (2, "class") -> '2 classes'."""
    return f"{value:,} {noun}" + ("" if value == 1 else "es" if noun.endswith("s") else "s")


def listed(items):
    """[2, 4, 7] -> '2, 4 and 7'."""
    *most, last = map(str, items)
    return f"{', '.join(most)} and {last}" if most else last


def percent(fraction, digits=1):
    """0.98611 -> '98.6 %'."""
    return f"{100 * fraction:.{digits}f}{NARROW_SPACE}%"


def small_percent(fraction):
    """As percent, with more digits for small values: 0.00017 -> '0.017 %'."""
    digits = 1
    while digits < 6 and 0 < 100 * fraction < 10.0 ** (1 - digits):
        digits += 1
    return percent(fraction, digits)


def sure(probability):
    """In percent with one digit; values that would be rounded to 0 or 100 % as '< 0.1 %' and '>
    99.9 %'.
    """
    if probability >= 0.9995:
        return f"> {percent(0.999)}"
    return percent(probability) if probability >= 0.0005 else f"< {percent(0.001)}"


def large(value):
    """174612480 -> '174.6 M'."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.1f}{NARROW_SPACE}{unit}"
    return f"{value:g}"


def rate(value):
    """Images per second: '1,234', '56', '7.8'."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def duration(seconds):
    """Seconds in words; short times in milliseconds."""
    text = f"{seconds * 1000:.0f} ms" if seconds < 0.1 else progress.duration(seconds)
    return text.replace(" ", NARROW_SPACE)


def size(number):
    """Bytes in words."""
    return progress.size(number).replace(" ", NARROW_SPACE)


def setting(value: object) -> str:
    """The value of a parameter as in config.yaml."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    if isinstance(value, list):
        return (
            ", ".join(
                f"[{setting(item)}]" if isinstance(item, list) else setting(item) for item in value
            )
            or "none"
        )
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_inside(item)}" for key, item in value.items()) + "}"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))  # 0 and 0.0 are one value
    return str(value)


def brief(text: str) -> str:
    """A number of many digits, as a search draws them, in four; any other text as it is."""
    long = len(text) > 9 and re.fullmatch(r"-?\d+\.\d+(e-?\d+)?", text)
    return f"{float(text):.4g}" if long else text


def _inside(value: object) -> str:
    return f"[{setting(value)}]" if isinstance(value, list) and value else setting(value)


def moment(text):
    """'2026-01-31T12:34:56Z' -> '2026-01-31 12:34'."""
    return text[:16].replace("T", " ")
