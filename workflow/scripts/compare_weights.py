"""Removed; prints what to do instead."""

import sys

from ladder.workflow import removed

sys.exit(removed.instead("compare_weights.py"))
