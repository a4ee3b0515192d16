"""A map from keys to numbers in bounded memory, for the log cleaner and for statistics.

Like Kafka's SkimpyOffsetMap: open addressing, no deletes, and the hash stored instead of the key. keymap.pxd explains
why the hash has a secret.
"""

import os

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <endian.h>
    #include <stdint.h>
    #include <string.h>
    #include <sys/mman.h>

    static inline uint64_t kafkapy_rotate(uint64_t v, int by) { return v << by | v >> (64 - by); }

    /* Map zeroed memory, whose pages are allocated on first use; NULL if the kernel refuses. */
    static void *kafkapy_map(size_t size) {
        void *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return at == MAP_FAILED ? 0 : at;
    }
    static void kafkapy_unmap(void *at, size_t size) { if (at) munmap(at, size); }
    static void kafkapy_drop_pages(void *at, size_t size) { madvise(at, size, MADV_DONTNEED); }

    /* The slot of a hash among `slots`. Slots are in the order of the hashes, so that a table is copied into a larger
       one from front to back. */
    static inline uint64_t kafkapy_place(uint64_t hash, uint64_t slots) {
        return (uint64_t)((unsigned __int128)hash * slots >> 64);
    }

    #define KAFKAPY_SIP_ROUND do { \\
        v0 += v1; v1 = kafkapy_rotate(v1, 13); v1 ^= v0; v0 = kafkapy_rotate(v0, 32); \\
        v2 += v3; v3 = kafkapy_rotate(v3, 16); v3 ^= v2; \\
        v0 += v3; v3 = kafkapy_rotate(v3, 21); v3 ^= v0; \\
        v2 += v1; v1 = kafkapy_rotate(v1, 17); v1 ^= v2; v2 = kafkapy_rotate(v2, 32); \\
    } while (0)

    /* SipHash-2-4 with 128 bits, as published by its authors (Aumasson, Bernstein). */
    static void kafkapy_siphash(const uint64_t *secret, const uint8_t *data, size_t length, uint64_t *out) {
        uint64_t v0 = 0x736f6d6570736575ULL ^ secret[0], v1 = 0x646f72616e646f6dULL ^ secret[1] ^ 0xee;
        uint64_t v2 = 0x6c7967656e657261ULL ^ secret[0], v3 = 0x7465646279746573ULL ^ secret[1];
        uint64_t word, last = (uint64_t)length << 56;
        const uint8_t *end = data + (length & ~(size_t)7);
        for (; data != end; data += 8) {
            memcpy(&word, data, 8);
            word = le64toh(word);
            v3 ^= word;
            KAFKAPY_SIP_ROUND; KAFKAPY_SIP_ROUND;
            v0 ^= word;
        }
        switch (length & 7) {
            case 7: last |= (uint64_t)end[6] << 48;  /* fall through */
            case 6: last |= (uint64_t)end[5] << 40;  /* fall through */
            case 5: last |= (uint64_t)end[4] << 32;  /* fall through */
            case 4: last |= (uint64_t)end[3] << 24;  /* fall through */
            case 3: last |= (uint64_t)end[2] << 16;  /* fall through */
            case 2: last |= (uint64_t)end[1] << 8;   /* fall through */
            case 1: last |= (uint64_t)end[0];
        }
        v3 ^= last;
        KAFKAPY_SIP_ROUND; KAFKAPY_SIP_ROUND;
        v0 ^= last;
        v2 ^= 0xee;
        KAFKAPY_SIP_ROUND; KAFKAPY_SIP_ROUND; KAFKAPY_SIP_ROUND; KAFKAPY_SIP_ROUND;
        out[0] = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xdd;
        KAFKAPY_SIP_ROUND; KAFKAPY_SIP_ROUND; KAFKAPY_SIP_ROUND; KAFKAPY_SIP_ROUND;
        out[1] = v0 ^ v1 ^ v2 ^ v3;
    }
    """
    void *kafkapy_map(size_t size) nogil
    void kafkapy_unmap(void *at, size_t size) nogil
    void kafkapy_drop_pages(void *at, size_t size) nogil
    uint64_t kafkapy_place(uint64_t hash, uint64_t slots) nogil
    void kafkapy_siphash(const uint64_t *secret, const uint8_t *data, size_t length, uint64_t *out) nogil
    void __builtin_prefetch(const void *at, int write) nogil

cdef enum:
    FIRST_SLOTS = 4096          # initial number of slots: 96 KiB
    DROP_EVERY = 43690 * 24     # bytes of the old table that are freed at a time while it is copied: 1 MiB

ENTRY_BYTES = sizeof(Entry)


def siphash128(data, secret) -> bytes:
    """Return SipHash-2-4 with 128 bits, the hash of a KeyMap, under a secret of 16 bytes. Used only by tests."""
    cdef Py_buffer held
    cdef uint64_t words[2]
    cdef uint64_t out[2]
    cdef bytes key = bytes(secret)
    if len(key) != 16:
        raise ValueError(f"the secret has {len(key)} bytes instead of 16")
    memcpy(words, <const char *>key, 16)
    PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
    try:
        kafkapy_siphash(words, <const uint8_t *>held.buf, held.len, out)
    finally:
        PyBuffer_Release(&held)
    return (<const char *>out)[:16]


@cython.final
cdef class KeyMap:
    """Maps keys to numbers (at least 0), in at most `memory` bytes, of which the share `load_factor` may be used.

    Memory is allocated as keys are added. Raises ValueError if not even one key would fit, MemoryError.
    """

    def __cinit__(self, memory, double load_factor=0.9):
        slots = memory // sizeof(Entry)
        if not 0 < load_factor <= 1:
            raise ValueError(f"the load factor {load_factor} is not more than 0 and at most 1")
        if slots * load_factor < 1:
            raise ValueError(f"{memory} bytes at a load factor of {load_factor} are too few for one key")
        self._load_factor = load_factor
        self._most = slots
        # One slot stays free: the search for a missing key ends there.
        self.capacity = min(<int64_t>(slots * load_factor), <int64_t>slots - 1) if slots > 1 else 0
        if self.capacity < 1:
            raise ValueError(f"{memory} bytes at a load factor of {load_factor} are too few for one key")
        self.clear()

    def __dealloc__(self):
        # Unmapping a large table takes milliseconds.
        with nogil:
            kafkapy_unmap(self._table, self._slots * sizeof(Entry))

    def clear(self) -> None:
        """Remove all keys, free the memory and choose a new secret. Raises MemoryError."""
        cdef bytes secret = os.urandom(16)
        with nogil:
            kafkapy_unmap(self._table, self._slots * sizeof(Entry))
        self._table = NULL
        self.size = 0
        memcpy(self._secret, <const char *>secret, 16)
        self._slots = min(<uint64_t>FIRST_SLOTS, self._most)
        self._table = <Entry *>kafkapy_map(self._slots * sizeof(Entry))
        if self._table == NULL:
            self._slots = 0
            raise MemoryError("no memory for a map of keys")
        self._set_limit()

    cdef void _set_limit(self) noexcept nogil:
        # Searches are short while a table is at most three quarters full. The largest table may be fuller.
        self._grow_at = <uint64_t>self.capacity if self._slots == self._most else self._slots // 4 * 3

    cdef bint _grow(self) noexcept nogil:
        """Move to a table of twice the size; return False if there is no memory: the map then counts as full."""
        cdef uint64_t slots = self._slots * 2, i, place, old_slots = self._slots
        cdef Entry *old = self._table
        cdef Entry *new
        cdef size_t dropped = 0, done
        if slots > self._most or slots > self._most // 2:
            slots = self._most      # skip the last doubling: that table would be used only briefly
        new = <Entry *>kafkapy_map(slots * sizeof(Entry))
        if new == NULL:
            return False
        for i in range(old_slots):
            if old[i].stored:
                place = kafkapy_place(old[i].high, slots)
                while new[place].stored:
                    place = place + 1 if place + 1 < slots else 0
                new[place] = old[i]
            done = i * sizeof(Entry)
            if done - dropped >= DROP_EVERY:
                done &= ~<size_t>4095
                kafkapy_drop_pages(<uint8_t *>old + dropped, done - dropped)
                dropped = done
        kafkapy_unmap(old, old_slots * sizeof(Entry))
        self._table = new
        self._slots = slots
        self._set_limit()
        return True

    cdef KeyHash hash_of(self, const uint8_t *key, Py_ssize_t length) noexcept nogil:
        cdef uint64_t out[2]
        cdef KeyHash hashed
        kafkapy_siphash(self._secret, key, length, out)
        hashed.high = out[0]
        hashed.low = out[1]
        return hashed

    cdef void prefetch(self, const KeyHash *hashed) noexcept nogil:
        __builtin_prefetch(self._table + kafkapy_place(hashed.high, self._slots), 0)

    cdef Put put_hashed(self, const KeyHash *hashed, int64_t value) noexcept nogil:
        cdef uint64_t place = kafkapy_place(hashed.high, self._slots)
        cdef Entry *entry = &self._table[place]
        while entry.stored:
            if entry.high == hashed.high and entry.low == hashed.low:
                entry.stored = <uint64_t>value + 1
                return PUT_REPLACED
            place = place + 1 if place + 1 < self._slots else 0
            entry = &self._table[place]
        if <uint64_t>self.size >= self._grow_at:
            if self._slots == self._most or not self._grow():
                return PUT_FULL
            return self.put_hashed(hashed, value)
        entry.high = hashed.high
        entry.low = hashed.low
        entry.stored = <uint64_t>value + 1
        self.size += 1
        return PUT_NEW

    cdef int64_t get_hashed(self, const KeyHash *hashed) noexcept nogil:
        cdef uint64_t place = kafkapy_place(hashed.high, self._slots)
        cdef Entry *entry = &self._table[place]
        while entry.stored:
            if entry.high == hashed.high and entry.low == hashed.low:
                return <int64_t>(entry.stored - 1)
            place = place + 1 if place + 1 < self._slots else 0
            entry = &self._table[place]
        return -1

    cdef Put put(self, const uint8_t *key, Py_ssize_t length, int64_t value) noexcept nogil:
        cdef KeyHash hashed = self.hash_of(key, length)
        return self.put_hashed(&hashed, value)

    cdef int64_t get(self, const uint8_t *key, Py_ssize_t length) noexcept nogil:
        cdef KeyHash hashed = self.hash_of(key, length)
        return self.get_hashed(&hashed)

    # --- Python: one key at a time

    def __len__(self) -> int:
        return self.size

    @property
    def utilization(self) -> float:
        """The used share of all slots that the memory has room for (Kafka's buffer utilization)."""
        return <double>self.size / <double>self._most

    @property
    def memory(self) -> int:
        """The bytes of the current table. Used only by tests, to check the limit."""
        return self._slots * sizeof(Entry)

    def set(self, key, int64_t value) -> bool:
        """Store the number of a key; return False if the map is full and does not have the key."""
        cdef Py_buffer held
        cdef Put done
        if value < 0:
            raise ValueError(f"the number {value} is negative")
        PyObject_GetBuffer(key, &held, PyBUF_SIMPLE)
        try:
            done = self.put(<const uint8_t *>held.buf, held.len, value)
        finally:
            PyBuffer_Release(&held)
        return done != PUT_FULL

    def find(self, key) -> int:
        """Return the number of a key, -1 if the key is not in the map."""
        cdef Py_buffer held
        cdef int64_t found
        PyObject_GetBuffer(key, &held, PyBUF_SIMPLE)
        try:
            found = self.get(<const uint8_t *>held.buf, held.len)
        finally:
            PyBuffer_Release(&held)
        return found
