"""Removed; prints what to do instead."""

from ladder.workflow import removed

raise SystemExit(removed.instead("watch.py"))
