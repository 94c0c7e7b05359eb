"""Arrays of many GB of zeros that take memory only where something is written to them."""

import mmap

import numpy as np

MAP_NORESERVE = 0x4000  # not in Python's mmap before 3.13
# bytes on either side of an array: what an index of 32 bits that overflowed reaches, too
BEYOND = 9 << 30


def zeros(shape, dtype):
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = mmap.mmap(
        -1, size + 2 * BEYOND, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    )
    return np.frombuffer(memory, np.uint8)[BEYOND : BEYOND + size].view(dtype).reshape(shape)
