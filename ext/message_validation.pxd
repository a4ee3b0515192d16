# Validation of produced messages of formats 0 and 1.

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kafkapy._ext.legacy cimport Found

# What is asked of the messages of a set, and what was found so far.
ctypedef struct Check:
    int8_t magic                # of the first message, or of the wrapper
    bint need_keys
    bint create_time            # the topic's timestamp type
    int64_t earliest            # what timestamps the topic takes then
    int64_t latest
    int64_t max_size            # of a message, -1 for no limit
    bint append_time            # the wrapper says that its timestamp is the time of the append
    int64_t wrapper_timestamp
    # Found:
    int32_t index               # messages so far
    int64_t max_timestamp       # at least -1
    int32_t index_of_max        # the first message that has it; -1: none
    int64_t first_inner         # stored offsets of messages in a wrapper
    int64_t last_inner
    bint consecutive            # whether they grow by one
    # Why a message is refused:
    Found found
    int64_t missing
    int64_t timestamp
    const uint8_t *fault_at     # where that message begins


@cython.final
cdef class CheckedMessages:
    cdef readonly int64_t size              # bytes of the whole messages; a cut one behind them is left out
    cdef readonly int magic
    cdef readonly int codec                 # 0: single messages, else one wrapper
    cdef readonly int32_t count             # messages, of a wrapper those inside
    cdef readonly bint in_order             # whether the messages of a wrapper are numbered 0, 1, 2, ...
    cdef readonly int64_t max_timestamp
    cdef readonly int32_t index_of_max
