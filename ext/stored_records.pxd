# A walk over stored batches of any format and their records, in plain memory and without a Python object for any of
# them: what statistics, columns and whatever else looks at every record stand on.
#
# The interpreter is needed only where a batch is compressed: next_record then answers STORED_MORE, and `fill` gets
# the next piece. Typical use:
#
#     with nogil:
#         while True:
#             found = walk.next_batch()            # STORED_BATCH: walk.batch is set
#             ...
#             found = walk.next_record()           # STORED_RECORD: walk.record, .offset, ... are set
#
# and, back with the lock, `walk.fill()` for STORED_MORE and `raise walk.damage()` for STORED_DAMAGE.

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from kafkapy._ext.message_sets cimport InnerSet, SetFault
from kafkapy._ext.records cimport RecordView
from kafkapy._ext.records cimport Step as RecordStep

cdef enum Stored:
    STORED_BATCH                # a whole batch, its checksum right where that is asked for
    STORED_RECORD
    STORED_END                  # of the batch's records; of the buffer, exactly behind a batch
    STORED_PARTIAL              # the buffer ends inside a batch
    STORED_BEHIND               # a batch that begins behind `last_wanted`; it is not looked at any closer
    STORED_MORE                 # call `fill` and ask again
    STORED_DAMAGE               # `damage` says what it is

# Why there is no batch or no record where there should be one.
cdef enum Damage:
    DAMAGE_SIZE
    DAMAGE_MAGIC
    DAMAGE_CRC
    DAMAGE_COUNT                # of records, negative
    DAMAGE_RECORD
    DAMAGE_LEFT_OVER            # bytes behind the last record
    DAMAGE_MESSAGE              # key or value go beyond the message
    DAMAGE_NO_VALUE             # a wrapper with null in it
    DAMAGE_SET                  # a wrapper's messages

# A batch of format 2, or a message of formats 0 and 1 with the fields that it has none of as of none. A message that
# is not compressed is a batch of one record, a wrapper one of `count` -1.
ctypedef struct StoredBatch:
    int64_t position            # in the buffer
    int64_t size                # with the 12 bytes of offset and length
    int64_t base_offset         # of a wrapper: as last_offset
    int64_t last_offset
    int64_t base_timestamp      # format 2
    int64_t max_timestamp       # -1: format 0
    int64_t producer_id         # -1: none
    int32_t leader_epoch        # -1: none
    int32_t base_sequence       # -1: none
    int32_t count
    int16_t attributes
    int16_t producer_epoch      # -1: none
    int8_t magic
    int8_t codec
    int8_t timestamp_type       # 0 create time, 1 append time, -1: format 0
    bint transactional
    bint control


@cython.final
cdef class StoredRecords:
    cdef object _decompress         # (codec, view, magic) -> pieces of bytes, within a limit; raises ValueError
    cdef bint _check_crc
    cdef Py_buffer _held            # keeps the buffer where it is
    cdef bint _holding
    cdef object _buffer
    cdef const uint8_t *_start      # of the buffer
    cdef Py_ssize_t _size           # of the buffer
    cdef Py_ssize_t position        # where the next batch begins
    cdef int64_t last_wanted        # an offset; what lies behind it may be damaged (format 2)
    cdef StoredBatch batch          # the current one
    # Its records: what is decompressed and not yet read of them.
    cdef const uint8_t *_at
    cdef const uint8_t *_stop
    cdef bint _ended                # nothing comes behind _stop
    cdef object _pieces             # where more comes from; None until the first fill
    cdef object _payload            # keeps _at alive: a wrapper's messages
    cdef uint8_t *_window           # memory for pieces of a compressed batch, with what was left of the last one
    cdef Py_ssize_t _room
    cdef int32_t _index             # records read of this batch
    cdef InnerSet _inner            # of a wrapper
    # The current record:
    cdef RecordView record          # messages have no headers
    cdef int64_t offset
    cdef int64_t timestamp          # as a consumer gets it; -1: none
    cdef int32_t sequence           # -1: none
    cdef int64_t stored             # bytes it takes uncompressed, with its length (a message: with offset and size)
    # What was found damaged:
    cdef Damage _damage
    cdef RecordStep _step
    cdef SetFault _fault
    cdef int64_t _missing

    # Begin at byte `position` of a buffer, which is held until the next `open` or `close`. `batch` and `position`
    # keep what they were after a `close`.
    cdef int open(self, object buffer, Py_ssize_t position) except -1
    cdef int close(self) except -1

    # Go to the next batch, whatever was read of the current one.
    cdef Stored next_batch(self) noexcept nogil
    # The next record of the batch.
    cdef Stored next_record(self) noexcept nogil
    # After STORED_MORE: decompress a piece. Raises DamagedBatch.
    cdef int fill(self) except -1
    # After STORED_DAMAGE: the exception for it.
    cdef object damage(self)

    cdef Stored _damaged(self, Damage damage) noexcept nogil
    cdef Stored _open_batch(self, const uint8_t *at) noexcept nogil
    cdef Stored _open_message(self, const uint8_t *at, int64_t size) noexcept nogil
    cdef Stored _next_message(self) noexcept nogil
    cdef int _open_wrapper(self) except -1
    cdef int _keep(self, object piece) except -1
