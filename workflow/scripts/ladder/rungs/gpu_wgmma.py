"""A lesson for Hopper alone: one producer and one consumer, which meet at full and empty barriers
(mbarrier), and products by wgmma, for precision bfloat16.
"""

from ladder.rungs.gpu_mma import with_tile

RUNG = with_tile("gpu_wgmma")
