import ast

import pytest

from ladder import sources


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of a few scripts: file name -> text."""
    scripts = tmp_path / "workflow/scripts"
    (scripts / "lib/inner").mkdir(parents=True)
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    monkeypatch.setattr(sources, "SCRIPTS", scripts)
    files = {
        "plain.py": "import json\nfrom lib import first\n",
        "lazy.py": "def work():\n    import lib.second\n",
        "lib/__init__.py": "",
        "lib/first.py": "from . import second\nfrom .inner import deep\n",
        "lib/second.py": "from .first import anything\nimport numpy\n",
        "lib/inner/__init__.py": "",
        "lib/inner/deep.py": "from ..third import x\n",
        "lib/third.py": "x = 1\n",
        "lib/unused.py": "",
    }
    for name, text in files.items():
        (scripts / name).write_text(text)
    return scripts


def names(project, script):
    return {path.removeprefix("workflow/scripts/") for path in sources.closure(project / script)}


EVERYTHING = {
    "lib/__init__.py",
    "lib/first.py",
    "lib/second.py",
    "lib/third.py",
    "lib/inner/__init__.py",
    "lib/inner/deep.py",
}


def test_modules_imported_by_modules_count_also_in_circles(project):
    assert names(project, "plain.py") == {"plain.py"} | EVERYTHING


def test_an_import_inside_a_function_counts(project):
    assert names(project, "lazy.py") == {"lazy.py"} | EVERYTHING


def test_a_module_that_nothing_imports_does_not_count(project):
    assert "lib/unused.py" not in names(project, "plain.py")


def test_the_libraries_are_the_modules_outside_the_project_that_the_files_import(
    project,
):
    paths = [f"workflow/scripts/{name}" for name in ("lazy.py", "lib/second.py", "lib/first.py")]
    assert sources.libraries([*paths, "kernels/a.cu"]) == {"lib", "numpy"}
    assert sources.libraries(paths[:1]) == {"lib"}


def test_the_neutral_files_exist():
    assert all((sources.ROOT / path).is_file() for path in sources.NEUTRAL)


def test_the_import_statements_are_those_that_the_parser_finds():
    programs = [*sources.SCRIPTS.rglob("*.py"), *(sources.ROOT / "tests").rglob("*.py")]
    assert len(programs) > 200
    for program in programs:
        text = program.read_text()
        parsed = [
            node
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        found = {ast.dump(node) for node in sources.import_statements(text)}
        assert found >= {ast.dump(node) for node in parsed}, program
        if program.is_relative_to(sources.SCRIPTS):
            assert len(found) == len({ast.dump(node) for node in parsed}), program
