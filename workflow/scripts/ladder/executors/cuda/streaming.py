"""Images that stay on the host: gathered batch by batch into pinned memory and copied to the GPU
one batch ahead.
"""

import numpy as np

from ladder.executors.create import COPIES, WAITING


class HostBatchStream:
    """Images on the host, copied to the GPU batch by batch, one batch ahead.

    Kernels that read images receive the batch instead, with the identity permutation and zero
    counters; all other kernels receive the real ones, for labels and random numbers. The host
    tracks these: it fills them, and every step advances the offset by its batch.
    """

    def __init__(self, cupy, images, controls):
        self.images, self.shape = images, images.shape
        self.substitutes = ({}, {})  # per slot: buffer name -> array to pass instead
        self.bytes = 0
        self._cupy = cupy
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._order, self._capacity = np.array(controls["permutation"]), 0
        self._offset = int(controls["counters"][1]) if "counters" in controls else 0
        self._permutation = self._counters = None  # their arrays on the GPU
        self._slot = 0

    def reserve(self, batch, permutation, counters):
        """Allocate both slots for batches of this size; permutation, counters: the arrays on the
        GPU that the host tracks.
        """
        self._permutation, self._counters = permutation, counters
        if batch <= self._capacity:
            return
        if self._capacity:
            raise RuntimeError(
                "allocate the plan with the largest batch first: others are bound to its buffers"
            )
        cupy, shape = self._cupy, (batch, *self.images.shape[1:])
        self._capacity = batch
        self._pinned = [_pinned(shape, self.images.dtype) for _ in range(2)]
        identity = _on_device(cupy, np.arange(batch), self._stream)
        start = _on_device(cupy, np.zeros(3, np.int64), self._stream)
        self._device = [_on_device(cupy, pinned, self._stream) for pinned in self._pinned]
        self.substitutes = tuple(
            {"images": array, "permutation": identity, "counters": start} for array in self._device
        )
        self.bytes = sum(array.nbytes for array in (*self._device, identity, start))
        self._staged = [None, None]  # (offset, images) that a slot holds or is receiving
        # (begin, end) of the last copy
        self._copied = [(event, event) for event in (cupy.cuda.Event(), cupy.cuda.Event())]
        self._read = [cupy.cuda.Event(disable_timing=True) for _ in range(2)]

    def follow(self, array, values):
        """Record that the host has overwritten `array`."""
        if array is self._permutation:
            self._order, self._staged = values.copy(), [None, None]
        elif array is self._counters:
            self._offset = int(values[1])

    def take(self, batch, stream, measured):
        """(slot of the next batch, intervals); `stream` waits until the batch is copied.

        intervals, if measured: [(category, begin event, end event)] of the copy, and of the time
        that `stream` waits for it.
        """
        if self._staged[self._slot] != (self._offset, batch):
            self._stage(self._slot, self._offset, batch)
        begin, end = self._copied[self._slot]
        reached = stream.record(self._cupy.cuda.Event()) if measured else None
        stream.wait_event(end)
        if not measured:
            return self._slot, []
        return self._slot, [
            ((COPIES, COPIES), begin, end),
            ((WAITING, WAITING), reached, stream.record(self._cupy.cuda.Event())),
        ]

    def release(self, stream, batch):
        """Start copying the next batch; everything that reads the current one is on `stream`, or
        joined to it.
        """
        stream.record(self._read[self._slot])
        self._staged[self._slot] = None
        self._slot, self._offset = 1 - self._slot, self._offset + batch
        following = min(batch, len(self._order) - self._offset)
        if following > 0:
            self._stage(self._slot, self._offset, following)

    def _stage(self, slot, offset, count):
        self._copied[slot][1].synchronize()  # the previous copy may still read the pinned memory
        pinned = self._pinned[slot][:count]
        # "raise" would copy twice
        np.take(self.images, self._order[offset : offset + count], axis=0, out=pinned, mode="clip")
        self._stream.wait_event(self._read[slot])
        runtime, begin = self._cupy.cuda.runtime, self._stream.record(self._cupy.cuda.Event())
        runtime.memcpyAsync(
            self._device[slot].data.ptr,
            pinned.ctypes.data,
            pinned.nbytes,
            runtime.memcpyHostToDevice,
            self._stream.ptr,
        )
        self._copied[slot] = begin, self._stream.record(self._cupy.cuda.Event())
        self._staged[slot] = (offset, count)


def _on_device(cupy, values, stream):
    array = cupy.ndarray(
        values.shape,
        values.dtype,
        memptr=cupy.cuda.MemoryPointer(cupy.cuda.Memory(values.nbytes), 0),
    )
    array.set(values, stream=stream)
    stream.synchronize()
    return array


def _pinned(shape, dtype):
    import cupyx

    return cupyx.empty_pinned(shape, dtype)
