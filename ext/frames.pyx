"""Splits received bytes into frames: a size of four bytes, big-endian, then that many bytes.

In C because this is done for every request; the rest of receiving is done once for many requests.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_Check
from libc.stdint cimport int32_t, uint8_t

from kafkapy._ext.cursor cimport load32


class BadFrameSize(ValueError):
    """The size before a frame is negative or above the limit; `size` is that size."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a frame of {size} bytes, which is " + (
            "negative" if size < 0 else f"above the limit of {limit}"
        ))
        self.size = size
        self.limit = limit


def split(view not None, Py_ssize_t start, Py_ssize_t end, Py_ssize_t most, int32_t limit):
    """Split view[start:end] (a memoryview of bytes) into at most `most` frames of at most `limit` bytes each.

    Return (frames, position, needed): the frames without their sizes, as slices of `view`; the position after the last
    frame; and how many bytes the next frame has with its size, or 0 if the size has not arrived yet. An invalid size
    raises BadFrameSize if it is the first; after valid frames, `needed` is -1 instead, so that these are answered
    before the connection is closed.
    """
    cdef Py_buffer held
    cdef const uint8_t *data
    cdef Py_ssize_t position = start, needed = 0
    cdef int32_t size
    cdef list frames = []
    if not PyMemoryView_Check(view):
        raise TypeError("split needs a memoryview")
    PyObject_GetBuffer(view, &held, PyBUF_SIMPLE)
    try:
        if start < 0 or end > held.len or start > end:
            raise ValueError(f"{start}:{end} is not in a buffer of {held.len} bytes")
        data = <const uint8_t *>held.buf
        while end - position >= 4:
            size = <int32_t>load32(data + position)
            if size < 0 or size > limit:
                if not frames:
                    raise BadFrameSize(size, limit)
                needed = -1
                break
            if size > end - position - 4 or len(frames) >= most:
                needed = 4 + <Py_ssize_t>size
                break
            frames.append(view[position + 4:position + 4 + size])
            position += 4 + size
    finally:
        PyBuffer_Release(&held)
    return frames, position, needed
