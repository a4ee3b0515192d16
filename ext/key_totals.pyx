"""The bytes of each key, in bounded memory; see key_totals.pxd."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from kafkapy._ext.int_map cimport int_map_free, int_map_get, int_map_put, int_map_remove
from kafkapy._ext.keymap cimport KeyHash

cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/mman.h>

    /* Slots are in the order of the hashes: a table is copied into a larger one from front to back. */
    static inline uint64_t kafkapy_slot(uint64_t hash, uint64_t slots) {
        return (uint64_t)((unsigned __int128)hash * slots >> 64);
    }
    static inline void kafkapy_fetch(const void *at) { __builtin_prefetch(at, 1); }
    static void *kafkapy_new_table(size_t size) {
        void *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return at == MAP_FAILED ? 0 : at;
    }
    static void kafkapy_free_table(void *at, size_t size) { if (at) munmap(at, size); }
    static void kafkapy_forget(void *at, size_t size) { madvise(at, size, MADV_DONTNEED); }
    """
    uint64_t kafkapy_slot(uint64_t hash, uint64_t slots) nogil
    void kafkapy_fetch(const void *at) nogil
    void *kafkapy_new_table(size_t size) nogil
    void kafkapy_free_table(void *at, size_t size) nogil
    void kafkapy_forget(void *at, size_t size) nogil

cdef enum:
    FIRST = 4096                # initial number of slots
    FORGET = 131072             # slots of the old table that are freed at a time while it is copied: whole pages, 3 MiB

KEY_BYTES = sizeof(KeySlot)


