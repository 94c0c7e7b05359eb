"""Several GPUs are shared out: each process gets a different one."""

import os
import subprocess
import sys
import tempfile

import pytest

from ladder import sources
from ladder.machine import driver, gpus

CODE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from ladder.machine import driver, gpus
driver.installed_gpus = lambda: int(sys.argv[2])
print(gpus.claim(), os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def start(tmp_path):
    """start(count, visible, order) starts a process on a machine with `count` GPUs; returns it and
    its output: the GPU, the visible ones, and the order in which CUDA numbers them."""
    running = []

    def start(count, visible=None, order=None):
        environment = {
            key: value for key, value in os.environ.items() if key not in (gpus.VISIBLE, gpus.ORDER)
        }
        environment |= {"TMPDIR": str(tmp_path)} | ({gpus.ORDER: order} if order else {})
        process = subprocess.Popen(
            [sys.executable, "-c", CODE, sources.SCRIPTS, str(count)],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment | ({gpus.VISIBLE: visible} if visible else {}),
        )
        running.append(process)
        return process, process.stdout.readline().split()

    yield start
    for process in running:
        process.communicate()


def test_each_process_holds_its_own_gpu_until_it_ends(start):
    first, found = start(2)
    assert found == ["0", "0", "PCI_BUS_ID"]
    assert start(2)[1] == ["1", "1", "PCI_BUS_ID"]
    assert start(2)[1] == ["None", "None", "None"], "a third one is not refused: it sees them all"
    first.communicate()
    assert start(2)[1] == ["0", "0", "PCI_BUS_ID"]


def test_only_gpus_that_the_process_may_use_are_claimed(start):
    assert start(8, "5,7")[1][:2] == ["5", "5"] and start(8, "5,7")[1][:2] == ["7", "7"]


OLD_MIG = "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/"


@pytest.mark.parametrize(
    "names", [(OLD_MIG + "0", OLD_MIG + "1"), ("../../gone/a", ".."), ("x" * 1000, "y" * 1000)]
)
def test_every_name_of_a_gpu_has_a_lock_of_its_own_in_one_folder(start, tmp_path, names):
    assert [start(2, ",".join(names))[1][0] for _ in range(2)] == list(names)
    assert (
        len(list(tmp_path.glob("kernel-ladder-*/*.lock"))) == 2
        and len(list(tmp_path.iterdir())) == 1
    )


def folder_of(tmp_path):
    return tmp_path / f"kernel-ladder-{os.getuid()}"


def a_link_in_place_of_a_lock(tmp_path):
    folder_of(tmp_path).mkdir(mode=0o700)
    (folder_of(tmp_path) / "0.lock").symlink_to(tmp_path / "letter.txt")


def a_link_in_place_of_the_folder(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/0.lock").symlink_to(tmp_path / "letter.txt")
    folder_of(tmp_path).symlink_to(tmp_path / "elsewhere")


def a_folder_that_others_write_into(tmp_path):
    folder_of(tmp_path).mkdir()
    folder_of(tmp_path).chmod(0o777)
    (folder_of(tmp_path) / "0.lock").symlink_to(tmp_path / "letter.txt")


def a_file_in_place_of_the_folder(tmp_path):
    folder_of(tmp_path).write_text("")


@pytest.mark.parametrize(
    "trap",
    [
        a_link_in_place_of_a_lock,
        a_link_in_place_of_the_folder,
        a_folder_that_others_write_into,
        a_file_in_place_of_the_folder,
    ],
)
def test_a_lock_writes_into_no_file_of_another_name_and_warns(monkeypatch, tmp_path, caplog, trap):
    (tmp_path / "letter.txt").write_text("Dear Ada")
    trap(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv(gpus.VISIBLE, "0,1")
    assert gpus.claim() is None and os.environ[gpus.VISIBLE] == "0,1"
    assert (tmp_path / "letter.txt").read_text() == "Dear Ada"
    assert (
        f"{folder_of(tmp_path)} is no folder for their locks" in caplog.text
        and "move it away" in caplog.text
    )


@pytest.mark.parametrize("order", [None, "FASTEST_FIRST", "PCI_BUS_ID"])
def test_numbers_that_the_user_wrote_keep_the_users_order(start, order):
    assert start(8, "5,7", order)[1] == ["5", "5", str(order)]


@pytest.mark.parametrize(
    "count, visible, shown", [(0, None, "None"), (1, None, "None"), (4, "3", "3")]
)
def test_without_a_choice_nothing_is_changed(start, count, visible, shown):
    assert start(count, visible)[1] == ["None", shown, "None"]


def test_gpus_are_counted_by_the_driver(monkeypatch):
    class Management:
        def nvmlDeviceGetCount_v2(self, count):
            count._obj.value = 3
            return 0

    monkeypatch.setattr(driver, "_management", Management)
    assert driver.installed_gpus() == 3
    monkeypatch.setattr(driver, "_management", lambda: None)
    assert driver.installed_gpus() == 0
