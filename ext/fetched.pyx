"""Decodes Fetch responses for a follower, without building message objects.

The counterpart of `hotpath` on the other side of a connection; a test compares it with the codec. Versions 12 to 17,
all of them flexible. A malformed response raises ProtocolError, as in the codec.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from kafkapy._ext.cursor cimport Reader

from kafkapy._ext.cursor import ShortBuffer
from kafkapy._ext.varint import BadVarint
from kafkapy.errors import ProtocolError

cdef enum:
    FIRST = 12
    LAST = 17
    IDS_FROM = 13
    MAX_STRING = 0x7FFF


def decode_fetch_response(frame not None, int version, Py_ssize_t start) -> tuple:
    """Return (error code, session id, partitions) of the Fetch response that begins at `start` of the frame.

    `partitions`: [(topic, partition, error code, high watermark, log start offset, diverging, records), ...]. `topic`
    is the topic id (16 bytes) from version 13 on, the topic's name before. `diverging` is (epoch, end offset), None if
    the follower's log is a part of the leader's (KIP-595). `records` is a slice of the frame, None for null.
    """
    cdef Reader reader
    if not FIRST <= version <= LAST:
        raise ValueError(f"decode_fetch_response supports the versions {FIRST} to {LAST}, not {version}")
    reader = Reader(frame, start)
    try:
        return read_response(reader, version)
    except ShortBuffer as short:
        reason = f"{short.wanted} bytes wanted at byte {short.position} with {short.there} bytes left"
    except BadVarint:
        reason = f"the varint at byte {reader.tell()} is longer than 5 bytes"
    raise ProtocolError(f"Fetch response v{version}: {reason}")


cdef tuple read_response(Reader reader, int version):
    cdef int16_t error_code
    cdef int32_t session_id
    cdef Py_ssize_t topics, count
    cdef list partitions = []
    cdef object topic
    reader.advance(4)  # throttle_time_ms
    error_code = reader.get_int16()
    session_id = reader.get_int32()
    topics = read_count(reader)
    while topics > 0:
        topics -= 1
        topic = reader.get_bytes(16) if version >= IDS_FROM else read_string(reader)
        count = read_count(reader)
        while count > 0:
            count -= 1
            partitions.append(read_partition(reader, topic))
        reader.skip_tagged()
    reader.skip_tagged()
    return error_code, session_id, partitions


cdef tuple read_partition(Reader reader, object topic):
    cdef int32_t partition = reader.get_int32()
    cdef int16_t error_code = reader.get_int16()
    cdef int64_t high_watermark = reader.get_int64()
    cdef int64_t log_start
    cdef Py_ssize_t length
    cdef object records = None
    reader.advance(8)  # last_stable_offset
    log_start = reader.get_int64()
    skip_aborted(reader)
    reader.advance(4)  # preferred_read_replica
    length = <Py_ssize_t>reader.get_uvarint() - 1
    if length >= 0:
        records = reader.get_view(length)
    return partition_of(reader, topic, partition, error_code, high_watermark, log_start, records)


cdef tuple partition_of(
    Reader reader, object topic, int32_t partition, int16_t error_code, int64_t high_watermark, int64_t log_start,
    object records
):
    cdef object diverging = None
    cdef Py_ssize_t fields = reader.get_uvarint()
    cdef Py_ssize_t size, end
    cdef uint32_t tag
    cdef int32_t epoch
    while fields > 0:
        fields -= 1
        tag = reader.get_uvarint()
        size = reader.get_uvarint()
        reader.need(size)
        end = reader.tell() + size
        if tag == 0:
            epoch = reader.get_int32()
            diverging = (epoch, reader.get_int64()) if epoch >= 0 else skip_offset(reader)
            reader.skip_tagged()
            if reader.tell() != end:
                raise ProtocolError(f"diverging_epoch ends at byte {reader.tell()}, but its size says byte {end}")
        else:
            reader.advance(size)
    return topic, partition, error_code, high_watermark, log_start, diverging, records


cdef object skip_offset(Reader reader):
    reader.advance(8)
    return None


cdef int skip_aborted(Reader reader) except -1:
    cdef Py_ssize_t count = <Py_ssize_t>reader.get_uvarint() - 1
    if count > reader.left():
        raise ProtocolError(f"{count} aborted transactions claimed at byte {reader.tell()}, {reader.left()} bytes left")
    while count > 0:
        count -= 1
        reader.advance(16)
        reader.skip_tagged()
    return 0


# Read the length of an array. It may not exceed the bytes left, since every element takes at least one.
cdef Py_ssize_t read_count(Reader reader) except -1:
    cdef Py_ssize_t count = <Py_ssize_t>reader.get_uvarint() - 1
    if count < 0:
        raise ProtocolError(f"a null array before byte {reader.tell()}")
    if count > reader.left():
        raise ProtocolError(f"{count} elements claimed at byte {reader.tell()} with {reader.left()} bytes left")
    return count


cdef object read_string(Reader reader):
    cdef Py_ssize_t length = <Py_ssize_t>reader.get_uvarint() - 1
    if length < 0 or length > MAX_STRING:
        raise ProtocolError(f"a string of {length} bytes before byte {reader.tell()}")
    return reader.get_bytes(length).decode("utf-8", "replace")
