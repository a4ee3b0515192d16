"""Encodes and decodes the keys and values of offset commits; see offset_commit.pxd.

kafkapy.coordinator.offset_records does the same with schemas: tests compare the two byte for byte.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, uint32_t
from libc.string cimport memcpy, memset

from kafkapy._ext.cursor cimport load16, load32, load64, store16, store32, store64
from kafkapy._ext.varint cimport get_uvarint32

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    LONGEST = 32767             # bytes of the longest string
    KEY_VERSION = 1
    VALUE_VERSION = 3           # the last version that is not flexible, so that older brokers can read it
    EXPIRING_VERSION = 1        # the only version with an expire timestamp
    LAST_VALUE_VERSION = 4
    METADATA_TOO_LARGE = 12     # OFFSET_METADATA_TOO_LARGE in kafkapy.errors
    OFFSETS_AT_ONCE = 1000      # offsets that are encoded with the GIL held, some 0.3 ms


# --- reading

cdef inline const uint8_t *_string(
    const uint8_t *at, const uint8_t *end, const uint8_t **text, int32_t *length
) noexcept nogil:
    """Read the string at `at`; return its end, or NULL if it is invalid."""
    cdef int16_t size
    if end - at < 2:
        return NULL
    size = <int16_t>load16(at)
    at += 2
    if size < 0 or size > end - at:
        return NULL
    text[0] = at
    length[0] = size
    return at + size


cdef KeyKind read_offset_key(const uint8_t *at, Py_ssize_t length, OffsetKeyView *key) noexcept nogil:
    cdef const uint8_t *end = at + length
    cdef int16_t version
    if at == NULL or length < 2:
        return KEY_DAMAGED
    version = <int16_t>load16(at)
    if version < 0 or version > KEY_VERSION:
        return KEY_OTHER
    at = _string(at + 2, end, &key.group, &key.group_length)
    if at == NULL:
        return KEY_DAMAGED
    at = _string(at, end, &key.topic, &key.topic_length)
    if at == NULL or end - at < 4:
        return KEY_DAMAGED
    key.partition = <int32_t>load32(at)
    return KEY_OFFSET


cdef const uint8_t *_compact_string(
    const uint8_t *at, const uint8_t *end, const uint8_t **text, int32_t *length
) noexcept nogil:
    cdef uint32_t size = 0
    cdef int taken = get_uvarint32(at, end, &size)
    if taken <= 0 or size == 0:     # 0 is null
        return NULL
    at += taken
    size -= 1
    if size > LONGEST or <Py_ssize_t>size > end - at:
        return NULL
    text[0] = at
    length[0] = <int32_t>size
    return at + size


cdef bint _tagged_fields(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Return True if valid tagged fields follow, known or not."""
    cdef uint32_t count = 0, number = 0
    cdef int taken = get_uvarint32(at, end, &count)
    cdef int part
    if taken <= 0:
        return False
    at += taken
    while count:
        for part in range(2):       # tag, size
            taken = get_uvarint32(at, end, &number)
            if taken <= 0:
                return False
            at += taken
        if <Py_ssize_t>number > end - at:
            return False
        at += number
        count -= 1
    return True


cdef bint read_offset_value(const uint8_t *at, Py_ssize_t length, OffsetValueView *value) noexcept nogil:
    cdef const uint8_t *end = at + length
    cdef int16_t version
    if length < 10:
        return False
    version = <int16_t>load16(at)
    if version < 0 or version > LAST_VALUE_VERSION:
        return False
    value.offset = <int64_t>load64(at + 2)
    value.leader_epoch = -1
    value.expire_timestamp = -1
    at += 10
    if version >= 3:
        if end - at < 4:
            return False
        value.leader_epoch = <int32_t>load32(at)
        at += 4
    if version < 4:
        at = _string(at, end, &value.metadata, &value.metadata_length)
    else:
        at = _compact_string(at, end, &value.metadata, &value.metadata_length)
    if at == NULL or end - at < 8:
        return False
    value.commit_timestamp = <int64_t>load64(at)
    at += 8
    if version == EXPIRING_VERSION:
        if end - at < 8:
            return False
        value.expire_timestamp = <int64_t>load64(at)
    return version < 4 or _tagged_fields(at, end)


