"""The text of a page as its reader sees it."""

import html
import re

from ladder.pages import templates

INLINE = r"</?(?:a|b|code|em|small|span|strong)\b[^>]*>"


def text_of(page):
    """The text of an HTML page without styles, scripts and tags, white space folded."""
    page = re.sub(r"<(style|script)\b[^>]*>.*?</\1>", "", page, flags=re.S)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", page))).replace(
        templates.NARROW_SPACE, " "
    )


def joined_sentences(page):
    """Ends of sentences without a blank before the next one: a template drops the newline after a
    block.
    """
    page = re.sub(r"<(style|script)\b[^>]*>.*?</\1>", "", page, flags=re.S)
    return re.findall(
        r"\S*[a-z%)][.:;,][A-Z]\S*", re.sub(r"<[^>]+>", "\n", re.sub(INLINE, "", page))
    )


def addresses(page):
    """The addresses that a page names, without data and places within it, and without the bar of
    pages that all have.
    """
    found = [one or two for one, two in re.findall(r'(?:src|href)="([^"]*)"|url\(([^)]*)\)', page)]
    return [
        address
        for address in found
        if not address.startswith(("data:", "#")) and "runs.html" not in address
    ]
