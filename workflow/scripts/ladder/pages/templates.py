"""What every page shares: the templates of workflow/report/, how numbers are written, and how networks are."""

import base64
import hashlib
import itertools
import re

import jinja2
import markupsafe

from ladder import progress, sources

TEMPLATES = sources.ROOT / "workflow/report"
NARROW_SPACE = "\N{NARROW NO-BREAK SPACE}"
# Networks, where the key is not what people say.
NETWORKS = {"autoencoder": "An autoencoder", "lenet_300_100": "LeNet-300-100", "lenet_5": "LeNet-5", "small_cnn": "A small CNN",
            "patch_net": "A patch network"}
BLOCK = re.compile(r"(stage\d+)_\d+(?=_|$)")   # at the head of the name of a layer in a block of a stage


def render(template, context):
    """The page made from workflow/report/<template>: one HTML text. A name in it that `context` lacks is an error."""
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True,
                                     lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"count": count, "percent": percent, "duration": duration, "size": size, "large": large,
                            "setting": setting, "moment": moment, "rate": rate}
    environment.globals |= {"script": script, "script_digest": script_digest}
    return environment.get_template(template).render(context)


def script(name):
    """workflow/report/<name> as the element that a page brings it in."""
    return markupsafe.Markup(f"<script>{_script_text(name)}</script>")


def script_digest(name):
    """What a page's policy calls that script by, so that no other runs."""
    return "sha256-" + base64.b64encode(hashlib.sha256(_script_text(name).encode()).digest()).decode()


def _script_text(name):
    return (TEMPLATES / name).read_text()


def network_title(name):
    """The network at the head of a sentence: 'LeNet-5', 'An autoencoder'; 'ResNet-50' for 'resnet50'."""
    return NETWORKS.get(name) or re.sub(r"^resnet(?=\d)", "ResNet-", name)


def in_stages(names):
    """Names of layers in their order, folded: [(stage, names)], where stage is '' beside the stages ('stem', 'scores')."""
    return [(stage, list(some)) for stage, some in itertools.groupby(names, lambda name: _matched(name, 1))]


def in_blocks(names):
    """As `in_stages`, by block: [('stage1_1', names)]."""
    return [(block, list(some)) for block, some in itertools.groupby(names, lambda name: _matched(name, 0))]


def _matched(name, group):
    found = BLOCK.match(name)
    return found[group] if found else ""


def bars(values, text, largest=None):
    """Rows for a bar chart of values (name -> number): lengths in percent of the largest, or of `largest`; text: writes one."""
    largest = largest or max(values.values(), default=0) or 1
    return [{"name": name, "length": round(100 * value / largest, 2), "text": text(value)}
            for name, value in values.items()]


def shape(of):
    """(28, 28, 6) as '28 × 28 × 6', a vector (1, 1, 84) as '84'."""
    return " × ".join(map(str, of[2:] if tuple(of[:2]) == (1, 1) else of))


def add_cells(items, costs):
    """Give each of the items `cells`: its costs (key -> function that writes one), their shares of all, and bars for them."""
    for cost, written in costs.items():
        values = [item[cost] for item in items]
        for item in items:
            item.setdefault("cells", []).append({
                "text": written(item[cost]) if item[cost] else "", "length": round(100 * item[cost] / (max(values) or 1), 2),
                "share": small_percent(item[cost] / (sum(values) or 1))})


def count(value):
    """1437 -> '1,437'."""
    return f"{value:,}"


def percent(fraction, digits=1):
    """0.98611 -> '98.6 %'."""
    return f"{100 * fraction:.{digits}f}{NARROW_SPACE}%"


def small_percent(fraction):
    """As percent, with more digits where one would say too little: 0.00017 -> '0.017 %'."""
    digits = 1
    while digits < 6 and 0 < 100 * fraction < 10.0 ** (1 - digits):
        digits += 1
    return percent(fraction, digits)


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
    """Seconds in words, with milliseconds where they matter."""
    text = f"{seconds * 1000:.0f} ms" if seconds < 0.1 else progress.duration(seconds)
    return text.replace(" ", NARROW_SPACE)


def size(number):
    """Bytes in words."""
    return progress.size(number).replace(" ", NARROW_SPACE)


def setting(value):
    """A parameter's value as config.yaml has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(setting(one) for one in value) or "none"
    return str(value)


def moment(text):
    """'2026-01-31T12:34:56Z' -> '2026-01-31 12:34'."""
    return text[:16].replace("T", " ")
