"""What every page shares: the templates of workflow/report/ and how numbers are written."""

import jinja2

from . import progress, sources

TEMPLATES = sources.ROOT / "workflow/report"
NARROW_SPACE = "\N{NARROW NO-BREAK SPACE}"


def render(template, context):
    """The page made from workflow/report/<template>: one HTML text. A name in it that `context` lacks is an error."""
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True,
                                     lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"count": count, "percent": percent, "duration": duration, "size": size, "large": large,
                            "setting": setting, "moment": moment, "rate": rate}
    return environment.get_template(template).render(context)


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
