"""95 % intervals of accuracies and of differences of two accuracies, and the digits that an
interval carries.

An accuracy on n images has Wilson's score interval (E. B. Wilson, Journal of the American
Statistical Association 22, 1927). The difference of two accuracies on the same images depends only
on the images that one of the two alone gets right: Bonett and Price's interval (Journal of
Educational and Behavioral Statistics 37, 2012). On different images, or where the answers are not
kept, it is Newcombe's hybrid score interval (Statistics in Medicine 17, 1998, method 10).
"""

import dataclasses
import math

from ladder.classifiers import metrics
from ladder.pages import templates

CONFIDENCE = 0.95
Z = 1.959963984540054  # SciPy's ndtri((1 + CONFIDENCE) / 2), whose import takes half a second
MOST_DECIMALS = 3
# What the interval of a difference says, in the same words on every page; see `kind`.
PHRASES = {"within": "could be luck", "above": "more than luck", "below": "more than luck"}
CONCLUSIONS = {"within": "nothing shows that {better}", "above": "{better}", "below": "{worse}"}
PAIRED = "Bonett and Price’s interval of a paired difference"


@dataclasses.dataclass(frozen=True)
class Difference:
    """One accuracy minus another, as a fraction; paired: whether it is counted image by image, on
    the same images.

    won: images that only the first gets right, lost: only the other; None where it is not paired.
    """

    value: float
    interval: tuple
    paired: bool
    won: int | None = None
    lost: int | None = None

    @property
    def numbers(self):
        """JSON-able, for the summary of a report."""
        return {
            "difference": self.value,
            "difference_interval": list(self.interval),
            "paired": self.paired,
            "won": self.won,
            "lost": self.lost,
        }


def wilson(accuracy: float, n: int) -> tuple[float, float]:
    """(low, high) of an accuracy on n images."""
    middle = (accuracy + Z * Z / (2 * n)) / (1 + Z * Z / n)
    reach = Z / (1 + Z * Z / n) * math.sqrt(accuracy * (1 - accuracy) / n + Z * Z / (4 * n * n))
    return (0.0 if accuracy == 0 else middle - reach), (1.0 if accuracy == 1 else middle + reach)


def paired(won, lost, n):
    """The Difference of two accuracies on the same n images, `won` right by the first alone, `lost`
    by the other alone.
    """
    more, fewer = (won + 1) / (n + 2), (lost + 1) / (n + 2)
    reach = Z * math.sqrt((more + fewer - (more - fewer) ** 2) / (n + 2))
    interval = max(-1.0, more - fewer - reach), min(1.0, more - fewer + reach)
    return Difference((won - lost) / n, interval, True, won, lost)


def counted(labels, first, other):
    """The paired Difference of two arrays of predictions for images with these labels."""
    return paired(*metrics.won_and_lost(labels, first, other), len(labels))


def unpaired(first, n, other, m):
    """The Difference of an accuracy on n images and another one on m."""
    (low, high), (least, most) = wilson(first, n), wilson(other, m)
    value = first - other
    interval = (
        value - math.hypot(first - low, most - other),
        value + math.hypot(high - first, other - least),
    )
    return Difference(value, interval, False)


# In words.


def kind(interval):
    """The key of PHRASES for the interval of a difference: 'within' if it contains 0, else 'above'
    or 'below' 0.
    """
    low, high = interval
    return "within" if low <= 0 <= high else "above" if low > 0 else "below"


def concluded(difference, better, worse):
    """What follows from a Difference: `better`, `worse`, or that nothing shows that it is
    better.
    """
    return CONCLUSIONS[kind(difference.interval)].format(better=better, worse=worse)


def decimals(interval):
    """Decimals of a value in percent that its interval carries: two digits of half its width up to
    35, else one.

    The rule of the Particle Data Group (Review of Particle Physics, Introduction, 5.3): 0.17 and
    1.2, but 0.8 and 5.
    """
    half = 50 * (interval[1] - interval[0])
    if half <= 0:
        return MOST_DECIMALS
    exponent = math.floor(math.log10(half))
    leading = round(half / 10.0**exponent, 2)
    return min(max(0, (1 if leading < 3.55 else 0) - exponent), MOST_DECIMALS)


