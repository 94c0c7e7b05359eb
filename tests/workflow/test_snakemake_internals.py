"""Undocumented parts of Snakemake that workflow/rules/common.smk reads; a failing test names the part that a release changed.

No documented feature tells a Snakefile which targets and rules the command line names; see `Command` in common.smk.
"""

import ast
import subprocess
import sys

import pytest

# The expressions of common.smk, evaluated like there in an input function.
SNAKEFILE = """
import atexit

atexit.register(lambda: print("ended", workflow.is_main_process, workflow.scheduler is None, workflow.dryrun, workflow.touch))

def look(wildcards):
    print("seen", sorted(map(str, workflow.dag_settings.targets or [])), sorted(map(str, workflow.dag_settings.forcerun)),
          bool(workflow.dag_settings.forcetargets), bool(workflow.dag_settings.forceall),
          workflow.resource_settings.nodes, workflow.cores, workflow.dryrun,
          dict(workflow.config_settings.overwrite_config), list(map(str, workflow.config_settings.configfiles)), sep="|")
    return []

rule page:
    input:
        look,
    output:
        "page.html",
    shell:
        "touch {output}"

rule other:
    output:
        "other.html",
    shell:
        "touch {output}"
"""
NAMES = ("dag_settings.targets", "dag_settings.forcerun", "dag_settings.forcetargets", "dag_settings.forceall",
         "resource_settings.nodes", "cores", "dryrun", "config_settings.overwrite_config", "config_settings.configfiles")


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """The values that an input function of a small workflow reads with this command line: name -> value."""
    folder = tmp_path_factory.mktemp("workflow")
    (folder / "Snakefile").write_text(SNAKEFILE)

    def seen(*arguments):
        done = subprocess.run([sys.executable, "-m", "snakemake", "-n", "--cores", "3", *arguments], cwd=folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        lines = [line for line in done.stdout.splitlines() if line.startswith("seen|")]
        assert lines, f"an input function could not read {', '.join(NAMES)}:\n{done.stdout}"
        return dict(zip(NAMES, map(ast.literal_eval, lines[-1].split("|")[1:]), strict=True))

    return seen


def test_targets_of_the_command_line_are_in_dag_settings_targets(seen):
    assert seen("page.html")["dag_settings.targets"] == ["page.html"]


def test_rules_after_R_are_in_dag_settings_forcerun(seen):
    assert seen("page.html", "-R", "page")["dag_settings.forcerun"] == ["page"]


def test_f_sets_dag_settings_forcetargets_and_F_forceall(seen):
    values = seen("-f", "page")
    assert values["dag_settings.forcetargets"] and not values["dag_settings.forceall"]
    assert values["dag_settings.targets"] == ["page"]
    assert seen("-F", "page")["dag_settings.forceall"]


def test_cores_are_in_workflow_cores_and_nodes_are_none_on_this_machine(seen):
    values = seen("page.html")
    assert values["cores"] == 3 and values["resource_settings.nodes"] is None


def test_a_dry_run_is_in_workflow_dryrun(seen):
    assert seen("page.html")["dryrun"] is True


def test_what_overrides_the_configuration_is_in_config_settings(seen, tmp_path):
    (tmp_path / "overrides.yaml").write_text("here: {}")
    values = seen("page.html", "--configfile", str(tmp_path / "overrides.yaml"), "--config", "there={}")
    assert values["config_settings.overwrite_config"] == {"here": {}, "there": {}}
    assert values["config_settings.configfiles"] == [str(tmp_path / "overrides.yaml")]


def test_jobs_of_a_cluster_are_counted_in_resource_settings_nodes():
    from snakemake.settings.types import ResourceSettings

    assert ResourceSettings(nodes=5).nodes == 5


@pytest.mark.parametrize("arguments, ended", [
    (["page.html"], "ended True False False False"), (["page.html", "-n"], "ended True False True False"),
    (["page.html", "--touch"], "ended True False False True"), (["--list"], "ended True True False False"),
    (["--summary"], "ended True True False False")])
def test_at_the_end_the_workflow_tells_whether_it_ran_jobs(seen, tmp_path, arguments, ended):
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "page.html").touch()
    for _ in range(2):   # the second time there is nothing to be done
        done = subprocess.run([sys.executable, "-m", "snakemake", "--cores", "1", *arguments], cwd=tmp_path, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.stdout.splitlines()[-1] == ended, done.stdout
