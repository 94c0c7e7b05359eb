"""python -m cuda_emulator: the command cuda-emulator."""

import sys

from cuda_emulator import command

sys.exit(command.main())
