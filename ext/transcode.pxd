# Converts records between message formats, in plain memory and without Python objects for records.

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
    # Why `next_item` returned no record:
    Step step                   # of a batch
    SetFault set_fault          # of a wrapper
    Found found                 # of messages
    int64_t missing

cdef enum Next:
    NEXT_ITEM
    NEXT_END
    NEXT_FAULT

cdef Next next_item(Source *source, Item *item) noexcept nogil

# How the offsets of written messages are computed from those read.
cdef enum Offsets:
    OFFSETS_KEPT = 0            # unchanged
    OFFSETS_RELATIVE = 1        # relative to the first record's: inside wrappers of format 1
    OFFSETS_NUMBERED = 2        # 0, 1, 2, ...

# What to write.
ctypedef struct Target:
    int magic
    Offsets offsets
    int64_t first_offset        # earlier records are dropped
    bint append_time            # every record gets `append_timestamp`
    int64_t append_timestamp

# The result of a pass over all records.
ctypedef struct Tally:
    int64_t size                # bytes written, or to write
    int64_t largest             # bytes of the largest record
    int64_t base_timestamp      # the first record's; -1: no record
    int64_t max_timestamp       # at least -1; -1 in format 0
    int64_t first_offset        # as read, of the first and the last record that was not dropped
    int64_t last_offset
    int32_t index_of_max        # index of the first record with max_timestamp; -1: none
    int32_t count
    bint headers                # True if a record has headers

# Read a source to its end and write it to `out`; with NULL only measure. Return False if the source is invalid.
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
