"""Pages are written where a user wants them, or one line says why not."""

import os
import subprocess
import sys

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


@pytest.mark.parametrize("name", ["line\nbreak.html", os.fsdecode(b"latin-1-\xe9.html")])
def test_an_odd_name_is_written_and_shown_in_one_line(tmp_path, name):
    page = tmp_path / name
    done = subprocess.run(
        [
            sys.executable,
            "workflow/scripts/tools/make_history.py",
            "--results",
            tmp_path,
            "--output",
            page,
        ],
        capture_output=True,
    )
    assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (0, b"", 1)
    assert os.listdir(tmp_path) == [name]


def test_history_and_diff_say_it_in_one_line(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "workflow/scripts/tools/make_history.py",
            "--results",
            "/proc",
            "--output",
            tmp_path,
        ],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        f"cannot write {tmp_path}: Is a directory\n",
    )
