# The message set inside a compressed wrapper of format 0 or 1, decompressed, without Python objects for messages.
#
# In format 0 the set has the messages' own offsets. In format 1 they are relative, from 0 on, and the wrapper has the
# offset of the last message: the set has to be read to its end before the first offset is known.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kafkapy._ext.legacy cimport Found, MessageView

cdef enum SetFault:
    SET_VALID = 0
    SET_MESSAGE = 1             # a message is invalid: see `found`
    SET_NESTED = 2              # a message is itself a wrapper
    SET_EMPTY = 3               # there are no messages
    SET_OFFSET = 4              # the wrapper's offset is smaller than that of its last inner message

ctypedef struct InnerSet:
    # From the wrapper:
    int64_t wrapper_offset
    int64_t wrapper_timestamp
    int8_t wrapper_magic
    bint append_time            # True if every message of format 1 has the wrapper's timestamp
    # From reading the set to its end:
    int64_t base                # add this to a message's stored offset; 0 in format 0
    int64_t last_inner          # the stored offset of the last message
    int64_t fields              # bytes of all keys and values
    int32_t count
    Found found                 # why the message at `fault_at` is invalid
    int64_t missing
    const uint8_t *fault_at     # where the invalid message begins

# Fill in what the fields of a wrapper say about its set.
cdef void begin_set(InnerSet *inner, int8_t magic, int8_t attributes, int64_t offset, int64_t timestamp) noexcept nogil

# Read the whole set. As in Kafka, the set ends before a message that the memory ends inside of.
cdef SetFault measure_set(InnerSet *inner, const uint8_t *at, const uint8_t *end) noexcept nogil

# Return the offset or timestamp of a message of a measured set, as a consumer gets it.
cdef inline int64_t offset_in(const InnerSet *inner, const MessageView *view) noexcept nogil:
    return inner.base + view.offset

cdef inline int64_t timestamp_in(const InnerSet *inner, const MessageView *view) noexcept nogil:
    return inner.wrapper_timestamp if inner.append_time and view.magic else view.timestamp

# Return the error message for a SetFault.
cdef str explain_set(SetFault fault, const InnerSet *inner)
