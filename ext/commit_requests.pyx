"""Decodes OffsetCommit requests, header included, into what the coordinator encodes as records.

The same as the codec in one call, without message objects; tests compare the two. Versions 0 to 9. A malformed request
raises ProtocolError, as in the codec.
"""

cimport cython

from kafkapy._ext.cursor cimport Reader
from kafkapy._ext.hotpath cimport broken, read_client_id, read_count, read_string, version_of

from kafkapy._ext.cursor import ShortBuffer
from kafkapy._ext.hotpath import Broken
from kafkapy._ext.varint import BadVarint

cdef enum:
    OFFSET_COMMIT = 8
    FIRST = 0
    LAST = 9
    FLEXIBLE = 8
    MAX_ELEMENTS = 1000000      # as in ext/hotpath
    ELEMENTS_AT_ONCE = 1000     # topics and partitions that are decoded with the GIL held, some 0.1 ms


@cython.final
@cython.freelist(64)
cdef class CommitRequest:
    """An OffsetCommit request. `offsets` is a list of (topic, [(partition, offset, leader epoch, metadata, commit
    timestamp), ...]), with "" for null metadata and -1 for no timestamp."""


def decode_commit_frame(frame) -> CommitRequest | None:
    """Decode the header and request of a frame (without its size). Return None if it is not an OffsetCommit request of
    version 0 to 9."""
    cdef Reader reader = Reader(frame)
    cdef int version = version_of(reader, OFFSET_COMMIT, FIRST, LAST)
    cdef CommitRequest request
    if version < 0:
        return None
    request = CommitRequest.__new__(CommitRequest)
    request.api_version = version
    try:
        request.correlation_id = reader.get_int32()
        request.client_id = read_client_id(reader, version >= FLEXIBLE)
        read_commit(reader, request)
    except (ShortBuffer, BadVarint, Broken) as reason:
        raise broken("OffsetCommit", version, reason) from None
    return request


cdef int read_commit(Reader reader, CommitRequest request) except -1:
    cdef int version = request.api_version
    cdef bint flexible = version >= FLEXIBLE
    cdef Py_ssize_t topics, elements = MAX_ELEMENTS
    request.group_id = read_string(reader, flexible, False)
    request.generation = reader.get_int32() if version >= 1 else -1
    request.member_id = read_string(reader, flexible, False) if version >= 1 else ""
    request.group_instance_id = read_string(reader, flexible, True) if version >= 7 else None
    request.retention_time_ms = reader.get_int64() if 2 <= version <= 4 else -1
    request.offsets = []
    topics = read_count(reader, flexible, &elements)
    while topics > 0:
        topics -= 1
        name = read_string(reader, flexible, False)
        request.offsets.append((name, read_offsets(reader, request, &elements)))
        if flexible:
            reader.skip_tagged()
        one_read(request)
    if flexible:
        reader.skip_tagged()
    request.count = max(request.count, len(request.offsets))
    return 0


cdef inline int one_read(CommitRequest request) except -1:
    request.read += 1
    if request.read % ELEMENTS_AT_ONCE == 0:
        with nogil:
            pass
    return 0


cdef list read_offsets(Reader reader, CommitRequest request, Py_ssize_t *elements):
    cdef int version = request.api_version
    cdef bint flexible = version >= FLEXIBLE
    cdef Py_ssize_t left = read_count(reader, flexible, elements)
    cdef list offsets = []
    cdef int32_t partition, leader_epoch
    cdef int64_t offset, timestamp
    request.count += left
    while left > 0:
        partition = reader.get_int32()
        offset = reader.get_int64()
        leader_epoch = reader.get_int32() if version >= 6 else -1
        timestamp = reader.get_int64() if version == 1 else -1
        metadata = read_string(reader, flexible, True)
        if flexible:
            reader.skip_tagged()
        offsets.append((partition, offset, leader_epoch, metadata or "", timestamp))
        left -= 1
        one_read(request)
    return offsets
