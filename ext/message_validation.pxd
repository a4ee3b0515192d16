# Validates produced messages of formats 0 and 1.

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kafkapy._ext.legacy cimport Found

# The checks to do for the messages of a set, and the findings so far.
ctypedef struct Check:
    int8_t magic                # of the first message, or of the wrapper
    bint need_keys
    bint create_time            # True if the topic's timestamp type is CreateTime
    int64_t earliest            # if so, the range of timestamps that the topic allows
    int64_t latest
    int64_t max_size            # of a message; -1: no limit
    bint append_time            # True if the wrapper's timestamp is the append time
    int64_t wrapper_timestamp
    # Findings:
    int32_t index               # messages so far
    int64_t max_timestamp       # at least -1
    int32_t index_of_max        # the first message with max_timestamp; -1: none
    int64_t first_inner         # stored offset of the first and last message in a wrapper
    int64_t last_inner
    bint consecutive            # True if these offsets increase by one
    # Why a message is invalid:
    Found found
    int64_t missing
    int64_t timestamp
    const uint8_t *fault_at     # where that message begins


@cython.final
cdef class CheckedMessages:
    cdef readonly int64_t size              # bytes of the complete messages; an incomplete one after them is ignored
    cdef readonly int magic
    cdef readonly int codec                 # 0: single messages, else one wrapper
    cdef readonly int32_t count             # messages; those inside the wrapper if there is one
    cdef readonly bint in_order             # True if the messages of the wrapper are numbered 0, 1, 2, ...
    cdef readonly int64_t max_timestamp
    cdef readonly int32_t index_of_max
