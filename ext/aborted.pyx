"""Recognizes the batches of aborted transactions; see aborted.pxd."""

cimport cython
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.string cimport memset

from kafkapy._ext.int_map cimport int_map_free, int_map_get, int_map_put, int_map_remove


@cython.final
cdef class AbortedTransactions:
    """The aborted transactions as (producer id, first offset) pairs, from a Fetch response or .txnindex files."""

    def __cinit__(self, pairs=()) -> None:
        cdef Py_ssize_t i
        memset(&self._active, 0, sizeof(IntMap))
        self._known = NULL
        self._count = self._next = 0
        self.failed = False
        ordered = sorted((first, producer) for producer, first in pairs)
        if not ordered:
            return
        self._known = <Aborted *>PyMem_RawMalloc(len(ordered) * sizeof(Aborted))
        if self._known == NULL:
            raise MemoryError
        for i, (first, producer) in enumerate(ordered):
            self._known[i].first_offset = first
            self._known[i].producer_id = producer
        self._count = len(ordered)

    def __dealloc__(self) -> None:
        PyMem_RawFree(self._known)
        int_map_free(&self._active)

    cdef bint drops(self, const StoredBatch *batch) noexcept nogil:
        while self._next < self._count and self._known[self._next].first_offset <= batch.last_offset:
            if not int_map_put(&self._active, self._known[self._next].producer_id, 0):
                self.failed = True
            self._next += 1
        return (
            batch.transactional
            and not batch.control
            and self._active.count != 0
            and int_map_get(&self._active, batch.producer_id) >= 0
        )

    cdef void ended(self, int64_t producer_id) noexcept nogil:
        int_map_remove(&self._active, producer_id)
