# A walk over stored batches of any format and their records, in plain memory and without Python objects for them. It is
# the base of statistics, columns and everything else that reads every record.
#
# Only compressed batches need the GIL: `next_record` then returns STORED_MORE, and `fill` gets the next piece. Typical
# use:
#
#     with nogil:
#         while True:
#             found = walk.next_batch()            # STORED_BATCH: walk.batch is set
#             ...
#             found = walk.next_record()           # STORED_RECORD: walk.record, .offset, ... are set
#
# and then, with the GIL, `walk.fill()` for STORED_MORE and `raise walk.damage()` for STORED_DAMAGE.

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from kafkapy._ext.message_sets cimport InnerSet, SetFault
from kafkapy._ext.records cimport RecordView
from kafkapy._ext.records cimport Step as RecordStep

cdef enum Stored:
    STORED_BATCH                # a complete batch, with a correct CRC if that is checked
    STORED_RECORD
    STORED_END                  # the end of the batch's records, or of the buffer, exactly after a batch
    STORED_PARTIAL              # the buffer ends inside a batch
    STORED_BEHIND               # a batch that begins after `last_wanted`; it is not checked
    STORED_MORE                 # call `fill`, then `next_record` again
    STORED_DAMAGE               # invalid: `damage` returns the exception

# Why a batch or record is invalid.
cdef enum Damage:
    DAMAGE_SIZE
    DAMAGE_MAGIC
    DAMAGE_CRC
    DAMAGE_COUNT                # a negative number of records
    DAMAGE_RECORD
    DAMAGE_LEFT_OVER            # bytes after the last record
    DAMAGE_MESSAGE              # key or value extends beyond the message
    DAMAGE_NO_VALUE             # a wrapper whose value is null
    DAMAGE_SET                  # a wrapper's messages

# A batch of format 2, or a message of format 0 or 1, for which the fields that it lacks have the value for "none". A
# message that is not compressed counts as a batch of one record; a wrapper has the `count` -1 until it is decompressed.
ctypedef struct StoredBatch:
    int64_t position            # in the buffer
    int64_t size                # including the 12 bytes of offset and length
    int64_t base_offset         # of a wrapper: the same as last_offset
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
    cdef Py_buffer _held            # keeps the buffer in place
    cdef bint _holding
    cdef object _buffer
    cdef const uint8_t *_start      # of the buffer
    cdef Py_ssize_t _size           # of the buffer
    cdef Py_ssize_t position        # where the next batch begins
    cdef int64_t last_wanted        # the last offset needed: batches of format 2 after it are not checked
    cdef StoredBatch batch          # the current batch
    # Its decompressed unread bytes:
    cdef const uint8_t *_at
    cdef const uint8_t *_stop
    cdef bint _ended                # nothing comes after _stop
    cdef object _pieces             # iterator of further pieces; of an earlier batch, or None, until the first fill
    cdef object _payload            # keeps _at valid: a wrapper's messages
    cdef uint8_t *_window           # memory for unread bytes of a compressed batch
    cdef Py_ssize_t _room
    cdef int32_t _index             # records read of this batch
    cdef InnerSet _inner            # of a wrapper
    # The current record:
    cdef RecordView record          # messages have no headers
    cdef int64_t offset
    cdef int64_t timestamp          # as a consumer gets it; -1: none
    cdef int32_t sequence           # -1: none
    cdef int64_t stored             # uncompressed bytes, including its length (a message: including offset and size)
    # Why the current batch is invalid:
    cdef Damage _damage
    cdef RecordStep _step
    cdef SetFault _fault
    cdef int64_t _missing

    # Begin at byte `position` of a buffer, which is held until the next `open` or `close`. After `close`, `batch` and
    # `position` keep their values.
    cdef int open(self, object buffer, Py_ssize_t position) except -1
    cdef int close(self) except -1

    # Go to the next batch, even if records of the current batch are unread.
    cdef Stored next_batch(self) noexcept nogil
    # Read the next record of the batch.
    cdef Stored next_record(self) noexcept nogil
    # After STORED_MORE: decompress a piece. Raises DamagedBatch.
    cdef int fill(self) except -1
    # After STORED_DAMAGE: return the exception to raise.
    cdef object damage(self)

    cdef Stored _damaged(self, Damage damage) noexcept nogil
    cdef Stored _open_batch(self, const uint8_t *at) noexcept nogil
    cdef Stored _open_message(self, const uint8_t *at, int64_t size) noexcept nogil
    cdef Stored _next_message(self) noexcept nogil
    cdef int _open_wrapper(self) except -1
    cdef int _keep(self, object piece) except -1