# --- writing

def encode_commit(str group, offsets, int64_t now_ms, int64_t expire_ms, Py_ssize_t max_metadata) -> tuple:
    """Return (records, codes) for the offsets of a commit.

    `offsets` is a list of (topic, [(partition, offset, leader epoch, metadata, commit timestamp), ...]), with -1 as the
    timestamp for `now_ms`. `expire_ms` is the expire timestamp, -1 for none. `records` has a (key, value) pair for each
    partition; if a partition occurs twice, its last offset is committed, as in Kafka. `codes` has an error code for
    each offset, in order: 0, or METADATA_TOO_LARGE for one that has no record because its metadata is longer than
    `max_metadata`, counted in UTF-16 units as Java does, or longer than a record allows.
    """
    cdef dict records = {}
    cdef list codes = []
    cdef str metadata
    for topic, of_topic in offsets:
        for partition, offset, leader_epoch, metadata, timestamp in of_topic:
            if len(codes) % OFFSETS_AT_ONCE == OFFSETS_AT_ONCE - 1:
                with nogil:
                    pass
            if metadata and _is_too_long(metadata, max_metadata):
                codes.append(METADATA_TOO_LARGE)
                continue
            codes.append(0)
            records[encode_key(group, topic, partition)] = encode_value(
                offset, leader_epoch, metadata, now_ms if timestamp == -1 else timestamp, expire_ms
            )
    return list(records.items()), codes


cdef bint _is_too_long(str metadata, Py_ssize_t max_metadata) except -1:
    cdef Py_ssize_t length = 0, units = len(metadata)
    PyUnicode_AsUTF8AndSize(metadata, &length)
    if length > units:  # it is not ASCII
        units = len(metadata.encode("utf-16-le")) // 2
    return units > max_metadata or length > LONGEST


cdef const char *_text(str text, Py_ssize_t *length) except NULL:
    cdef const char *at = PyUnicode_AsUTF8AndSize(text, length)
    if length[0] > LONGEST:
        raise ValueError(f"a string of {length[0]} bytes is longer than a record allows ({LONGEST})")
    return at


cpdef bytes encode_key(str group, str topic, int32_t partition):
    """Return the key of a commit. Raises ValueError for a name over 32,767 bytes."""
    cdef Py_ssize_t group_length = 0, topic_length = 0
    cdef const char *group_at = _text(group, &group_length)
    cdef const char *topic_at = _text(topic, &topic_length)
    cdef bytes key = PyBytes_FromStringAndSize(NULL, 10 + group_length + topic_length)
    cdef char *at = PyBytes_AS_STRING(key)
    store16(at, KEY_VERSION)
    store16(at + 2, <int16_t>group_length)
    memcpy(at + 4, group_at, group_length)
    at += 4 + group_length
    store16(at, <int16_t>topic_length)
    memcpy(at + 2, topic_at, topic_length)
    store32(at + 2 + topic_length, <uint32_t>partition)
    return key


cpdef bytes encode_value(
    int64_t offset, int32_t leader_epoch, str metadata, int64_t commit_timestamp, int64_t expire_timestamp
):
    """Return the value of a commit; with an expire timestamp (not -1) it has no leader epoch.

    Raises ValueError for metadata over 32,767 bytes.
    """
    cdef Py_ssize_t length = 0
    cdef const char *text = _text(metadata, &length)
    cdef bint expires = expire_timestamp != -1
    cdef bytes value = PyBytes_FromStringAndSize(NULL, 20 + length + (8 if expires else 4))
    cdef char *at = PyBytes_AS_STRING(value)
    store16(at, EXPIRING_VERSION if expires else VALUE_VERSION)
    store64(at + 2, <int64_t>offset)
    at += 10
    if not expires:
        store32(at, <uint32_t>leader_epoch)
        at += 4
    store16(at, <int16_t>length)
    memcpy(at + 2, text, length)
    at += 2 + length
    store64(at, <int64_t>commit_timestamp)
    if expires:
        store64(at + 8, <int64_t>expire_timestamp)
    return value
