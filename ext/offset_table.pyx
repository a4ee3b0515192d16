"""The committed offsets of one partition of __consumer_offsets; see offset_table.pxd.

A commit is returned as (offset, leader epoch, metadata, commit timestamp, expire timestamp), with -1 for none: the
fields of kafkapy.coordinator.offset_records.CommittedOffset. Not thread-safe.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from kafkapy._ext.int_map cimport int_map_free, int_map_get, int_map_put, int_map_remove
from kafkapy._ext.name_pool cimport (
    Name, names_begin, names_end, names_find, names_keep, names_memory, names_release, names_take,
)
from kafkapy._ext.offset_commit cimport KEY_OFFSET, read_offset_key, read_offset_value

from kafkapy.errors import ProtocolError

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    FIRST = 16                  # initial number of entries
    FIRST_SLOTS = 32
    EXTRA_HEAD = 12             # bytes of an Extra before its text

ENTRY_BYTES = sizeof(Entry)


@cython.final
cdef class OffsetTable:
    """Offsets by group, topic and partition, both committed and staged in open transactions."""

    def __cinit__(self) -> None:
        names_begin(&self._groups)
        names_begin(&self._topics)
        memset(&self._producers, 0, sizeof(IntMap))
        self._entries = NULL
        self._slots = NULL
        self._transactions = NULL
        self._room = self._used = 0
        self._free = self._transactions_free = -1
        self._transactions_room = self._transactions_used = 0
        self._mask = 0
        self._filled = self._extra_bytes = self.offsets = 0
        self._order = -1
        self._hasher = KeyMap(1024)

    def __dealloc__(self) -> None:
        cdef int32_t i
        for i in range(self._used):
            if self._entries[i].used:
                free(self._entries[i].extra)
        free(self._entries)
        free(self._slots)
        free(self._transactions)
        int_map_free(&self._producers)
        names_end(&self._groups)
        names_end(&self._topics)

    def __len__(self) -> int:
        return self.offsets

    @property
    def memory(self) -> int:
        """The bytes in use, without malloc's overhead. Only tests use this, to limit the memory of an offset."""
        size = self._room * sizeof(Entry) + self._extra_bytes
        size += names_memory(&self._groups) + names_memory(&self._topics)
        size += self._transactions_room * sizeof(OpenTransaction)
        return size + ((self._mask + 1) * sizeof(int32_t) if self._slots != NULL else 0)

    # --- records

    def apply(self, records, int64_t producer_id=-1) -> None:
        """Apply records that were appended to the log as one batch: (key, value) each, value None for a tombstone.

        Records of other kinds are ignored. With a producer id, the offsets are staged in the producer's transaction.
        Raises ProtocolError for a value that cannot be decoded.
        """
        cdef OffsetKeyView key
        cdef OffsetValueView value
        cdef bytes raw
        cdef int64_t order = self._order + 1
        for one in records:
            raw = one[0]
            if read_offset_key(<const uint8_t *>PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw), &key) != KEY_OFFSET:
                continue
            if one[1] is None:
                self.drop(&key, producer_id)
                continue
            raw = one[1]
            if not read_offset_value(<const uint8_t *>PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw), &value):
                raise ProtocolError(f"{raw!r} is not the value of an offset commit")
            if not self.put(&key, &value, order, producer_id):
                raise MemoryError
        self._order = order

    def end_transaction(self, int64_t producer_id, bint committed) -> None:
        """Apply the offsets that the producer's transaction staged (`committed`), or discard them."""
        if not self.end(producer_id, committed):
            raise MemoryError

    cdef bint put(
        self, const OffsetKeyView *key, const OffsetValueView *value, int64_t order, int64_t producer_id
    ) noexcept nogil:
        cdef int32_t transaction = -1, group, topic
        cdef bint done
        if order > self._order:
            self._order = order
        if producer_id >= 0:
            transaction = self._open(producer_id)
            if transaction < 0:
                return False
        group = names_take(&self._groups, key.group, key.group_length, self._hash(key.group, key.group_length))
        if group < 0:
            return False
        topic = names_take(&self._topics, key.topic, key.topic_length, self._hash(key.topic, key.topic_length))
        if topic < 0:
            names_release(&self._groups, group)
            return False
        done = self._upsert(group, topic, key.partition, transaction, value, order)
        names_release(&self._groups, group)
        names_release(&self._topics, topic)
        return done

    cdef void drop(self, const OffsetKeyView *key, int64_t producer_id) noexcept nogil:
        cdef int32_t transaction = -1, group, topic, at
        if producer_id >= 0:
            transaction = <int32_t>int_map_get(&self._producers, producer_id)
            if transaction < 0:
                return
        group = names_find(&self._groups, key.group, key.group_length, self._hash(key.group, key.group_length))
        topic = names_find(&self._topics, key.topic, key.topic_length, self._hash(key.topic, key.topic_length))
        if group >= 0 and topic >= 0:
            at = self._find(group, topic, key.partition, transaction)
            if at >= 0:
                self._remove(at)

    cdef bint end(self, int64_t producer_id, bint committed) noexcept nogil:
        cdef int32_t transaction = <int32_t>int_map_get(&self._producers, producer_id), at
        cdef OffsetValueView value
        cdef Entry staged
        if transaction < 0:
            return True
        while self._transactions[transaction].first >= 0:
            at = self._transactions[transaction].first
            staged = self._entries[at]
            if committed:
                value.offset = staged.offset
                value.commit_timestamp = staged.commit_timestamp
                value.leader_epoch = staged.leader_epoch
                value.expire_timestamp = staged.extra.expire_timestamp if staged.extra != NULL else -1
                value.metadata_length = staged.extra.metadata_length if staged.extra != NULL else 0
                value.metadata = staged.extra.metadata if staged.extra != NULL else NULL
                if not self._upsert(staged.group, staged.topic, staged.partition, -1, &value, staged.order):
                    return False
            self._remove(at)
        int_map_remove(&self._producers, producer_id)
        self._transactions[transaction].used = False
        self._transactions[transaction].next_free = self._transactions_free
        self._transactions_free = transaction
        return True

    # --- entries

    cdef bint _upsert(
        self, int32_t group, int32_t topic, int32_t partition, int32_t transaction, const OffsetValueView *value,
        int64_t order
    ) noexcept nogil:
        """Add or overwrite an entry, unless its record is older. The caller holds a use of both names."""
        cdef int32_t at = self._find(group, topic, partition, transaction)
        cdef Entry *entry
        if at >= 0:
            if self._entries[at].order > order:
                return True
            self._entries[at].order = order
            return self._fill(&self._entries[at], value)
        at = self._take_entry()
        if at < 0:
            return False
        entry = &self._entries[at]
        memset(entry, 0, sizeof(Entry))
        entry.group = group
        entry.topic = topic
        entry.partition = partition
        entry.transaction = transaction
        entry.order = order
        if not self._fill(entry, value):
            entry.next = self._free
            self._free = at
            return False
        entry.used = 1
        names_keep(&self._groups, group)
        names_keep(&self._topics, topic)
        self._slots[self._slot(group, topic, partition, transaction)] = at + 1
        self._filled += 1
        self._link(at)
        return True

    cdef bint _fill(self, Entry *entry, const OffsetValueView *value) noexcept nogil:
        cdef Extra *extra = NULL
        if value.metadata_length or value.expire_timestamp != -1:
            extra = <Extra *>malloc(EXTRA_HEAD + value.metadata_length + 4)
            if extra == NULL:
                return False
            extra.expire_timestamp = value.expire_timestamp
            extra.metadata_length = value.metadata_length
            if value.metadata_length:
                memcpy(extra.metadata, value.metadata, value.metadata_length)
            self._extra_bytes += EXTRA_HEAD + value.metadata_length + 4
        if entry.extra != NULL:
            self._extra_bytes -= EXTRA_HEAD + entry.extra.metadata_length + 4
            free(entry.extra)
        entry.extra = extra
        entry.offset = value.offset
        entry.leader_epoch = value.leader_epoch
        entry.commit_timestamp = value.commit_timestamp
        return True

    cdef void _remove(self, int32_t at) noexcept nogil:
        cdef Entry *entry = &self._entries[at]
        cdef uint64_t hole = self._slot(entry.group, entry.topic, entry.partition, entry.transaction), place, home
        cdef Entry *other
        # Close the hole, since a search ends at the first free slot: move back each following entry of the run, unless
        # the hole is before the slot where the search for that entry begins.
        place = hole
        while True:
            place = (place + 1) & self._mask
            if self._slots[place] == 0:
                break
            other = &self._entries[self._slots[place] - 1]
            home = _home(other.group, other.topic, other.partition, other.transaction) & self._mask
            if ((place - home) & self._mask) >= ((place - hole) & self._mask):
                self._slots[hole] = self._slots[place]
                hole = place
        self._slots[hole] = 0
        self._filled -= 1
        self._unlink(at)
        if entry.extra != NULL:
            self._extra_bytes -= EXTRA_HEAD + entry.extra.metadata_length + 4
            free(entry.extra)
        names_release(&self._groups, entry.group)
        names_release(&self._topics, entry.topic)
        entry.used = 0
        entry.next = self._free
        self._free = at

    cdef int32_t _find(self, int32_t group, int32_t topic, int32_t partition, int32_t transaction) noexcept nogil:
        if self._slots == NULL:
            return -1
        return self._slots[self._slot(group, topic, partition, transaction)] - 1

    cdef uint64_t _slot(self, int32_t group, int32_t topic, int32_t partition, int32_t transaction) noexcept nogil:
        """Return the slot of the entry, or the free slot where it would go."""
        cdef uint64_t at = _home(group, topic, partition, transaction) & self._mask
        cdef const Entry *entry
        while self._slots[at]:
            entry = &self._entries[self._slots[at] - 1]
            if (entry.group == group and entry.topic == topic and entry.partition == partition
                    and entry.transaction == transaction):
                break
            at = (at + 1) & self._mask
        return at

    cdef int32_t _take_entry(self) noexcept nogil:
        """Return a free entry, with at least one free slot for it; -1 if there is no memory."""
        cdef int32_t at = self._free, room
        cdef Entry *entries
        if self._slots == NULL or <uint64_t>(self._filled + 1) * 4 > (self._mask + 1) * 3:
            if not self._grow():
                return -1
        if at >= 0:
            self._free = self._entries[at].next
            return at
        if self._used == self._room:
            room = self._room + self._room // 4 + FIRST
            entries = <Entry *>realloc(self._entries, <size_t>room * sizeof(Entry))
            if entries == NULL:
                return -1
            self._entries = entries
            self._room = room
        self._used += 1
        return self._used - 1

    cdef bint _grow(self) noexcept nogil:
        cdef uint64_t size = (self._mask + 1) * 2 if self._slots != NULL else FIRST_SLOTS, at
        cdef int32_t *slots = <int32_t *>calloc(size, sizeof(int32_t))
        cdef int32_t i
        cdef const Entry *entry
        if slots == NULL:
            return False
        for i in range(self._used):
            entry = &self._entries[i]
            if entry.used:
                at = _home(entry.group, entry.topic, entry.partition, entry.transaction) & (size - 1)
                while slots[at]:
                    at = (at + 1) & (size - 1)
                slots[at] = i + 1
        free(self._slots)
        self._slots = slots
        self._mask = size - 1
        return True

    cdef void _link(self, int32_t at) noexcept nogil:
        cdef Entry *entry = &self._entries[at]
        cdef int32_t *head = &self._groups.names[entry.group].first
        if entry.transaction >= 0:
            head = &self._transactions[entry.transaction].first
        else:
            self._groups.names[entry.group].count += 1
            self.offsets += 1
        entry.previous = -1
        entry.next = head[0]
        if entry.next >= 0:
            self._entries[entry.next].previous = at
        head[0] = at

    cdef void _unlink(self, int32_t at) noexcept nogil:
        cdef Entry *entry = &self._entries[at]
        if entry.transaction < 0:
            self._groups.names[entry.group].count -= 1
            self.offsets -= 1
        if entry.next >= 0:
            self._entries[entry.next].previous = entry.previous
        if entry.previous >= 0:
            self._entries[entry.previous].next = entry.next
        elif entry.transaction >= 0:
            self._transactions[entry.transaction].first = entry.next
        else:
            self._groups.names[entry.group].first = entry.next

    cdef int32_t _open(self, int64_t producer_id) noexcept nogil:
        """Return the producer's open transaction, a new one if necessary; -1 if there is no memory."""
        cdef int32_t at = <int32_t>int_map_get(&self._producers, producer_id), room
        cdef OpenTransaction *transactions
        if at >= 0:
            return at
        at = self._transactions_free
        if at < 0:
            if self._transactions_used == self._transactions_room:
                room = self._transactions_room * 2 if self._transactions_room else FIRST
                transactions = <OpenTransaction *>realloc(self._transactions, room * sizeof(OpenTransaction))
                if transactions == NULL:
                    return -1
                self._transactions = transactions
                self._transactions_room = room
            at = self._transactions_used
            self._transactions[at].next_free = -1
        if not int_map_put(&self._producers, producer_id, at):
            return -1
        if at == self._transactions_used:
            self._transactions_used += 1
        else:
            self._transactions_free = self._transactions[at].next_free
        self._transactions[at].producer_id = producer_id
        self._transactions[at].first = -1
        self._transactions[at].used = True
        return at

    cdef uint64_t _hash(self, const uint8_t *text, Py_ssize_t length) noexcept nogil:
        return self._hasher.hash_of(text, length).low

    # --- queries from Python

    cdef int32_t _group(self, str group) except -2:
        cdef Py_ssize_t length = 0
        cdef const uint8_t *text = <const uint8_t *>PyUnicode_AsUTF8AndSize(group, &length)
        return names_find(&self._groups, text, <int32_t>length, self._hash(text, length))

    cdef int32_t _topic(self, str topic) except -2:
        cdef Py_ssize_t length = 0
        cdef const uint8_t *text = <const uint8_t *>PyUnicode_AsUTF8AndSize(topic, &length)
        return names_find(&self._topics, text, <int32_t>length, self._hash(text, length))

    cdef int32_t _committed(self, str group, str topic, int32_t partition) except -2:
        cdef int32_t group_number = self._group(group), topic_number
        if group_number < 0:
            return -1
        topic_number = self._topic(topic)
        return self._find(group_number, topic_number, partition, -1) if topic_number >= 0 else -1

    cdef object _commit(self, const Entry *entry):
        if entry.extra == NULL:
            return (entry.offset, entry.leader_epoch, "", entry.commit_timestamp, -1)
        return (
            entry.offset,
            entry.leader_epoch,
            PyUnicode_DecodeUTF8(<const char *>entry.extra.metadata, entry.extra.metadata_length, "replace"),
            entry.commit_timestamp,
            entry.extra.expire_timestamp,
        )

    def get(self, str group, str topic, int32_t partition) -> object:
        """Return the committed offset of a partition, or None."""
        cdef int32_t at = self._committed(group, topic, partition)
        return self._commit(&self._entries[at]) if at >= 0 else None

    def remove(self, str group, str topic, int32_t partition) -> bool:
        """Remove the committed offset of a partition; return False if there was none."""
        cdef int32_t at = self._committed(group, topic, partition)
        if at >= 0:
            self._remove(at)
        return at >= 0

    def unstage(self, str group, str topic, int32_t partition) -> None:
        """Remove a partition from every open transaction."""
        cdef int32_t group_number = self._group(group), topic_number = self._topic(topic), i, at
        if group_number < 0 or topic_number < 0:
            return
        for i in range(self._transactions_used):
            if self._transactions[i].used:
                at = self._find(group_number, topic_number, partition, i)
                if at >= 0:
                    self._remove(at)
                    if self._group(group) < 0 or self._topic(topic) < 0:
                        return

    def count(self, str group) -> int:
        """Return how many committed offsets the group has."""
        cdef int32_t number = self._group(group)
        return self._groups.names[number].count if number >= 0 else 0

    def groups(self) -> list:
        """Return all groups that have committed offsets."""
        cdef int32_t i
        return [
            _decoded(&self._groups.names[i])
            for i in range(self._groups.used)
            if self._groups.names[i].uses and self._groups.names[i].count
        ]

    def of_group(self, str group) -> list:
        """Return (topic, partition, commit) for each committed offset of the group, the newest partition first."""
        cdef int32_t number = self._group(group), at
        cdef Entry *entry
        found = []
        if number < 0:
            return found
        at = self._groups.names[number].first
        topics = {}
        while at >= 0:
            entry = &self._entries[at]
            topic = topics.get(entry.topic)
            if topic is None:
                topic = topics[entry.topic] = _decoded(&self._topics.names[entry.topic])
            found.append((topic, entry.partition, self._commit(entry)))
            at = entry.next
        return found

    def expired(
        self, str group, int64_t now, int64_t retention, since=None, int32_t after=-1, int32_t looked_at=1000,
        Py_ssize_t most=100
    ) -> tuple:
        """Return ([(topic, partition)], next) with expired offsets of the group; pass `next` as `after` to continue, -1
        means the end. One call examines at most `looked_at` offsets and returns at most `most`.

        An offset expires at the time in its commit, otherwise `retention` ms after `since` (None: after its commit).
        """
        cdef int32_t number = self._group(group), at = after, looked = 0
        cdef bint from_commit = since is None
        cdef int64_t base = -1 if from_commit else since
        cdef Entry *entry
        found = []
        if number < 0:
            return found, -1
        if at < 0:
            at = self._groups.names[number].first
        elif not self._is_of(at, number):
            return found, -1    # the entry `after` was removed in between: the next round finds the rest
        while at >= 0 and looked < looked_at and len(found) < most:
            entry = &self._entries[at]
            if entry.extra != NULL and entry.extra.expire_timestamp != -1:
                if now >= entry.extra.expire_timestamp:
                    found.append((_decoded(&self._topics.names[entry.topic]), entry.partition))
            elif now - (entry.commit_timestamp if from_commit else base) >= retention:
                found.append((_decoded(&self._topics.names[entry.topic]), entry.partition))
            at = entry.next
            looked += 1
        return found, at

    cdef bint _is_of(self, int32_t at, int32_t group) noexcept nogil:
        cdef const Entry *entry = &self._entries[at]
        return at < self._used and entry.used and entry.group == group and entry.transaction < 0

    def of_topic(self, str topic, int32_t begin=0, int32_t limit=20000) -> tuple:
        """Return ([(group, partition)], next) with the topic's offsets, committed or staged, among `limit` entries from
        entry `begin` on. Pass `next` as `begin` to continue; -1 means the end."""
        cdef int32_t number = self._topic(topic), at, end
        cdef Entry *entry
        found = []
        if number < 0 or begin < 0:
            return found, -1
        end = self._used if self._used - begin <= limit else begin + limit
        for at in range(begin, end):
            entry = &self._entries[at]
            if entry.used and entry.topic == number:
                found.append((_decoded(&self._groups.names[entry.group]), entry.partition))
        return found, end if end < self._used else -1

    def staged(self) -> list:
        """Return (producer id, group, topic, partition) for each offset in an open transaction."""
        cdef int32_t i, at
        cdef Entry *entry
        found = []
        for i in range(self._transactions_used):
            if not self._transactions[i].used:
                continue
            at = self._transactions[i].first
            while at >= 0:
                entry = &self._entries[at]
                found.append((
                    self._transactions[i].producer_id, _decoded(&self._groups.names[entry.group]),
                    _decoded(&self._topics.names[entry.topic]), entry.partition,
                ))
                at = entry.next
        return found


cdef object _decoded(const Name *name):
    return PyUnicode_DecodeUTF8(<const char *>name.text, name.length, "replace")


# The finalizer of MurmurHash3 (Appleby), twice. Its input is numbers that the table assigns itself, and partition
# numbers of existing topics: no client can choose them to collide.
cdef inline uint64_t _mix(uint64_t word) noexcept nogil:
    word = (word ^ word >> 33) * <uint64_t>0xFF51AFD7ED558CCD
    word = (word ^ word >> 33) * <uint64_t>0xC4CEB9FE1A85EC53
    return word ^ word >> 33


cdef inline uint64_t _home(int32_t group, int32_t topic, int32_t partition, int32_t transaction) noexcept nogil:
    cdef uint64_t names = <uint64_t>group << 32 | <uint64_t>topic
    return _mix(_mix(names) ^ (<uint64_t>partition << 32 ^ <uint64_t>(transaction + 1)))
