"""A slice of the campaign of kills: the operations of two stages, and commands that are killed
beside others and in a row.
"""

import random
import shutil
import sys

import pytest

import kill
import killed_project as kp

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("gcc"), reason="counts operations by LD_PRELOAD"
)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """(project, counter) of the two stages that are the quickest."""
    folder = tmp_path_factory.mktemp("kills")
    return kp.Project(folder, {"normalized": ("normalized", *kp.TINY)}), kp.Counter(folder)


def test_a_stage_killed_at_any_operation_is_finished_by_the_next_run(campaign):
    project, counter = campaign
    with kill.Stage(
        project, counter, next(made for made in project.stages if "/normalized/" in made)
    ) as stage:
        count = stage.operations()
        assert count > 25
        # the manifests, and what is removed before the last
        last = [kill.Kill(at) for at in range(count - 8, count + 1)]
        for one in (
            *last,
            kill.Kill(3, "INT"),
            kill.Kill(count // 2, "TERM"),
            kill.Kill(count // 3, torn=True),
        ):
            facts = stage.kill([one])
            assert facts["faults"] == [] and facts["struck"] != [""], (str(one), facts)
        assert stage.kill([kill.Kill(7), kill.Kill(12, "INT")])["faults"] == []


def test_a_fault_is_found(campaign):
    project, _ = campaign
    made = next(iter(project.stages))
    (project.folder / made / ".x.tmp").touch()
    (project.folder / "logs/.errors.host.1").touch()
    assert project.faults() == [f"{made}/.x.tmp is left", "logs/.errors.host.1 is left"]
    project.restore()
    assert project.faults() == []


def test_a_command_killed_at_any_moment_is_finished_by_the_next_and_leaves_nothing(campaign):
    project, counter = campaign
    with kill.Chain(project, counter) as chain:
        what, facts = chain.kill(random.Random(1))
        assert facts["faults"] == [], what
