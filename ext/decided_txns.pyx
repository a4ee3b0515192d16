"""Which transactional batches and markers the cleaner may remove; see decided_txns.pxd."""

cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport uint64_t

cdef enum:
    FIRST_PLACES = 64


@cython.final
cdef class DecidedTransactions:
    """The transactions of the part of a log that is read.

    aborted: (producer id, first offset, last offset, last stable offset) of each aborted transaction that ends in this
    part or after it, as transaction indexes have them. Transactions that ended before must not be among them: later
    batches of the same producer would be taken for theirs.
    """

    def __cinit__(self, aborted=()):
        cdef Py_ssize_t i
        self._entries = sorted(aborted, key=lambda entry: entry[1])
        self._count = len(self._entries)
        self._places = FIRST_PLACES
        self._table = <Standing *>PyMem_RawCalloc(self._places, sizeof(Standing))
        self._first_offsets = <int64_t *>PyMem_RawMalloc((self._count + 1) * sizeof(int64_t))
        self._producer_ids = <int64_t *>PyMem_RawMalloc((self._count + 1) * sizeof(int64_t))
        self._retained = <int32_t *>PyMem_RawMalloc((self._count + 1) * sizeof(int32_t))
        if not (self._table and self._first_offsets and self._producer_ids and self._retained):
            raise MemoryError("no memory for the aborted transactions")
        for i in range(self._count):
            entry = self._entries[i]
            self._producer_ids[i] = entry[0]
            self._first_offsets[i] = entry[1]

    def __dealloc__(self):
        PyMem_RawFree(self._table)
        PyMem_RawFree(self._first_offsets)
        PyMem_RawFree(self._producer_ids)
        PyMem_RawFree(self._retained)

    cdef Standing *_standing(self, int64_t producer_id) noexcept nogil:
        """Return the state of a producer, a new one if necessary; NULL if there is no memory."""
        cdef uint64_t mask = self._places - 1
        cdef uint64_t place = (<uint64_t>producer_id * <uint64_t>0x9E3779B97F4A7C15 >> 32) & mask
        cdef Standing *found = &self._table[place]
        while found.used:
            if found.producer_id == producer_id:
                return found
            place = (place + 1) & mask
            found = &self._table[place]
        if self._taken * 2 >= self._places:
            return self._standing(producer_id) if self._grow() else NULL
        self._taken += 1
        found.used = True
        found.producer_id = producer_id
        found.aborted = -1
        found.seen = False
        found.committed = False
        return found

    cdef bint _grow(self) noexcept nogil:
        cdef Py_ssize_t i, places = self._places, new_places = places * 2
        cdef Standing *old = self._table
        cdef Standing *table = <Standing *>PyMem_RawCalloc(new_places, sizeof(Standing))
        if table == NULL:
            self.out_of_memory = True
            return False
        self._table = table
        self._places = new_places
        self._taken = 0
        for i in range(places):
            if old[i].used:
                self._standing(old[i].producer_id)[0] = old[i]
        PyMem_RawFree(old)
        return True

    cdef void _begun_up_to(self, int64_t offset) noexcept nogil:
        cdef Standing *standing
        while self._next < self._count and self._first_offsets[self._next] <= offset:
            standing = self._standing(self._producer_ids[self._next])
            if standing != NULL and standing.aborted < 0:
                standing.aborted = <int32_t>self._next
                standing.seen = False
            self._next += 1

    cdef bint batch_read(self, int64_t producer_id, bint transactional, int64_t last_offset) noexcept nogil:
        cdef Standing *standing
        self._begun_up_to(last_offset)
        if not transactional:
            return False
        standing = self._standing(producer_id)
        if standing == NULL:
            return False
        if standing.aborted >= 0:
            standing.seen = True
            return True
        standing.committed = True
        return False

    cdef bint marker_read(self, int64_t producer_id, int16_t kind, int64_t last_offset) noexcept nogil:
        cdef Standing *standing
        cdef bint needed
        self._begun_up_to(last_offset)
        if kind == EMPTY_MARKER:
            return True
        if kind != ABORT_MARKER and kind != COMMIT_MARKER:
            return False
        standing = self._standing(producer_id)
        if standing == NULL:
            return False
        if kind == COMMIT_MARKER:
            needed = standing.committed
            standing.committed = False
            return not needed
        needed = standing.aborted >= 0 and standing.seen
        if needed:
            self._retained[self._retained_count] = standing.aborted
            self._retained_count += 1
        standing.aborted = -1
        return not needed

    def take_retained(self) -> list:
        """Return the aborted transactions whose markers were kept since the last call, in the order of the markers.

        The transaction index of the cleaned segment has to contain them.
        """
        cdef Py_ssize_t i
        retained = [self._entries[self._retained[i]] for i in range(self._retained_count)]
        self._retained_count = 0
        return retained

    # --- one batch at a time; used only by tests

    def batch(self, int64_t producer_id, bint transactional, int64_t last_offset) -> bool:
        """Return True if the batch belongs to an aborted transaction."""
        return self.batch_read(producer_id, transactional, last_offset)

    def marker(self, int64_t producer_id, int16_t kind, int64_t last_offset) -> bool:
        """Return True if no remaining record needs the marker (kind 0 abort, 1 commit, -1 empty)."""
        return self.marker_read(producer_id, kind, last_offset)
