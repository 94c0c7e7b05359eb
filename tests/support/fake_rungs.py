"""measure_rungs.of_rung without work, for its process: a rung with a longer name is slower. Faults:
see fake_faults.py.
"""

import os

import fake_faults


def of_rung(params, rung, batch, threads):
    return {
        "passed": True,
        "step": 1 / int(rung[-1]) if rung[-1].isdecimal() else 10,
        "process": os.getpid(),
    }


globals().update(fake_faults.faulty({"of_rung": of_rung}))
