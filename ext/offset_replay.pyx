"""Loads committed offsets from stored batches; see offset_replay.pxd.

Source: Kafka's GroupMetadataManager.doLoadGroupsAndOffsets.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t

from kafkapy._ext.cursor cimport load16
from kafkapy._ext.offset_commit cimport (
    KEY_DAMAGED, KEY_OTHER, KeyKind, OffsetKeyView, OffsetValueView, read_offset_key, read_offset_value,
)
from kafkapy._ext.stored_records cimport STORED_BATCH, STORED_DAMAGE, STORED_END, STORED_MORE, STORED_RECORD, Stored

from kafkapy._ext.stored_records import DamagedBatch


@cython.final
cdef class OffsetReplay:
    """Loads offsets into `table`. `decompress(codec, view, magic)` yields a batch's records in pieces and raises
    ValueError; `others(key, value)` is called for each record of another kind, in order."""

    def __cinit__(self, OffsetTable table not None, decompress, others) -> None:
        self._table = table
        self._walk = StoredRecords(decompress)
        self._others = others
        self._in_batch = False
        self.records = 0
        self.next_offset = -1

    def feed(self, buffer, Py_ssize_t position=0) -> int:
        """Load all complete batches from byte `position` on; return the end of the last one.

        Raises DamagedBatch, a ValueError, for an invalid batch (also for a wrong CRC), and for a record that does not
        belong into __consumer_offsets.
        """
        cdef Pause pause
        cdef StoredRecords walk = self._walk
        walk.open(buffer, position)
        self._in_batch = False
        try:
            while True:
                with nogil:
                    pause = self._run()
                if pause == PAUSE_END:
                    return walk.position
                if pause == PAUSE_FILL:
                    walk.fill()
                elif pause == PAUSE_OTHER:
                    self._others(
                        PyBytes_FromStringAndSize(<const char *>walk.record.key, walk.record.key_length),
                        None if walk.record.value == NULL
                        else PyBytes_FromStringAndSize(<const char *>walk.record.value, walk.record.value_length),
                    )
                elif pause == PAUSE_DAMAGE:
                    raise walk.damage()
                elif pause == PAUSE_RECORD:
                    raise DamagedBatch(
                        walk.batch.position,
                        f"(base offset {walk.batch.base_offset}) has a record at offset {walk.offset} whose key or "
                        "value is not valid in __consumer_offsets",
                    )
                else:
                    raise MemoryError
        finally:
            walk.close()

    cdef Pause _run(self) noexcept nogil:
        cdef Stored found
        cdef Pause pause
        while True:
            if not self._in_batch:
                found = self._walk.next_batch()
                if found == STORED_DAMAGE:
                    return PAUSE_DAMAGE
                if found != STORED_BATCH:
                    return PAUSE_END
                self._in_batch = True
            found = self._walk.next_record()
            if found == STORED_RECORD:
                self.records += 1
                pause = self._marker() if self._walk.batch.control else self._record()
                if pause != PAUSE_END:
                    return pause
            elif found == STORED_END:
                self._in_batch = False
                self.next_offset = self._walk.batch.last_offset + 1
            elif found == STORED_MORE:
                return PAUSE_FILL
            else:
                return PAUSE_DAMAGE

    cdef Pause _record(self) noexcept nogil:
        cdef OffsetKeyView key
        cdef OffsetValueView value
        cdef int64_t producer_id = self._walk.batch.producer_id if self._walk.batch.transactional else -1
        cdef KeyKind kind = read_offset_key(self._walk.record.key, self._walk.record.key_length, &key)
        if kind == KEY_OTHER:
            return PAUSE_OTHER
        if kind == KEY_DAMAGED:
            return PAUSE_RECORD
        if self._walk.record.value == NULL:
            self._table.drop(&key, producer_id)
        elif not read_offset_value(self._walk.record.value, self._walk.record.value_length, &value):
            return PAUSE_RECORD
        elif not self._table.put(&key, &value, self._walk.batch.base_offset, producer_id):
            return PAUSE_MEMORY
        return PAUSE_END

    cdef Pause _marker(self) noexcept nogil:
        # A control record's key is a version and a type.
        cdef int16_t kind
        if self._walk.record.key == NULL or self._walk.record.key_length < 4:
            return PAUSE_RECORD
        kind = <int16_t>load16(self._walk.record.key + 2)
        if kind == MARKER_COMMIT or kind == MARKER_ABORT:
            if not self._table.end(self._walk.batch.producer_id, kind == MARKER_COMMIT):
                return PAUSE_MEMORY
        return PAUSE_END
