# The check of a segment by `kafkapy log verify`: every checksum, every record's structure, the order of offsets, fed
# with the file's bytes a window at a time. What needs Python (unpacking, markers, producers) is collected for it.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t


# Something is wrong; `first`, `second` are what the sentence for it names.
cdef enum Kind:
    WRONG_LENGTH        # the length cannot be that of an entry: the walk ends
    WRONG_MAGIC         # the walk ends
    WRONG_CRC
    WRONG_ORDER         # offsets do not follow those before: base offset, what could have followed
    WRONG_SPAN          # the last offset is before the base offset: base, last
    WRONG_RANGE         # the last offset is out of a segment's reach: last offset, base offset of the segment
    WRONG_CODEC
    WRONG_COUNT         # more records than offsets, or a negative number: count, offsets
    WRONG_RECORD        # a record is none: its index, the Step of ext/records
    WRONG_DELTA         # a record's offset is not behind the one before, or behind the batch's last: index, delta
    WRONG_REST          # bytes behind the last record: their number
    WRONG_TIMESTAMP     # the max timestamp is not that of the records: as stored, that of the records
    WRONG_MESSAGE       # a message of format 0 or 1 is none: the Found of ext/legacy


cdef struct Trouble:
    Kind kind
    int64_t position            # of the entry in the file
    int64_t offset              # its base offset (formats 0 and 1: its offset)
    int64_t first
    int64_t second


# A compressed entry, to be unpacked by Python.
cdef struct Packed:
    int64_t position
    int64_t size
    int64_t least               # the smallest offset that may follow on the entries before it


# Plain batches of one producer that follow on each other, or one transactional or control batch; as Python's
# struct "=qqqqqqqiiiihh4x" reads it.
cdef struct Produced:
    int64_t producer_id
    int64_t first_offset        # base offset of the first batch
    int64_t base_offset         # of the last one, like all that follows
    int64_t last_offset
    int64_t max_timestamp
    int64_t position
    int64_t gap                 # the largest offset before the first batch that follows on a gap; -1: no gap yet
    int32_t first_sequence      # of the first batch
    int32_t base_sequence
    int32_t last_sequence
    int32_t size
    int16_t producer_epoch
    int16_t attributes


# Entries of one leader epoch that follow on each other.
cdef struct Run:
    int64_t epoch
    int64_t first_offset
    int64_t last_offset


# What an index entry says, and what is there: filled while the walk passes by.
cdef struct AtPosition:
    int64_t position            # asked
    int64_t before              # last offset of all entries before that position; -1: none
    int64_t base_offset         # of the entry that begins there; formats 0 and 1: its offset
    int64_t last_offset
    int64_t found               # whether an entry begins there


cdef struct AtOffset:
    int64_t offset              # asked
    int64_t max_before          # largest max timestamp of all entries that end before that offset; -1: none
    int64_t base_offset         # of the first entry that ends at that offset or behind it
    int64_t last_offset
    int64_t max_timestamp
    int64_t magic               # -1: there is no such entry


# A growing array of plain memory.
cdef struct Pile:
    uint8_t *data
    size_t size
    size_t room
