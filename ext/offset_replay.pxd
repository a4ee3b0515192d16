# Stored batches of __consumer_offsets into an OffsetTable, without a Python object for an offset and without the
# interpreter's lock: it is taken only for records of other kinds, and to decompress.

cimport cython
from libc.stdint cimport int64_t

from kafkapy._ext.offset_table cimport OffsetTable
from kafkapy._ext.stored_records cimport Stored, StoredRecords

# Why a run over batches stopped.
cdef enum Pause:
    PAUSE_END = 0               # nothing whole follows
    PAUSE_FILL = 1              # the batch is compressed and more of it is needed
    PAUSE_OTHER = 2             # the record is of another kind
    PAUSE_DAMAGE = 3            # the batch is none
    PAUSE_RECORD = 4            # the record is none of this topic's
    PAUSE_MEMORY = 5

cdef enum:
    MARKER_ABORT = 0
    MARKER_COMMIT = 1


@cython.final
cdef class OffsetReplay:
    cdef OffsetTable _table
    cdef StoredRecords _walk
    cdef object _others             # called with (key, value) of each record of another kind
    cdef bint _in_batch             # records of the walk's batch are still to be read
    cdef readonly int64_t records   # read so far, also those of other kinds
    cdef readonly int64_t next_offset   # behind the last batch; -1 at the beginning

    cdef Pause _run(self) noexcept nogil
    cdef Pause _record(self) noexcept nogil
    cdef Pause _marker(self) noexcept nogil
