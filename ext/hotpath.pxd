# The Produce and Fetch requests that `hotpath` decodes.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

from kafkapy._ext.cursor cimport Reader

cdef class ProduceRequest:
    cdef readonly int16_t api_version
    cdef readonly int32_t correlation_id
    cdef readonly str client_id             # "" for null, as in Kafka
    cdef readonly object transactional_id   # str or None; None before v3
    cdef readonly int16_t acks
    cdef readonly int32_t timeout_ms
    cdef readonly bint in_transaction       # True if any of the batches is transactional
    cdef readonly bint only_format_2        # True if all record sets begin with a header of format 2
    cdef readonly Py_ssize_t size           # number of record sets in `topics`, or of topics if that is larger
    cdef readonly list topics               # of (name, list of (partition, records)); records: memoryview or None


cdef class FetchRequest:
    cdef readonly int16_t api_version
    cdef readonly int32_t correlation_id
    cdef readonly str client_id             # "" for null
    cdef readonly object cluster_id         # str or None (v12+)
    cdef readonly int32_t replica_id        # of a follower; -1 for a client; from the tagged replica_state since v15
    cdef readonly int64_t replica_epoch     # v15+, else -1
    cdef readonly int32_t max_wait_ms
    cdef readonly int32_t min_bytes
    cdef readonly int32_t max_bytes         # 2^31 - 1 before v3
    cdef readonly int8_t isolation_level    # 0 read_uncommitted, 1 read_committed; 0 before v4
    cdef readonly int32_t session_id        # 0 before v7
    cdef readonly int32_t session_epoch     # -1 before v7: a full fetch without a session
    cdef readonly Py_ssize_t partitions     # number of partitions in `topics`
    cdef readonly list topics               # of (name, topic id, list of partition tuples; see the .pyx)
    cdef readonly list forgotten            # of (name, topic id, list of partition numbers)
    cdef readonly str rack_id               # "" before v11

# What the decoders of other requests use, too.
cdef object broken(str api, int version, object reason)
cdef int version_of(Reader reader, int api, int first, int last) except -2
cdef str read_client_id(Reader reader, bint flexible)
cdef Py_ssize_t read_count(Reader reader, bint flexible, Py_ssize_t *elements) except -1
cdef object read_string(Reader reader, bint flexible, bint nullable)