def points(value, digits):
    """A difference in percentage points with its sign: '+0.3', '−1.2', '0.0'."""
    text = f"{100 * value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def share(accuracy, n):
    """An accuracy on n images: {"value", "interval", "text": '98.6 %', "interval_text": '96.8 to
    99.4'}.
    """
    return within(accuracy, wilson(accuracy, n))


def within(accuracy, interval):
    """As `share`, of an accuracy with this interval."""
    digits = decimals(interval)
    low, high = (f"{100 * end:.{digits}f}" for end in interval)
    return {
        "value": accuracy,
        "interval": list(interval),
        "text": templates.percent(accuracy, digits),
        "interval_text": f"{low} to {high}",
    }


def accuracy(summary):
    """A report's accuracy with the digits that its interval carries, as in the report; '' without
    one.
    """
    value, interval = summary.get("test_accuracy"), summary.get("accuracy_interval")
    text = "" if value is None else templates.percent(value, decimals(interval) if interval else 1)
    return ", ".join(filter(None, (text, balanced(summary))))


def balanced(summary):
    """The mean accuracy over the classes of a report, 'mean of the classes 50.0 %'; '' where the
    classes have about as many images each, or nothing was classified.
    """
    counts = summary.get("confusion")
    if not counts or not metrics.unbalanced(counts):
        return ""
    return f"mean of the classes {templates.percent(metrics.balanced_accuracy(counts), 1)}"


def words(difference, other=""):
    """A Difference in words: {"points": '+1.2', "interval_text": '−0.3 to +2.7', "luck_text",
    "against"}.

    against: all in one, '+1.2 points against raw pixels (−0.3 to +2.7, could be luck)'; other: what
    it is against.
    """
    digits = decimals(difference.interval)
    low, high = (points(end, digits) for end in difference.interval)
    value, luck = points(difference.value, digits), PHRASES[kind(difference.interval)]
    return {
        "points": value,
        "interval_text": f"{low} to {high}",
        "luck_text": luck,
        "against": f"{value} points{f' against {other}' if other else ''} ({low} to {high}, {luck})",
    }


def chart(rows):
    """A description of a chart (ladder/pages/charts.py) of accuracies with their intervals.

    rows: [{"name", "value", "interval", "text", "interval_text"}], as of `share`, perhaps "note";
    key: "own" for what is in colour, all are where none is; mark: a further accuracy, left out or
    None for none, and mark_text what it is; a row with "floor": True is a control so far below the
    others that it would leave them no room: it does not stretch the axis.
    """
    own = [at for at, row in enumerate(rows) if row.get("key") == "own"]
    others = [at for at, row in enumerate(rows) if row.get("key") != "own"]
    groups = {("own", 1): own, ("other", "rest" if own else 1): others}
    marked = [at for at, row in enumerate(rows) if row.get("mark") is not None]
    series = [
        {
            "key": key,
            "colour": colour,
            "x": [rows[at]["value"] for at in chosen],
            "y": chosen,
            "low": [rows[at]["interval"][0] for at in chosen],
            "high": [rows[at]["interval"][1] for at in chosen],
            "floor": [bool(rows[at].get("floor")) for at in chosen],
        }
        for (key, colour), chosen in groups.items()
        if chosen
    ]
    if marked:
        series.append(
            {
                "key": "mark",
                "colour": "rest",
                "x": [rows[at]["mark"] for at in marked],
                "y": marked,
                "look": ["tick"] * len(marked),
                "text": [rows[at]["mark_text"] for at in marked],
            }
        )
    texts = [
        {
            "name": row["name"],
            "note": row.get("note", ""),
            "text": row["text"],
            "small": row["interval_text"],
        }
        for row in rows
    ]
    return {
        "x": {"label": "", "scale": "linear", "percent": True},
        "y": {"label": "", "rows": texts},
        "series": series,
    }
