"""What mkdocs does otherwise here: a page's place in the site is its place in the repository, so
that a link holds in both; a file of source that a page names has a page too, and the name leads
there; formulas become MathML, which browsers draw without a script.
"""

import pathlib
import posixpath
import re

import jinja2
from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from pygments import highlight, lexers, util
from pygments.formatters import HtmlFormatter
from pymdownx.slugs import slugify

ROOT = pathlib.Path(__file__).parents[1]
ASSETS = (".png", ".svg", ".css", ".js")
SOURCES = (".cpp", ".cu", ".cuh", ".h", ".py", ".sh", ".smk", ".yaml", "/Makefile", "/Snakefile")
FOLDERS = ("", "workflow/scripts/")  # that names of files begin in
FENCE = re.compile(r"(^```.*?^```$)", re.M | re.S)
FORMULA = re.compile(r"^```math\n(.*?)\n```$", re.M | re.S)
NAME = re.compile(r"(?<!\[)`([\w./-]+)`(?!\])")
LINK = re.compile(r"\[([^\[\]]+)\]\(([^():#\s]+)(?:#L(\d+)[\d\-L]*)?\)")
LIGHT, DARK = HtmlFormatter(linespans="L", wrapcode=True), HtmlFormatter(style="github-dark")


def on_config(config):
    """Anchors as a forge makes them."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")


def on_files(files, config):
    """The theme's files, the pages of the navigation, the sources that they name, and the pictures,
    styles and scripts of docs/.
    """
    theme = [file for file in files if file.src_dir != config.docs_dir]
    named = pages(config.nav)
    assets = [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob("docs/**/*")
        if path.suffix in ASSETS
    ]
    own = [
        File(path, str(ROOT), config.site_dir, config.use_directory_urls)
        for path in [*named, *sorted(assets)]
    ]
    listings = [
        File.generated(config, f"{path}.html", content=source_page(path))
        for path in sorted(sources(page for page in named if page.endswith(".md")))
    ]
    return Files([*theme, *own, *listings])


def pages(nav):
    """The paths that the navigation, or a part of it, names."""
    if isinstance(nav, str):
        return [nav]
    return [
        path for part in (nav.values() if isinstance(nav, dict) else nav) for path in pages(part)
    ]


def sources(pages):
    """The paths of the files of source that these pages name or link to."""
    paths = set()
    for page in pages:
        for prose in FENCE.split((ROOT / page).read_text("utf-8"))[::2]:
            paths |= {source(name[1]) for name in NAME.finditer(prose)}
            paths |= {source(target(page, link)) for link in LINK.finditer(prose)}
    return paths - {None}


def source(name):
    """The path of the file of source that a page calls so; None if there is none."""
    paths = (f"{folder}{name}" for folder in FOLDERS)
    return next(
        (path for path in paths if f"/{path}".endswith(SOURCES) and (ROOT / path).is_file()), None
    )


def target(page, link):
    """The path that a link of a page leads to."""
    return posixpath.normpath(f"{page}/../{link[2]}")


def source_page(path):
    """The page of a file of source, with an anchor at each line."""
    text = (ROOT / path).read_text("utf-8")
    try:
        lexer = lexers.get_lexer_for_filename(path)
    except util.ClassNotFound:  # a Snakefile
        lexer = lexers.PythonLexer()
    template = jinja2.Template((ROOT / "docs/source.html").read_text("utf-8"))
    return template.render(
        path=path,
        code=highlight(text, lexer, LIGHT),
        light=LIGHT.get_style_defs(".highlight"),
        dark=DARK.get_style_defs(".highlight"),
        start=posixpath.relpath("index.html", posixpath.dirname(path)),
    )


def on_page_markdown(markdown, page, files, **_):
    """Names of sources and links to them lead to their pages; a link to another file that the site
    does not have becomes its text; TeX becomes MathML.
    """
    here = page.file.src_uri

    def to_source(path, text, line=None):
        address = posixpath.relpath(f"{path}.html", posixpath.dirname(here))
        return f"[{text}]({address}{f'#L-{line}' if line else ''})"

    def name(match):
        path = source(match[1])
        return to_source(path, match[0]) if path else match[0]

    def link(match):
        path = target(here, match)
        if path in files.src_uris or not (ROOT / path).is_file():
            return match[0]
        return to_source(path, match[1], match[3]) if source(path) else match[1]

    parts = FENCE.split(FORMULA.sub(lambda block: convert(block[1], display="block"), markdown))
    parts[::2] = [NAME.sub(name, LINK.sub(link, part)) for part in parts[::2]]
    return "".join(parts)


def on_post_page(output, **_):
    """The name of the search, which the theme does not say."""
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">')


on_post_template = on_post_page  # of the page of a server that finds none
