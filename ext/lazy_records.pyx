"""Iterates over the records of a batch of format 2, decoding each only when the caller asks for it."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.string cimport memset

from kafkapy._ext.batch cimport BatchHeader
from kafkapy._ext.records cimport STEP_DONE, RecordView, Step, begin_walk, explain, read_record, timestamp_of
from kafkapy._ext.records import CorruptRecords


@cython.final
cdef class LazyRecords:
    """An iterator of (offset, timestamp, key, value), from the decompressed payload of a batch.

    Raises CorruptRecords at an invalid record, and if the payload is not exactly `count` records.
    """

    def __cinit__(self, payload, BatchHeader header not None):
        memset(&self.walk, 0, sizeof(Walk))
        begin_walk(&self.walk, header)
        PyObject_GetBuffer(payload, &self.held, PyBUF_SIMPLE)
        self.holds = True
        self.base_offset = header.base_offset
        self.count = header.count
        self.at = <const uint8_t *>self.held.buf
        self.end = self.at + self.held.len

    def __dealloc__(self):
        if self.holds:
            PyBuffer_Release(&self.held)

    def __iter__(self):
        return self

    def __next__(self):
        cdef RecordView record
        cdef int64_t missing = 0
        cdef Step step
        if self.index >= self.count:
            if self.at != self.end:
                raise CorruptRecords(f"{self.end - self.at} bytes are left after the {self.count} records")
            raise StopIteration
        step = read_record(self.at, self.end, &record, &missing)
        if step != STEP_DONE:
            raise CorruptRecords(explain(step, self.index, missing))
        self.at = record.end
        self.index += 1
        return (
            self.base_offset + record.offset_delta,
            timestamp_of(&self.walk, &record),
            None if record.key == NULL else (<const char *>record.key)[:record.key_length],
            None if record.value == NULL else (<const char *>record.value)[:record.value_length],
        )
