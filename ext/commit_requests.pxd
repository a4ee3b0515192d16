# The OffsetCommit request that `commit_requests` decodes.

from libc.stdint cimport int16_t, int32_t, int64_t

cdef class CommitRequest:
    cdef readonly int16_t api_version
    cdef readonly int32_t correlation_id
    cdef readonly str client_id             # "" for null, as in Kafka
    cdef readonly str group_id
    cdef readonly int32_t generation        # -1: not as a member of a group, and before v1
    cdef readonly str member_id             # "" before v1
    cdef readonly object group_instance_id  # str or None
    cdef readonly int64_t retention_time_ms # v2 to v4, else -1: as the broker is set
    cdef readonly list offsets              # as `offset_commit.encode_commit` takes them
    cdef readonly Py_ssize_t count          # number of partitions or of topics in `offsets`, the larger one
    cdef Py_ssize_t read                    # topics and partitions that were read
