"""Pages are written where a user wants them, or one line says why not."""

import os

import pytest

from ladder.errors import UserError
from ladder.pages import output


def test_a_page_is_written_with_the_folders_above_it_and_replaces_another(tmp_path):
    for text in ("first", "second"):
        output.write(tmp_path / "new/folder/page.html", text)
        assert (tmp_path / "new/folder/page.html").read_text() == text
    assert os.listdir(tmp_path / "new/folder") == ["page.html"]


IMPOSSIBLE = [
    "folder",
    "file/page.html",
    "/proc/self",
    "/proc/page.html",
    "/proc/no/page.html",
    "/dev/full/page.html",
    ".",
    "/",
    "..",
    "a" * 300,
    "\n" * 300,
]


@pytest.mark.parametrize("path", IMPOSSIBLE)
def test_where_no_page_can_be_one_line_says_so_and_nothing_is_left(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="^cannot write .*: .") as fault:
        output.write(type(tmp_path)(path), "page")
    assert str(fault.value).isprintable()
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"] and not os.listdir(
        tmp_path / "folder"
    )
