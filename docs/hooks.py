"""What mkdocs does otherwise here: a page's place in the site is its place in the repository, so
that a link holds in both, and formulas become MathML, which browsers draw without a script.
"""

import pathlib
import posixpath
import re

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from pymdownx.slugs import slugify

ROOT = pathlib.Path(__file__).parents[1]
FORMULA = re.compile(r"^```math\n(.*?)\n```$", re.M | re.S)
LINK = re.compile(r"\[([^\[\]]+)\]\(([^():#\s]+)(?:#L[\d\-L]+)?\)")


def on_config(config):
    """Anchors as a forge makes them."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")


def on_files(files, config):
    """The theme's files, the pages of the navigation, and the pictures, styles and scripts of
    docs/.
    """
    theme = [file for file in files if file.src_dir != config.docs_dir]
    assets = [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob("docs/**/*")
        if path.suffix in (".png", ".svg", ".css", ".js")
    ]
    return Files(
        [
            *theme,
            *(
                File(path, str(ROOT), config.site_dir, config.use_directory_urls)
                for path in [*pages(config.nav), *sorted(assets)]
            ),
        ]
    )


def pages(nav):
    """The paths that the navigation, or a part of it, names."""
    if isinstance(nav, str):
        return [nav]
    return [
        path for part in (nav.values() if isinstance(nav, dict) else nav) for path in pages(part)
    ]


def on_page_markdown(markdown, page, files, **_):
    """A link to a file that the site does not have, such as a kernel, becomes its text; TeX becomes
    MathML.
    """

    def text(link):
        path = posixpath.normpath(f"{page.file.src_uri}/../{link[2]}")
        return link[1] if path not in files.src_uris and (ROOT / path).is_file() else link[0]

    formulas = FORMULA.sub(lambda block: convert(block[1], display="block"), markdown)
    return LINK.sub(text, formulas)


def on_post_page(output, **_):
    """The name of the search, which the theme does not say."""
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">')
