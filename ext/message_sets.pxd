# The message set inside a compressed wrapper of format 0 or 1, decompressed, without a Python object a message.
#
# Format 0 keeps the messages' own offsets in it. Format 1 counts them from 0, and the wrapper's offset is that of
# the last one, so the set has to be read to its end before the first offset is known.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kafkapy._ext.legacy cimport Found, MessageView

cdef enum SetFault:
    SET_SOUND = 0
    SET_MESSAGE = 1             # a message is none: see `found`
    SET_NESTED = 2              # a message is a wrapper itself
    SET_EMPTY = 3               # there is no message
    SET_OFFSET = 4              # the wrapper's offset is smaller than its last inner message's

ctypedef struct InnerSet:
    # What the wrapper says:
    int64_t wrapper_offset
    int64_t wrapper_timestamp
    int8_t wrapper_magic
    bint append_time            # every message of format 1 has the wrapper's timestamp
    # What reading it to the end shows:
    int64_t base                # what a message's stored offset is counted from; 0 in format 0
    int64_t last_inner          # the stored offset of the last message
    int64_t fields              # bytes of all keys and values
    int32_t count
    Found found                 # of the message that is none
    int64_t missing
    const uint8_t *fault_at     # where that begins

# What the fields of a wrapper say about its set.
cdef void begin_set(InnerSet *inner, int8_t magic, int8_t attributes, int64_t offset, int64_t timestamp) noexcept nogil

# Read the whole set. A message that the memory ends inside of ends the set, as in Kafka.
cdef SetFault measure_set(InnerSet *inner, const uint8_t *at, const uint8_t *end) noexcept nogil

# The offset and timestamp of a message of a measured set, as a consumer gets them.
cdef inline int64_t offset_in(const InnerSet *inner, const MessageView *view) noexcept nogil:
    return inner.base + view.offset

cdef inline int64_t timestamp_in(const InnerSet *inner, const MessageView *view) noexcept nogil:
    return inner.wrapper_timestamp if inner.append_time and view.magic else view.timestamp

# A sentence for a SetFault.
cdef str explain_set(SetFault fault, const InnerSet *inner)
