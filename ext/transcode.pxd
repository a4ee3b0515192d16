# Records on their way from one message format to another: read from any of the three, written to any, in plain memory
# and without a Python object for any of them.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkapy._ext.legacy cimport Found
from kafkapy._ext.message_sets cimport InnerSet, SetFault
from kafkapy._ext.records cimport Step, Walk

# Where records are read from.
cdef enum SourceKind:
    SOURCE_BATCH                # the decompressed records of a batch of format 2
    SOURCE_MESSAGES             # single messages of format 0 or 1, one after the other
    SOURCE_WRAPPER              # the decompressed message set of a wrapper

ctypedef struct Item:
    int64_t offset
    int64_t timestamp           # as a consumer gets it; -1: none
    const uint8_t *key          # NULL: null
    const uint8_t *value        # NULL: null
    int32_t key_length          # 0 when null
    int32_t value_length        # 0 when null
    int32_t header_count

ctypedef struct Source:
    SourceKind kind
    const uint8_t *at           # the next record
    const uint8_t *end
    int32_t index               # records read so far
    int64_t base_offset         # of a batch
    Walk walk                   # of a batch: its count and timestamps
    InnerSet inner              # of a wrapper
    # Why `next_item` gave no record:
    Step step                   # of a batch
    SetFault set_fault          # of a wrapper
    Found found                 # of messages
    int64_t missing

cdef enum Next:
    NEXT_ITEM
    NEXT_END
    NEXT_FAULT

cdef Next next_item(Source *source, Item *item) noexcept nogil

# How the offsets of written messages follow from those that were read.
cdef enum Offsets:
    OFFSETS_KEPT = 0            # as they are
    OFFSETS_RELATIVE = 1        # counted from the first record's: inside of wrappers of format 1
    OFFSETS_NUMBERED = 2        # 0, 1, 2, ...

# What is to be written.
ctypedef struct Target:
    int magic
    Offsets offsets
    int64_t first_offset        # records before it are left out
    bint append_time            # every record gets `append_timestamp`
    int64_t append_timestamp

# What a pass over all records comes to.
ctypedef struct Tally:
    int64_t size                # bytes written, or to be written
    int64_t largest             # of them the most that one record has
    int64_t base_timestamp      # the first record's; -1: no record
    int64_t max_timestamp       # at least -1, and that in format 0
    int64_t first_offset        # as read, of the first and the last record that was not left out
    int64_t last_offset
    int32_t index_of_max        # the first record that has max_timestamp; -1: none
    int32_t count
    bint headers                # whether a record has any

# Read a source to its end and write all of it to `out`, or with NULL only count. False: the source has a fault.
cdef bint transcode(Source *source, const Target *target, uint8_t *out, Tally *tally) noexcept nogil


@cython.final
cdef class Converted:
    cdef readonly bytearray payload         # messages, or records of a batch without its header
    cdef readonly int64_t largest
    cdef readonly int32_t count
    cdef readonly int64_t first_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int32_t index_of_max
    cdef readonly bint headers
