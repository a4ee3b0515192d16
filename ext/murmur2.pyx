"""Kafka's murmur2 hash, and the choice of a partition by key (class `org.apache.kafka.common.utils.Utils`)."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer


def murmur2(data) -> int:
    """Return the 32-bit hash of a bytes-like object, as an unsigned number."""
    cdef Py_buffer held
    PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
    try:
        return murmur2_of(<const uint8_t *>held.buf, held.len)
    finally:
        PyBuffer_Release(&held)


def partition_of_key(key, int32_t partitions) -> int:
    """Return the partition of a record with this key; `partitions` counts all of them, even those without a leader."""
    cdef Py_buffer held
    if partitions < 1:
        raise ValueError(f"a topic cannot have {partitions} partitions")
    PyObject_GetBuffer(key, &held, PyBUF_SIMPLE)
    try:
        return partition_for(<const uint8_t *>held.buf, held.len, partitions)
    finally:
        PyBuffer_Release(&held)
