# The check of a segment by `kafkapy log verify`: every CRC, the structure of every record, the order of offsets. It is
# fed the file's bytes, a window at a time. What needs Python (decompression, markers, producers) is collected.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t


# The kinds of problems. After the colon: what `first` and `second` of the Trouble are.
cdef enum Kind:
    WRONG_LENGTH        # the length is not valid for an entry; the walk ends
    WRONG_MAGIC         # an unknown format; the walk ends
    WRONG_CRC
    WRONG_ORDER         # offsets do not follow those before: base offset, smallest allowed offset
    WRONG_SPAN          # the last offset is before the base offset: base offset, last offset
    WRONG_RANGE         # the last offset is too far from the segment's base offset: last offset, segment's base offset
    WRONG_CODEC
    WRONG_COUNT         # more records than offsets, or a negative count: count, offsets
    WRONG_RECORD        # an invalid record: its index, the Step of ext/records
    WRONG_DELTA         # an offset out of order, or after the batch's last offset: the record's index, its offset delta
    WRONG_REST          # bytes after the last record: their number
    WRONG_TIMESTAMP     # the max timestamp is not that of the records: as stored, that of the records
    WRONG_MESSAGE       # an invalid message of format 0 or 1: the Found of ext/legacy


cdef struct Trouble:
    Kind kind
    int64_t position            # of the entry in the file
    int64_t offset              # its base offset (formats 0 and 1: its offset)
    int64_t first
    int64_t second


# A compressed entry, to be decompressed by Python.
cdef struct Packed:
    int64_t position
    int64_t size
    int64_t least               # the smallest offset allowed after the entries before it


# Consecutive plain batches of one producer, or one transactional or control batch; struct "=qqqqqqqiiiihh4x".
cdef struct Produced:
    int64_t producer_id
    int64_t first_offset        # base offset of the first batch
    int64_t base_offset         # of the last batch, like the following fields
    int64_t last_offset
    int64_t max_timestamp
    int64_t position
    int64_t gap                 # the last gap before the first batch (see Checker.gap); -1: none so far
    int32_t first_sequence      # of the first batch
    int32_t base_sequence
    int32_t last_sequence
    int32_t size
    int16_t producer_epoch
    int16_t attributes


# Consecutive entries of one leader epoch.
cdef struct Run:
    int64_t epoch
    int64_t first_offset
    int64_t last_offset


# The position in an index entry, and what the segment has there.
cdef struct AtPosition:
    int64_t position            # of the index entry
    int64_t before              # last offset of all entries before that position; -1: none
    int64_t base_offset         # of the entry that begins there; formats 0 and 1: its offset
    int64_t last_offset
    int64_t found               # 1: an entry begins there, -1: none


# The offset in an index entry, and what the segment has there.
cdef struct AtOffset:
    int64_t offset              # of the index entry
    int64_t max_before          # largest max timestamp of all entries that end before that offset; -1: none
    int64_t base_offset         # of the first entry whose last offset is at least that offset
    int64_t last_offset
    int64_t max_timestamp
    int64_t magic               # -1: there is no such entry


# A growing array in plain memory.
cdef struct Pile:
    uint8_t *data
    size_t size
    size_t room
