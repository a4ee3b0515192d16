"""Finds the aborted and the open transactions of a partition, from the headers of its batches and its markers.

For an intact log, .txnindex files and producer snapshots have the same information. This also works for segments that
were copied without these files, or whose index is damaged.
"""

cimport cython
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport uint64_t
from libc.string cimport memset

from kafkapy._ext.cursor cimport load16
from kafkapy._ext.int_map cimport int_map_free, int_map_get, int_map_put, int_map_remove
from kafkapy._ext.stored_records cimport STORED_BATCH, STORED_DAMAGE, STORED_MORE, STORED_RECORD, Stored, StoredRecords

cdef enum:
    ABORT = 0
    COMMIT = 1


@cython.final
cdef class TransactionScan:
    """Finds transactions in the batches of a partition, which are fed to it in order. Does not check CRCs.

    decompress: as in ColumnBuilder; needed only for compressed control batches, which Kafka does not write.
    began: producer id -> first offset of each transaction that is open before the first batch.
    """

    def __cinit__(self, decompress, began=()) -> None:
        memset(&self._open, 0, sizeof(IntMap))
        self._aborted = NULL
        self._count = self._room = 0
        self._no_memory = False
        self._walk = StoredRecords.__new__(StoredRecords, decompress, False)
        for producer_id, first_offset in dict(began).items():
            if not int_map_put(&self._open, producer_id, first_offset):
                raise MemoryError

    def __dealloc__(self) -> None:
        int_map_free(&self._open)
        PyMem_RawFree(self._aborted)

    def feed(self, buffer, Py_ssize_t position=0) -> int:
        """Read the complete batches of a buffer; return the end of the last one. Raises DamagedBatch."""
        cdef Stored found
        self._in_marker = False
        self._walk.open(buffer, position)
        try:
            while True:
                with nogil:
                    found = self._run()
                if self._no_memory:
                    raise MemoryError
                if found == STORED_DAMAGE:
                    raise self._walk.damage()
                if found != STORED_MORE:
                    return self._walk.position
                self._walk.fill()
        finally:
            self._walk.close()

    cdef Stored _run(self) noexcept nogil:
        cdef Stored found
        while True:
            if self._in_marker:
                found = self._walk.next_record()
                if found == STORED_MORE or found == STORED_DAMAGE:
                    return found
                self._in_marker = False
                if found == STORED_RECORD and not self._marker():
                    self._no_memory = True
                    return STORED_DAMAGE
            found = self._walk.next_batch()
            if found != STORED_BATCH:
                return found
            # A batch without a producer id is in no transaction, even with the transactional bit: no marker could end
            # that transaction. Brokers store such a batch, and their last stable offset does not stop at it.
            if not self._walk.batch.transactional or self._walk.batch.producer_id < 0:
                continue
            if self._walk.batch.control:
                self._in_marker = True
            elif int_map_get(&self._open, self._walk.batch.producer_id) < 0 and self._walk.batch.base_offset >= 0:
                if not int_map_put(&self._open, self._walk.batch.producer_id, self._walk.batch.base_offset):
                    self._no_memory = True
                    return STORED_DAMAGE

    cdef bint _marker(self) noexcept nogil:
        """End the transaction of the marker's producer; return False if there is no memory."""
        cdef int64_t producer = self._walk.batch.producer_id
        cdef int64_t first = int_map_get(&self._open, producer)
        cdef int kind = load16(self._walk.record.key + 2) if self._walk.record.key_length >= 4 else -1
        cdef Ended *grown
        if first < 0 or (kind != ABORT and kind != COMMIT):
            return True
        int_map_remove(&self._open, producer)
        if kind == COMMIT:
            return True
        if self._count == self._room:
            self._room = self._room * 2 if self._room else 64
            grown = <Ended *>PyMem_RawRealloc(self._aborted, self._room * sizeof(Ended))
            if grown == NULL:
                return False
            self._aborted = grown
        self._aborted[self._count].producer_id = producer
        self._aborted[self._count].first_offset = first
        self._aborted[self._count].last_offset = self._walk.offset
        self._count += 1
        return True

    def aborted(self) -> list[tuple[int, int, int]]:
        """Return (producer id, first offset, offset of the abort marker), in the order of the markers."""
        return [
            (self._aborted[i].producer_id, self._aborted[i].first_offset, self._aborted[i].last_offset)
            for i in range(self._count)
        ]

    def open(self) -> dict[int, int]:
        """Return producer id -> first offset of each transaction that has not ended."""
        cdef uint64_t i
        found = {}
        if self._open.slots != NULL:
            for i in range(self._open.mask + 1):
                if self._open.slots[i].value >= 0:
                    found[self._open.slots[i].key] = self._open.slots[i].value
        return found
