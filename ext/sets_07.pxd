# Message sets of Kafka 0.7: messages without offsets, each preceded by its length. See kafkapy.record.kafka07.

from libc.stdint cimport int32_t, uint8_t

# What is at a place where a message of Kafka 0.7 should be.
cdef enum Fault07:
    MESSAGE_VALID = 0
    MESSAGE_CUT = 1             # the memory ends before the message does
    MESSAGE_SHORT = 2           # the length is negative, or too small for the header
    MESSAGE_MAGIC = 3           # the magic is neither 0 nor 1
    MESSAGE_CRC = 4             # the payload does not have the CRC in the header

ctypedef struct Message07:
    int32_t length              # the length field, which does not count itself
    int32_t payload             # size of the payload in bytes
    uint8_t magic
    uint8_t codec               # low two bits of the attributes; 0 with magic 0

# Look at the message at `at`, before `end`, and check its CRC. `length` is set if four bytes are there, the rest only
# for MESSAGE_VALID.
cdef Fault07 look_at(const uint8_t *at, const uint8_t *end, Message07 *found) noexcept nogil
