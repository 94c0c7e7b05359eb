"""Several GPUs are shared out: each process gets a different one."""

import os
import subprocess
import sys

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
    """start(count, visible, order) starts a process on a machine with `count` GPUs; returns it and its output: the GPU, the
    visible ones, and the order in which CUDA numbers them."""
    running = []

    def start(count, visible=None, order=None):
        environment = {key: value for key, value in os.environ.items() if key not in (gpus.VISIBLE, gpus.ORDER)}
        environment |= {"TMPDIR": str(tmp_path)} | ({gpus.ORDER: order} if order else {})
        process = subprocess.Popen([sys.executable, "-c", CODE, sources.SCRIPTS, str(count)], text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, env=environment | ({gpus.VISIBLE: visible} if visible else {}))
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


@pytest.mark.parametrize("order", [None, "FASTEST_FIRST", "PCI_BUS_ID"])
def test_numbers_that_the_user_wrote_keep_the_users_order(start, order):
    assert start(8, "5,7", order)[1] == ["5", "5", str(order)]


@pytest.mark.parametrize("count, visible, shown", [(0, None, "None"), (1, None, "None"), (4, "3", "3")])
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
