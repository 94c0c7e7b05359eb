"""A check before the first use without a GPU, for the process of store/first_use.py: it does what
$FAULTS says.

$FAULTS: a JSON object {name: kind}, where the name is the check's first argument. wrong: other
numbers; hang, die: see fake_faults.py; segfault: the process is killed by that signal; memory: out
of GPU memory; another text is raised. Each call adds its name to the file $CALLS.
"""

import json
import os
import signal

import fake_faults


def check(name, *arguments):
    with open(os.environ["CALLS"], "a") as calls:
        print(name, file=calls)
    kind = json.loads(os.environ.get("FAULTS", "{}")).get(name)
    if kind == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "memory":
        return {"passed": False, "fault": f"{name}: out of memory", "passing": True, "summary": ""}
    if kind == "wrong":
        return {
            "passed": False,
            "fault": f"{name} computes other numbers: enc2.weight deviates by 3.1e-01",
            "passing": False,
            "report": True,
            "summary": "",
        }
    if kind:
        fake_faults.fail(kind)
    return {"passed": True, "fault": "", "passing": False, "summary": "sgd 1.9e-07 in a.bias"}
