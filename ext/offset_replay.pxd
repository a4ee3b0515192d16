# Loads stored batches of __consumer_offsets into an OffsetTable, without Python objects for offsets. The GIL is taken
# only for records of other kinds, and to decompress.

cimport cython
from libc.stdint cimport int64_t

from kafkapy._ext.offset_table cimport OffsetTable
from kafkapy._ext.stored_records cimport Stored, StoredRecords

# Why a run over batches stopped.
cdef enum Pause:
    PAUSE_END = 0               # no complete batch follows
    PAUSE_FILL = 1              # the batch is compressed, and more of it is needed
    PAUSE_OTHER = 2             # the record is of another kind
    PAUSE_DAMAGE = 3            # the batch is invalid
    PAUSE_RECORD = 4            # the record does not belong into this topic
    PAUSE_MEMORY = 5

cdef enum:
    MARKER_ABORT = 0
    MARKER_COMMIT = 1


@cython.final
cdef class OffsetReplay:
    cdef OffsetTable _table
    cdef StoredRecords _walk
    cdef object _others             # called with (key, value) of each record of another kind
    cdef bint _in_batch             # True if records of the current batch are unread
    cdef readonly int64_t records   # read so far, of all kinds
    cdef readonly int64_t next_offset   # last offset of the last batch + 1; -1 at first

    cdef Pause _run(self) noexcept nogil
    cdef Pause _record(self) noexcept nogil
    cdef Pause _marker(self) noexcept nogil
