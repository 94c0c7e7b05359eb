"""`import ladder` where Kernel Ladder is installed: the library lies beside the scripts that rules
call, in kernel_ladder/.
"""

import importlib.util
import pathlib
import sys

INIT = pathlib.Path(__file__).with_name("kernel_ladder") / "workflow/scripts/ladder/__init__.py"

spec = importlib.util.spec_from_file_location("ladder", INIT)
sys.modules["ladder"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["ladder"])
