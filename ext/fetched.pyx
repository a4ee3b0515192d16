"""Decodes Fetch responses and encodes Fetch requests for a follower, without building message objects.

The counterpart of `hotpath` on the other side of a connection; tests compare it with the codec. Versions 12 to 17, all
of them flexible. A malformed response raises ProtocolError, as in the codec.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from kafkapy._ext.cursor cimport Reader, Writer

from kafkapy._ext.cursor import ShortBuffer
from kafkapy._ext.varint import BadVarint
from kafkapy.errors import ProtocolError

cdef enum:
    FIRST = 12
    LAST = 17
    IDS_FROM = 13
    STATE_FROM = 15  # from this version on the broker's id and epoch are in the tagged field replica_state (KIP-903)
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


def encode_fetch_request(
    int version,
    int32_t broker_id,
    int64_t broker_epoch,
    int32_t max_wait_ms,
    int32_t min_bytes,
    int32_t max_bytes,
    int32_t partition_max_bytes,
    int32_t session_id,
    int32_t session_epoch,
    dict topics not None,
    dict forgotten not None,
) -> bytes:
    """Return a follower's Fetch request, without its header.

    `topics`: {topic: [(partition, (leader epoch, fetch offset, last fetched epoch, log start offset)), ...]};
    `forgotten`: {topic: [partition, ...]}. A topic is a topic id (16 bytes) from version 13 on, a name before.
    """
    cdef Writer writer
    cdef object topic, offset
    cdef list partitions
    if not FIRST <= version <= LAST:
        raise ValueError(f"encode_fetch_request supports the versions {FIRST} to {LAST}, not {version}")
    writer = Writer(128)
    if version < STATE_FROM:
        writer.put_int32(broker_id)
    writer.put_int32(max_wait_ms)
    writer.put_int32(min_bytes)
    writer.put_int32(max_bytes)
    writer.put_int8(0)  # isolation_level, which does not matter for a follower
    writer.put_int32(session_id)
    writer.put_int32(session_epoch)
    put_count(writer, len(topics))
    for topic, partitions in topics.items():
        put_topic(writer, topic, version)
        put_count(writer, len(partitions))
        for partition, (leader_epoch, offset, last_epoch, log_start) in partitions:
            writer.put_int32(partition)
            writer.put_int32(leader_epoch)
            writer.put_int64(offset)
            writer.put_int32(last_epoch)
            writer.put_int64(log_start)
            writer.put_int32(partition_max_bytes)
            writer.put_int8(0)  # no tagged fields
        writer.put_int8(0)
    put_count(writer, len(forgotten))
    for topic, partitions in forgotten.items():
        put_topic(writer, topic, version)
        put_count(writer, len(partitions))
        for partition in partitions:
            writer.put_int32(partition)
        writer.put_int8(0)
    put_count(writer, 0)  # rack_id: an empty string
    if version < STATE_FROM:
        writer.put_int8(0)
    else:
        writer.put_uvarint(1)  # one tagged field: replica_state
        writer.put_uvarint(1)  # its tag
        writer.put_uvarint(13)  # its size
        writer.put_int32(broker_id)
        writer.put_int64(broker_epoch)
        writer.put_int8(0)
    return PyBytes_FromStringAndSize(<char *>writer.data, writer.size)


# The length of an array, or of a string in bytes.
cdef int put_count(Writer writer, Py_ssize_t count) except -1:
    return writer.put_uvarint(<uint32_t>(count + 1))


cdef int put_topic(Writer writer, object topic, int version) except -1:
    cdef bytes name
    if version >= IDS_FROM:
        name = topic
        if len(name) != 16:
            raise ValueError(f"{topic!r} is not a topic id (16 bytes)")
    else:
        name = topic.encode()
        put_count(writer, len(name))
    return writer.put_bytes(name)


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