@cython.final
cdef class KeyTotals:
    """Counts bytes by key. `memory`: the most bytes of its table, of which three quarters of the slots are used."""

    def __cinit__(self, memory) -> None:
        self._slots = NULL
        self._top = NULL
        self._heap = NULL
        memset(&self._by_hash, 0, sizeof(IntMap))
        self._tops = 0
        self._came = self._went = 0
        self.sampled = 0
        self.halvings = 0
        self._most = max(16, memory // sizeof(KeySlot))
        self._size = min(<uint64_t>FIRST, self._most)
        self._hasher = KeyMap(1024)
        self._slots = <KeySlot *>kafkapy_new_table(self._size * sizeof(KeySlot))
        self._top = <TopKey *>malloc(TOP * sizeof(TopKey))
        self._heap = <int32_t *>malloc(TOP * sizeof(int32_t))
        if self._slots == NULL or self._top == NULL or self._heap == NULL:
            raise MemoryError

    def __dealloc__(self) -> None:
        kafkapy_free_table(self._slots, self._size * sizeof(KeySlot))
        free(self._top)
        free(self._heap)
        int_map_free(&self._by_hash)

    # --- the table

    cdef KeySlot *_find(self, uint64_t hash) noexcept nogil:
        """Return the slot of the hash, or the free slot where it would go."""
        cdef uint64_t at = kafkapy_slot(hash, self._size)
        while self._slots[at].bytes and self._slots[at].hash != hash:
            at = at + 1 if at + 1 < self._size else 0
        return &self._slots[at]

    cdef bint _grow(self) noexcept nogil:
        cdef KeySlot *old = self._slots
        cdef uint64_t size = self._size, i
        cdef KeySlot *larger
        self._size = size * 2 if size * 2 < self._most else self._most
        larger = <KeySlot *>kafkapy_new_table(self._size * sizeof(KeySlot))
        if larger == NULL:
            self._size = size
            return False
        self._slots = larger
        for i in range(size):
            if old[i].bytes:
                self._find(old[i].hash)[0] = old[i]
            if i % FORGET == FORGET - 1:
                kafkapy_forget(old + i + 1 - FORGET, FORGET * sizeof(KeySlot))
        kafkapy_free_table(old, size * sizeof(KeySlot))
        return True

    cdef void _remove(self, uint64_t at) noexcept nogil:
        """Free a slot, and close the hole: move back each following entry of the run, unless the hole is before the
        slot where the search for that entry begins."""
        cdef uint64_t hole = at, home, gone, moved
        self.sampled -= 1
        while True:
            at = at + 1 if at + 1 < self._size else 0
            if self._slots[at].bytes == 0:
                break
            home = kafkapy_slot(self._slots[at].hash, self._size)
            moved = at - home if at >= home else at + self._size - home
            gone = at - hole if at >= hole else at + self._size - hole
            if moved >= gone:
                self._slots[hole] = self._slots[at]
                hole = at
        self._slots[hole].bytes = 0

    cdef void _halve(self) noexcept nogil:
        """Keep only the keys whose hash has one more zero at its end."""
        cdef uint64_t mask, i
        self.halvings += 1
        mask = (<uint64_t>1 << self.halvings) - 1
        for i in range(self._size):
            while self._slots[i].bytes and self._slots[i].hash & mask:
                self._remove(i)

    # --- records

    cdef bint add(self, const uint8_t *key, int32_t length, int64_t size, bint tombstone) noexcept nogil:
        cdef KeyHash hashed = self._hasher.hash_of(key, length)
        cdef Waiting *record
        if self._came - self._went == AHEAD:
            self._went += 1
            if not self._take(&self._waiting[(self._went - 1) % AHEAD]):
                return False
        record = &self._waiting[self._came % AHEAD]
        self._came += 1
        record.hash = hashed.high
        record.key = key
        record.length = length
        record.size = size
        record.tombstone = tombstone
        kafkapy_fetch(&self._slots[kafkapy_slot(record.hash, self._size)])
        return True

    cdef bint flush(self) noexcept nogil:
        while self._went != self._came:
            self._went += 1
            if not self._take(&self._waiting[(self._went - 1) % AHEAD]):
                return False
        return True

    cdef bint _take(self, const Waiting *record) noexcept nogil:
        cdef uint64_t hash = record.hash
        cdef KeySlot *slot = NULL
        if hash & ((<uint64_t>1 << self.halvings) - 1) == 0:
            slot = self._find(hash)
            if slot.bytes == 0:
                while (<uint64_t>self.sampled + 1) * 4 > self._size * 3:
                    if self._size == self._most:
                        self._halve()
                    elif not self._grow():
                        return False
                if hash & ((<uint64_t>1 << self.halvings) - 1):
                    return self._count(record, NULL)
                slot = self._find(hash)
                slot.hash = hash
                slot.records = 0
                self.sampled += 1
            slot.bytes += <uint64_t>record.size
            slot.latest = <uint32_t>record.size | (TOMBSTONE if record.tombstone else 0)
            slot.records += 1
        return self._count(record, slot)

    # --- the largest keys

    cdef bint _count(self, const Waiting *record, const KeySlot *slot) noexcept nogil:
        """Count a record among the largest keys. `slot`: the key's slot, with this record; it has all records of the
        key as long as no keys were dropped."""
        cdef int64_t found = int_map_get(&self._by_hash, <int64_t>record.hash)
        cdef TopKey *top
        if found >= 0:
            top = &self._top[found]
            top.bytes += <uint64_t>record.size
            top.records += 1
            self._down(top.place)
            return True
        if self._tops < TOP:
            top = &self._top[self._tops]
            top.place = self._tops
            self._heap[self._tops] = self._tops
            self._tops += 1
            top.bytes = <uint64_t>record.size
            top.records = 1
            top.error = 0
        elif self.halvings == 0:
            top = &self._top[self._heap[0]]
            if slot.bytes <= top.bytes:
                return True
            int_map_remove(&self._by_hash, <int64_t>top.hash)
            top.bytes = slot.bytes
            top.records = slot.records
            top.error = 0
        else:
            top = &self._top[self._heap[0]]
            int_map_remove(&self._by_hash, <int64_t>top.hash)
            top.error = top.bytes
            top.bytes += <uint64_t>record.size
            top.records = 1
        top.hash = record.hash
        top.length = record.length
        memcpy(top.name, record.key, record.length if record.length < NAME else NAME)
        if not int_map_put(&self._by_hash, <int64_t>record.hash, top - self._top):
            return False
        self._up(top.place)
        self._down(top.place)
        return True

    cdef void _down(self, int32_t place) noexcept nogil:
        """Move an entry that has grown away from the front of the heap."""
        cdef int32_t moving = self._heap[place], child
        while True:
            child = 2 * place + 1
            if child >= self._tops:
                break
            if child + 1 < self._tops and self._top[self._heap[child + 1]].bytes < self._top[self._heap[child]].bytes:
                child += 1
            if self._top[self._heap[child]].bytes >= self._top[moving].bytes:
                break
            self._heap[place] = self._heap[child]
            self._top[self._heap[place]].place = place
            place = child
        self._heap[place] = moving
        self._top[moving].place = place

    cdef void _up(self, int32_t place) noexcept nogil:
        cdef int32_t moving = self._heap[place], parent
        while place:
            parent = (place - 1) // 2
            if self._top[self._heap[parent]].bytes <= self._top[moving].bytes:
                break
            self._heap[place] = self._heap[parent]
            self._top[self._heap[place]].place = place
            place = parent
        self._heap[place] = moving
        self._top[moving].place = place

    # --- Python

    def count(self, key, int64_t size, bint tombstone=False) -> None:
        """Count one record of a key, with `size` bytes (at least 1)."""
        cdef Py_buffer held
        cdef bint done
        if not 0 < size < TOMBSTONE:
            raise ValueError(f"a record cannot have {size} bytes")
        PyObject_GetBuffer(key, &held, PyBUF_SIMPLE)
        done = self.add(<const uint8_t *>held.buf, <int32_t>held.len, size, tombstone) and self.flush()
        PyBuffer_Release(&held)
        if not done:
            raise MemoryError

    def kept(self) -> tuple[int, int, int, int]:
        """Return the number of sampled keys and the bytes of their last records, then the same for tombstones only."""
        cdef uint64_t i
        cdef int64_t keys = 0, size = 0, gone = 0, gone_size = 0
        with nogil:
            for i in range(self._size):
                if self._slots[i].bytes:
                    keys += 1
                    size += self._slots[i].latest & (TOMBSTONE - 1)
                    if self._slots[i].latest & TOMBSTONE:
                        gone += 1
                        gone_size += self._slots[i].latest & (TOMBSTONE - 1)
        return keys, size, gone, gone_size

    def largest(self) -> list[tuple[bytes, int, int, int, int]]:
        """Return (name, length, bytes, error, records) of the largest keys, the largest first.

        The name is the first NAME bytes of the key, `length` that of the whole key. At least bytes - error bytes are
        the key's, and at least `records` records.
        """
        found = []
        for i in range(self._tops):
            top = &self._top[i]
            name = (<const char *>top.name)[:min(top.length, NAME)]
            found.append((name, top.length, top.bytes, top.error, top.records))
        return sorted(found, key=_order)


def _order(key):
    return -key[2], key[0]
