"""A lesson: gpu_mma with two stages of shared memory: one is copied (cp.async) while the other is
multiplied.
"""

from ladder.rungs.gpu_mma import with_tile

RUNG = with_tile("gpu_async")
