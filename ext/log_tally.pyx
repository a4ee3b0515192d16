"""Counts what is in the batches of a partition: records, bytes, codecs, keys, producers, gaps, timestamps."""

cimport cython
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy, memset

from kafkapy._ext.batch cimport DELETE_HORIZON_BIT, HEADER_SIZE
from kafkapy._ext.cursor cimport load16
from kafkapy._ext.int_map cimport int_map_free, int_map_get, int_map_put
from kafkapy._ext.legacy cimport MSG_FIELDS_V0, MSG_FIELDS_V1
from kafkapy._ext.stored_records cimport (
    STORED_BATCH, STORED_DAMAGE, STORED_END, STORED_MORE, STORED_RECORD, Stored, StoredBatch, StoredRecords,
)

cdef enum:
    ABORT = 0
    COMMIT = 1

cdef int64_t MOST = 0x7FFFFFFFFFFFFFFF


cdef inline int _bits(uint64_t number) noexcept nogil:
    """Return the index of a number in a histogram by powers of two."""
    cdef int bits = 0
    while number:
        number >>= 1
        bits += 1
    return bits if bits < SIZES else SIZES - 1


@cython.final
cdef class LogTally:
    """Counts what is in the batches of one partition, which are fed to it in order.

    decompress: as in ColumnBuilder. key_memory: the most bytes of the table of keys, see key_totals.pxd. aborted:
    (producer id, first offset) of the aborted transactions, whose records compaction removes. check_crc: raise
    DamagedBatch for a batch with a wrong CRC.
    """

    def __cinit__(self, decompress, key_memory, *, aborted=(), bint check_crc=True) -> None:
        memset(&self._counts, 0, sizeof(Counts))
        memset(self._codecs, 0, sizeof(self._codecs))
        memset(self._formats, 0, sizeof(self._formats))
        memset(self._batch_sizes, 0, sizeof(self._batch_sizes))
        memset(self._batch_records, 0, sizeof(self._batch_records))
        memset(self._gaps, 0, sizeof(self._gaps))
        memset(self._moments, 0, sizeof(self._moments))
        memset(&self._by_id, 0, sizeof(IntMap))
        self._producers = NULL
        self._known = self._room = self._shift = 0
        self._any_moment = self._no_memory = False
        self.producers_left_out = 0
        self._counts.first_offset = self._counts.last_offset = self._previous = -1
        self._counts.min_timestamp = MOST
        self._counts.max_timestamp = self._counts.first_epoch = self._counts.last_epoch = -1
        self._previous_time = -1
        self._walk = StoredRecords.__new__(StoredRecords, decompress, check_crc)
        self._aborted = AbortedTransactions(aborted)
        self.keys = KeyTotals(key_memory)

    def __dealloc__(self) -> None:
        int_map_free(&self._by_id)
        PyMem_RawFree(self._producers)

    def feed(self, buffer, Py_ssize_t position=0) -> int:
        """Count the complete batches of a buffer; return the end of the last one.

        Raises DamagedBatch: the batches before are counted, and the readable records of the damaged batch.
        """
        cdef Stored found
        self._in_batch = False
        self._walk.open(buffer, position)
        try:
            while True:
                with nogil:
                    found = self._run()
                    # The waiting keys are in memory that is freed below.
                    if not self.keys.flush():
                        self._no_memory = True
                if self._no_memory or self._aborted.failed:
                    raise MemoryError
                if found == STORED_DAMAGE:
                    raise self._walk.damage()
                if found != STORED_MORE:
                    return self._walk.position
                self._walk.fill()
        finally:
            self._walk.close()

    cdef Stored _run(self) noexcept nogil:
        cdef Stored found
        while True:
            if not self._in_batch:
                found = self._walk.next_batch()
                if found != STORED_BATCH:
                    return found
                self._in_batch = True
                self._begin_batch()
            found = self._walk.next_record()
            if found == STORED_RECORD:
                self._record()
            elif found == STORED_END:
                self._end_batch()
                self._in_batch = False
            else:
                return found
            if self._no_memory:
                return STORED_END

    # --- batches

    cdef void _begin_batch(self) noexcept nogil:
        cdef StoredBatch *batch = &self._walk.batch
        self._batch_count = self._batch_unpacked = 0
        self._dropped = self._aborted.drops(batch)
        self._producer = -1
        if batch.producer_id >= 0:
            self._producer = self._producer_of()

    cdef void _end_batch(self) noexcept nogil:
        cdef StoredBatch *batch = &self._walk.batch
        cdef Counts *counts = &self._counts
        cdef ByCodec *codec = &self._codecs[batch.codec & (CODECS - 1)]
        cdef ByFormat *form = &self._formats[batch.magic]
        cdef Producer *producer
        cdef int64_t header = HEADER_SIZE
        counts.batches += 1
        counts.bytes += batch.size
        counts.empty_batches += self._batch_count == 0
        counts.append_time_batches += batch.timestamp_type == 1
        counts.delete_horizon_batches += batch.magic == 2 and (batch.attributes & DELETE_HORIZON_BIT) != 0
        if batch.control:
            counts.control_batches += 1
            counts.control_bytes += batch.size
        if batch.size > counts.largest_batch:
            counts.largest_batch = batch.size
        if counts.last_offset >= 0 and batch.last_offset <= counts.last_offset:
            counts.backward += 1
        counts.last_offset = batch.last_offset
        if batch.leader_epoch >= 0:
            if counts.first_epoch < 0:
                counts.first_epoch = batch.leader_epoch
            counts.last_epoch = batch.leader_epoch
        # Overhead is what is not a record: nothing in a message; in a wrapper, everything around its messages.
        if batch.magic < 2:
            header = 0 if batch.codec == 0 else (MSG_FIELDS_V1 if batch.magic else MSG_FIELDS_V0) + 8
        codec.batches += 1
        codec.records += 0 if batch.control else self._batch_count
        codec.bytes += batch.size
        codec.packed += batch.size - header if batch.size > header else 0
        codec.unpacked += self._batch_unpacked
        form.batches += 1
        form.records += 0 if batch.control else self._batch_count
        form.bytes += batch.size
        self._batch_sizes[_bits(<uint64_t>batch.size)] += 1
        self._batch_records[_bits(<uint64_t>self._batch_count)] += 1
        if self._producer >= 0:
            producer = &self._producers[self._producer]
            producer.batches += 1
            producer.bytes += batch.size
            producer.last_offset = batch.last_offset
            producer.epoch = batch.producer_epoch
            if batch.base_sequence >= 0:
                producer.last_sequence = <int32_t>(
                    (<int64_t>batch.base_sequence + batch.last_offset - batch.base_offset) & 0x7FFFFFFF)

    cdef int32_t _producer_of(self) noexcept nogil:
        """Return the index of the batch's producer, -1 if MOST_PRODUCERS others came before it."""
        cdef int64_t found = int_map_get(&self._by_id, self._walk.batch.producer_id)
        cdef int32_t room
        cdef Producer *grown
        if found >= 0:
            return <int32_t>found
        if self._known == MOST_PRODUCERS:
            self.producers_left_out += 1        # counts their batches
            return -1
        if self._known == self._room:
            room = self._room * 2 if self._room else 16
            grown = <Producer *>PyMem_RawRealloc(self._producers, room * sizeof(Producer))
            if grown == NULL:
                self._no_memory = True
                return -1
            self._producers = grown
            self._room = room
        if not int_map_put(&self._by_id, self._walk.batch.producer_id, self._known):
            self._no_memory = True
            return -1
        memset(&self._producers[self._known], 0, sizeof(Producer))
        self._producers[self._known].id = self._walk.batch.producer_id
        self._producers[self._known].first_offset = self._walk.batch.base_offset
        self._producers[self._known].open_first = -1
        self._producers[self._known].last_sequence = -1
        self._known += 1
        return self._known - 1

    # --- records

    cdef void _record(self) noexcept nogil:
        cdef Counts *counts = &self._counts
        cdef int64_t offset = self._walk.offset, size = self._walk.stored
        cdef Producer *producer
        self._batch_count += 1
        self._batch_unpacked += size
        if counts.first_offset < 0:
            counts.first_offset = offset
        elif offset > self._previous and offset - self._previous != 1:
            self._gap(self._previous, offset - self._previous - 1)
        self._previous = offset
        if self._walk.batch.control:
            counts.control_records += 1
            self._marker()
            return
        counts.records += 1
        counts.record_bytes += size
        if size > counts.largest_record:
            counts.largest_record = size
        counts.key_bytes += self._walk.record.key_length
        counts.value_bytes += self._walk.record.value_length
        counts.headers += self._walk.record.header_count
        counts.with_headers += self._walk.record.header_count != 0
        self._time(self._walk.timestamp, size)
        if self._producer >= 0:
            producer = &self._producers[self._producer]
            producer.records += 1
            if self._walk.batch.transactional:
                counts.transactional_records += 1
                if producer.open_first < 0:
                    producer.open_first = offset
                producer.open_records += 1
                producer.open_bytes += size
        if self._walk.record.key == NULL:
            counts.null_keys += 1
            counts.null_values += self._walk.record.value == NULL
        else:
            counts.tombstones += self._walk.record.value == NULL
        if self._dropped:
            counts.dropped_records += 1
            counts.dropped_bytes += size
        elif self._walk.record.key == NULL:
            counts.keyless_records += 1
            counts.keyless_bytes += size
        else:
            counts.keyed_records += 1
            counts.keyed_bytes += size
            if not self.keys.add(self._walk.record.key, self._walk.record.key_length, size,
                                 self._walk.record.value == NULL):
                self._no_memory = True

    cdef void _marker(self) noexcept nogil:
        """Count the record of a control batch, which ends its producer's transaction."""
        cdef Producer *producer
        cdef int kind = -1
        if self._walk.record.key_length >= 4:
            kind = load16(self._walk.record.key + 2)
        if kind == ABORT:
            self._aborted.ended(self._walk.batch.producer_id)
            self._counts.aborted += 1
        elif kind == COMMIT:
            self._counts.committed += 1
        else:
            return
        if self._producer >= 0:
            producer = &self._producers[self._producer]
            if kind == ABORT:
                self._counts.aborted_records += producer.open_records
                self._counts.aborted_bytes += producer.open_bytes
            producer.open_first = -1
            producer.open_records = producer.open_bytes = 0

    cdef void _gap(self, int64_t after, int64_t missing) noexcept nogil:
        cdef int i, smallest = 0
        self._counts.gaps += 1
        self._counts.missing += missing
        for i in range(1, GAPS):
            if self._gaps[i].missing < self._gaps[smallest].missing:
                smallest = i
        if missing > self._gaps[smallest].missing:
            self._gaps[smallest].after = after
            self._gaps[smallest].missing = missing

    # --- times

    cdef void _time(self, int64_t timestamp, int64_t size) noexcept nogil:
        cdef Counts *counts = &self._counts
        cdef int64_t place
        if timestamp == -1:
            counts.without_timestamp += 1
            return
        counts.out_of_order += timestamp < self._previous_time
        self._previous_time = timestamp
        if timestamp < counts.min_timestamp:
            counts.min_timestamp = timestamp
        if timestamp > counts.max_timestamp or counts.records - counts.without_timestamp == 1:
            counts.max_timestamp = timestamp
        if not self._any_moment:
            self._any_moment = True
            self._origin = timestamp
        place = (timestamp >> self._shift) - self._origin
        if (timestamp >> self._shift) < self._origin or <uint64_t>place >= MOMENTS:
            self._widen(timestamp)
            place = (timestamp >> self._shift) - self._origin
        self._moments[place].records += 1
        self._moments[place].bytes += size

    cdef void _widen(self, int64_t timestamp) noexcept nogil:
        """Make room for a timestamp on the time line, by combining intervals if necessary."""
        cdef Moment moved[MOMENTS]
        cdef int low = 0, high = MOMENTS - 1, by = 0, i
        cdef int64_t begin, end, place
        while low < MOMENTS - 1 and self._moments[low].records == 0:
            low += 1
        while high > low and self._moments[high].records == 0:
            high -= 1
        begin = min(self._origin + low, timestamp >> self._shift)
        end = max(self._origin + high, timestamp >> self._shift)
        while <uint64_t>end - <uint64_t>begin >= MOMENTS:
            begin >>= 1
            end >>= 1
            by += 1
        memset(moved, 0, sizeof(moved))
        for i in range(low, high + 1):
            if self._moments[i].records:
                place = ((self._origin + i) >> by) - begin
                moved[place].records += self._moments[i].records
                moved[place].bytes += self._moments[i].bytes
        memcpy(self._moments, moved, sizeof(moved))
        self._origin = begin
        self._shift += by

    # --- Python

    def counts(self) -> dict[str, int]:
        """Return the counts by name, see log_tally.pxd; the timestamps are None if no record has one."""
        cdef dict found = self._counts
        cdef int32_t i
        if found["without_timestamp"] == found["records"]:
            found["min_timestamp"] = found["max_timestamp"] = None
        for i in range(self._known):
            found["open_records"] += self._producers[i].open_records
        return found

    def codecs(self) -> dict[int, dict[str, int]]:
        """Return batches, records, bytes, packed and unpacked by number of the codec."""
        return {i: self._codecs[i] for i in range(CODECS) if self._codecs[i].batches}

    def formats(self) -> dict[int, dict[str, int]]:
        """Return batches, records and bytes by message format."""
        return {i: self._formats[i] for i in range(FORMATS) if self._formats[i].batches}

    def histograms(self) -> tuple[list[int], list[int]]:
        """Return batches by their bytes and by their records: number i counts those from 2^(i-1) to less than 2^i."""
        return [self._batch_sizes[i] for i in range(SIZES)], [self._batch_records[i] for i in range(SIZES)]

    def producers(self) -> list[dict[str, int]]:
        """Return the producers in the order of their first batches; open_first is -1 without an open transaction."""
        return [self._producers[i] for i in range(self._known)]

    def gaps(self) -> list[tuple[int, int]]:
        """Return (offset before the gap, missing offsets) of the largest gaps, ordered by offset."""
        return sorted((self._gaps[i].after, self._gaps[i].missing) for i in range(GAPS) if self._gaps[i].missing)

    def moments(self) -> tuple[int, list[tuple[int, int, int]]]:
        """Return the width of an interval in ms, and (begin, records, bytes) of each interval that has records."""
        cdef int64_t i
        return <int64_t>1 << self._shift, [
            ((self._origin + i) << self._shift, self._moments[i].records, self._moments[i].bytes)
            for i in range(MOMENTS)
            if self._moments[i].records
        ]
