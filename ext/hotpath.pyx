"""Decodes Produce and Fetch requests, header included, without building message objects.

The codec decodes and encodes every API. This module and `hotpath_responses` (whose functions this module exports too)
do the same in one call for the two APIs that carry records; tests compare them with the codec. Produce versions 0 to
11, Fetch versions 0 to 17. A malformed request raises ProtocolError, as in the codec.
"""

cimport cython
from cpython.ref cimport Py_DECREF, PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint32_t

from kafkapy._ext.batch cimport AT_ATTRIBUTES, AT_MAGIC, HEADER_SIZE, TRANSACTIONAL_BIT
from kafkapy._ext.cursor cimport Reader, load16

from kafkapy._ext.cursor import ShortBuffer
from kafkapy._ext.varint import BadVarint
from kafkapy._ext.hotpath_responses import encode_fetch_response, encode_produce_response
from kafkapy.errors import ProtocolError

__all__ = [
    "FetchRequest",
    "ProduceRequest",
    "decode_fetch_frame",
    "decode_produce_frame",
    "encode_fetch_response",
    "encode_produce_response",
]

cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030D0000
    static int kafkapy_dict_get(PyObject *dict, PyObject *key, PyObject **value) {
        *value = PyDict_GetItemWithError(dict, key);
        Py_XINCREF(*value);
        return *value != NULL ? 1 : PyErr_Occurred() ? -1 : 0;
    }
    #else
    #define kafkapy_dict_get PyDict_GetItemRef
    #endif
    """
    # Return 1 and set `value` to a new reference, or return 0. Cython's lookup in a dict takes a borrowed reference. In
    # a build without the GIL, another thread may clear the dict and free the str before that reference is counted.
    int kafkapy_dict_get(dict names, bytes key, PyObject **value) except -1

cdef enum:
    PRODUCE = 0
    FETCH = 1
    PRODUCE_FIRST = 0
    PRODUCE_LAST = 11
    PRODUCE_FLEXIBLE = 9
    FETCH_FIRST = 0
    FETCH_LAST = 17
    FETCH_FLEXIBLE = 12
    NO_LIMIT = 0x7FFFFFFF
    MAX_STRING = 0x7FFF
    MAX_ELEMENTS = 1000000      # as kafkapy.protocol.apis.MAX_REQUEST_ELEMENTS, for the same reason
    LARGE = 1 << 20             # bytes; a request of this size may have a million elements
    KNOWN_NAMES = 4096          # limit for the topic names and client ids that are kept as str
    LONGEST_KNOWN = 255         # bytes of the longest name that is kept; a topic name has at most 249

cdef extern from "Python.h":
    int PyGC_Disable()
    int PyGC_Enable()

cdef bytes ZERO_UUID = bytes(16)

# Decoded names. Requests repeat the same few names; keeping each as a str saves decoding and hashing it again.
cdef dict names = {}


@cython.final
@cython.freelist(64)
cdef class ProduceRequest:
    """A Produce request. `topics` is a list of (name, [(partition, records), ...]).

    Records are memoryviews of the frame (writable if the frame is), or None for null.
    """


@cython.final
@cython.freelist(64)
cdef class FetchRequest:
    """A Fetch request. `topics` is a list of (name, topic_id, partitions), `forgotten` of (name, topic_id, numbers).

    A partition is (partition, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset,
    partition_max_bytes). The name is "" from v13 on, the topic id 16 zero bytes before.
    """


def decode_produce_frame(frame) -> ProduceRequest | None:
    """Decode the header and request of a frame (without its size); None if it is not a Produce request of v0 to v11."""
    cdef Reader reader = Reader(frame)
    cdef int version = version_of(reader, PRODUCE, PRODUCE_FIRST, PRODUCE_LAST)
    cdef ProduceRequest request
    cdef bint collecting
    if version < 0:
        return None
    request = ProduceRequest.__new__(ProduceRequest)
    request.api_version = version
    # The garbage collector would scan the decoded objects again and again, which takes four fifths of the time.
    collecting = reader.left() >= LARGE and PyGC_Disable()
    try:
        request.correlation_id = reader.get_int32()
        request.client_id = read_client_id(reader, version >= PRODUCE_FLEXIBLE)
        read_produce(reader, request)
    except (ShortBuffer, BadVarint, Broken) as reason:
        raise broken("Produce", version, reason) from None
    finally:
        if collecting:
            PyGC_Enable()
    return request


def decode_fetch_frame(frame) -> FetchRequest | None:
    """Decode the header and request of a frame (without its size); None if it is not a Fetch request of v0 to v17."""
    cdef Reader reader = Reader(frame)
    cdef int version = version_of(reader, FETCH, FETCH_FIRST, FETCH_LAST)
    cdef FetchRequest request
    if version < 0:
        return None
    request = FetchRequest.__new__(FetchRequest)
    request.api_version = version
    try:
        request.correlation_id = reader.get_int32()
        request.client_id = read_client_id(reader, version >= FETCH_FLEXIBLE)
        read_fetch(reader, request)
    except (ShortBuffer, BadVarint, Broken) as reason:
        raise broken("Fetch", version, reason) from None
    return request


class Broken(ValueError):
    """A fault that neither ShortBuffer nor BadVarint describes; becomes a ProtocolError in this module."""


cdef object broken(str api, int version, object reason):
    return ProtocolError(f"{api} request v{version}: {reason}")


# Return the version if the frame is a request of `api` in version `first` to `last`, else -1.
cdef int version_of(Reader reader, int api, int first, int last) except -2:
    cdef int version
    if reader.left() < 8 or reader.get_int16() != api:
        return -1
    version = reader.get_int16()
    return version if first <= version <= last else -1


cdef str read_client_id(Reader reader, bint flexible):
    cdef Py_ssize_t length = reader.get_int16()
    cdef str client_id = "" if length <= 0 else name_of(reader.take(length), length)
    if flexible:
        reader.skip_tagged()
    return client_id


cdef int read_produce(Reader reader, ProduceRequest request) except -1:
    cdef bint flexible = request.api_version >= PRODUCE_FLEXIBLE
    cdef Py_ssize_t topics, partitions, length
    cdef Py_ssize_t elements = MAX_ELEMENTS
    cdef list parts
    cdef int32_t index
    cdef const uint8_t *records
    request.transactional_id = read_string(reader, flexible, True) if request.api_version >= 3 else None
    request.acks = reader.get_int16()
    request.timeout_ms = reader.get_int32()
    request.only_format_2 = True
    request.topics = []
    topics = read_count(reader, flexible, &elements)
    while topics > 0:
        topics -= 1
        name = read_string(reader, flexible, False)
        parts = []
        partitions = read_count(reader, flexible, &elements)
        request.size += partitions
        while partitions > 0:
            partitions -= 1
            index = reader.get_int32()
            length = <Py_ssize_t>reader.get_uvarint() - 1 if flexible else reader.get_int32()
            records = reader.at
            parts.append((index, None if length < 0 else reader.get_view(length)))
            if length < HEADER_SIZE or records[AT_MAGIC] != 2:
                request.only_format_2 = False
            elif load16(records + AT_ATTRIBUTES) & TRANSACTIONAL_BIT:
                request.in_transaction = True
            if flexible:
                reader.skip_tagged()
        if flexible:
            reader.skip_tagged()
        request.topics.append((name, parts))
    request.size = max(request.size, len(request.topics))
    if flexible:
        reader.skip_tagged()
    return 0


cdef int read_fetch(Reader reader, FetchRequest request) except -1:
    cdef int version = request.api_version
    cdef bint flexible = version >= FETCH_FLEXIBLE
    cdef Py_ssize_t topics, partitions
    cdef Py_ssize_t elements = MAX_ELEMENTS
    cdef list parts
    request.cluster_id = None
    request.replica_id = reader.get_int32() if version <= 14 else -1
    request.replica_epoch = -1
    request.max_wait_ms = reader.get_int32()
    request.min_bytes = reader.get_int32()
    request.max_bytes = reader.get_int32() if version >= 3 else NO_LIMIT
    request.isolation_level = reader.get_int8() if version >= 4 else 0
    request.session_id = reader.get_int32() if version >= 7 else 0
    request.session_epoch = reader.get_int32() if version >= 7 else -1
    request.topics = []
    topics = read_count(reader, flexible, &elements)
    while topics > 0:
        topics -= 1
        name = "" if version >= 13 else read_string(reader, flexible, False)
        topic_id = reader.get_bytes(16) if version >= 13 else ZERO_UUID
        parts = []
        partitions = read_count(reader, flexible, &elements)
        request.partitions += partitions
        while partitions > 0:
            partitions -= 1
            parts.append(read_fetch_partition(reader, version))
        if flexible:
            reader.skip_tagged()
        request.topics.append((name, topic_id, parts))
    request.forgotten = read_forgotten(reader, version, &elements) if version >= 7 else []
    request.rack_id = read_string(reader, flexible, False) if version >= 11 else ""
    if flexible:
        read_fetch_tagged(reader, request)
    return 0


cdef tuple read_fetch_partition(Reader reader, int version):
    cdef int32_t partition = reader.get_int32()
    cdef int32_t leader_epoch = reader.get_int32() if version >= 9 else -1
    cdef int64_t fetch_offset = reader.get_int64()
    cdef int32_t fetched_epoch = reader.get_int32() if version >= 12 else -1
    cdef int64_t log_start_offset = reader.get_int64() if version >= 5 else -1
    cdef int32_t max_bytes = reader.get_int32()
    cdef Py_ssize_t fields, size
    cdef uint32_t tag
    if version >= FETCH_FLEXIBLE:
        fields = reader.get_uvarint()
        while fields > 0:
            fields -= 1
            tag = reader.get_uvarint()
            size = reader.get_uvarint()
            reader.advance(size)
            if tag == 0 and version >= 17 and size != 16:  # replica_directory_id of KRaft followers; not used here
                raise Broken(f"a uuid of {size} bytes")
    return (partition, leader_epoch, fetch_offset, fetched_epoch, log_start_offset, max_bytes)


cdef list read_forgotten(Reader reader, int version, Py_ssize_t *elements):
    cdef bint flexible = version >= FETCH_FLEXIBLE
    cdef list forgotten = []
    cdef list numbers
    cdef Py_ssize_t partitions
    cdef Py_ssize_t topics = read_count(reader, flexible, elements)
    while topics > 0:
        topics -= 1
        name = "" if version >= 13 else read_string(reader, flexible, False)
        topic_id = reader.get_bytes(16) if version >= 13 else ZERO_UUID
        numbers = []
        partitions = read_count(reader, flexible, elements)
        while partitions > 0:
            partitions -= 1
            numbers.append(reader.get_int32())
        if flexible:
            reader.skip_tagged()
        forgotten.append((name, topic_id, numbers))
    return forgotten


cdef int read_fetch_tagged(Reader reader, FetchRequest request) except -1:
    cdef Py_ssize_t fields = reader.get_uvarint()
    cdef Py_ssize_t size, end
    cdef uint32_t tag
    while fields > 0:
        fields -= 1
        tag = reader.get_uvarint()
        size = reader.get_uvarint()
        reader.need(size)
        end = reader.tell() + size
        if tag == 0:
            request.cluster_id = read_string(reader, True, True)
        elif tag == 1 and request.api_version >= 15:
            request.replica_id = reader.get_int32()
            request.replica_epoch = reader.get_int64()
            reader.skip_tagged()
        else:
            reader.advance(size)
        if reader.tell() != end:
            raise Broken(f"tagged field {tag} ends at byte {reader.tell()}, but its size says byte {end}")
    return 0


# Read the length of an array. It may not exceed the bytes left, since every element takes at least one, nor `elements`,
# which is how many elements the request's arrays may still have in total.
cdef Py_ssize_t read_count(Reader reader, bint flexible, Py_ssize_t *elements) except -1:
    cdef Py_ssize_t count = <Py_ssize_t>reader.get_uvarint() - 1 if flexible else reader.get_int32()
    if count < 0:
        raise Broken(f"a null array before byte {reader.tell()}")
    if count > reader.left():
        raise Broken(f"{count} elements claimed at byte {reader.tell()} with {reader.left()} bytes left")
    elements[0] -= count
    if elements[0] < 0:
        raise Broken(f"more than {MAX_ELEMENTS} elements")
    return count


cdef object read_string(Reader reader, bint flexible, bint nullable):
    cdef Py_ssize_t length = <Py_ssize_t>reader.get_uvarint() - 1 if flexible else reader.get_int16()
    if length < 0:
        if nullable:
            return None
        raise Broken(f"a null string before byte {reader.tell()}")
    if length > MAX_STRING:
        raise Broken(f"a string of {length} bytes before byte {reader.tell()}")
    name = name_of(reader.take(length), length)
    if length > MAX_STRING // 3 and len(name.encode()) > MAX_STRING:  # see Program.read_value in ext/codec
        raise Broken(
            f"a string before byte {reader.tell()} that is not UTF-8, and longer than {MAX_STRING} bytes with U+FFFD "
            "for its invalid bytes"
        )
    return name


cdef str name_of(const uint8_t *at, Py_ssize_t length):
    cdef PyObject *known = NULL
    cdef bytes key
    cdef str name
    if length > LONGEST_KNOWN:
        return PyUnicode_DecodeUTF8(<const char *>at, length, "replace")
    key = (<const char *>at)[:length]
    if kafkapy_dict_get(names, key, &known):
        name = <str>known
        Py_DECREF(name)
        return name
    name = PyUnicode_DecodeUTF8(<const char *>at, length, "replace")
    if len(names) >= KNOWN_NAMES:  # a client invents names: clearing the dict limits its memory
        names.clear()
    names[key] = name
    return name
