"""What a reader of a page sees of it."""

import re

from ladder.pages import templates


def text_of(page):
    """The text of an HTML page, without its style and scripts, white space folded."""
    page = re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page)).replace(templates.NARROW_SPACE, " ")
