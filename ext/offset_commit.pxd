# Keys and values of the offset commits in __consumer_offsets: decoded in place, and encoded.
#
# A key is a version (int16, 0 or 1), group and topic (int16 length and UTF-8), and partition (int32). A value is a
# version (int16) and then: 0 and 2: offset (int64), metadata (int16 length and UTF-8), commit timestamp (int64); 1: the
# same and the expire timestamp (int64); 3: offset, leader epoch (int32), metadata, commit timestamp; 4: as 3, in the
# flexible encoding. Source: Kafka's OffsetCommitKey and OffsetCommitValue.

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum KeyKind:
    KEY_OFFSET = 0              # of an offset commit
    KEY_OTHER = 1               # of another kind of record
    KEY_DAMAGED = 2

ctypedef struct OffsetKeyView:
    const uint8_t *group
    const uint8_t *topic
    int32_t group_length
    int32_t topic_length
    int32_t partition

ctypedef struct OffsetValueView:
    const uint8_t *metadata
    int64_t offset
    int64_t commit_timestamp
    int64_t expire_timestamp    # -1: none
    int32_t leader_epoch        # -1: none
    int32_t metadata_length

# Decode a key; NULL is damaged. Bytes after the key are ignored, as in Kafka.
cdef KeyKind read_offset_key(const uint8_t *at, Py_ssize_t length, OffsetKeyView *key) noexcept nogil

# Decode a value; return False if it is invalid or has an unknown version.
cdef bint read_offset_value(const uint8_t *at, Py_ssize_t length, OffsetValueView *value) noexcept nogil
