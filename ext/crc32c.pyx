"""CRC-32C (Castagnoli), the checksum of record batches, by the processor's instruction if it has one.

On x86-64 with SSE4.2, the crc32 instruction takes three cycles, but a new one can start every cycle. So the CRCs of
three parts of the data are computed in parallel and joined. To join them, a CRC is carried over n further bytes, which
is a multiplication modulo the polynomial; tables make that four look-ups. On other processors, the package crc32c is
used (it has the instructions of aarch64), and for short data eight table look-ups for eight bytes. The implementation
is chosen when the module is loaded. Results are the same as those of the package crc32c.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory

cdef extern from *:
    """
    #include <endian.h>
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #define KP_POLYNOMIAL 0x82f63b78u   /* Castagnoli, bits reversed */
    #define KP_LONG 4096                /* bytes of each of the three parts; a multiple of 8 */
    #define KP_SHORT 256

    static uint32_t kp_bytes[8][256];   /* kp_bytes[k][b]: byte b followed by k zero bytes */
    static uint32_t kp_over_long[4][256], kp_over_short[4][256];

    /* All CRCs below are without the inversion before and after. */

    static uint32_t kp_crc_table(uint32_t crc, const uint8_t *at, size_t n) {
        while (n >= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            word = le64toh(word) ^ crc;
            crc = kp_bytes[7][word & 255] ^ kp_bytes[6][(word >> 8) & 255] ^ kp_bytes[5][(word >> 16) & 255]
                ^ kp_bytes[4][(word >> 24) & 255] ^ kp_bytes[3][(word >> 32) & 255] ^ kp_bytes[2][(word >> 40) & 255]
                ^ kp_bytes[1][(word >> 48) & 255] ^ kp_bytes[0][word >> 56];
            at += 8;
            n -= 8;
        }
        while (n--)
            crc = kp_bytes[0][(crc ^ *at++) & 255] ^ (crc >> 8);
        return crc;
    }

    /* The CRC of `crc` after n zero bytes is linear in the bits of `crc`: fill one table for each of its four bytes. */
    static void kp_fill_over(uint32_t over[4][256], size_t n) {
        uint32_t bit[32];
        for (int i = 0; i < 32; i++) {
            uint32_t crc = 1u << i;
            for (size_t k = 0; k < n; k++)
                crc = kp_bytes[0][crc & 255] ^ (crc >> 8);
            bit[i] = crc;
        }
        for (int part = 0; part < 4; part++)
            for (int b = 0; b < 256; b++) {
                uint32_t crc = 0;
                for (int i = 0; i < 8; i++)
                    if (b >> i & 1)
                        crc ^= bit[8 * part + i];
                over[part][b] = crc;
            }
    }

    static inline uint32_t kp_carry(uint32_t over[4][256], uint32_t crc) {
        return over[0][crc & 255] ^ over[1][(crc >> 8) & 255] ^ over[2][(crc >> 16) & 255] ^ over[3][crc >> 24];
    }

    #if defined(__x86_64__)
    #include <nmmintrin.h>
    #define KP_HARDWARE __attribute__((target("sse4.2")))

    static inline KP_HARDWARE uint64_t kp_word(const uint8_t *at) { uint64_t word; memcpy(&word, at, 8); return word; }

    static inline KP_HARDWARE uint32_t kp_three(uint32_t crc, const uint8_t *at, size_t part, uint32_t over[4][256]) {
        uint64_t a = crc, b = 0, c = 0;
        for (size_t i = 0; i < part; i += 8) {
            a = _mm_crc32_u64(a, kp_word(at + i));
            b = _mm_crc32_u64(b, kp_word(at + part + i));
            c = _mm_crc32_u64(c, kp_word(at + 2 * part + i));
        }
        return kp_carry(over, kp_carry(over, (uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
    }

    static KP_HARDWARE uint32_t kp_crc_hardware(uint32_t crc, const uint8_t *at, size_t n) {
        uint64_t wide;
        for (; n >= 3 * KP_LONG; at += 3 * KP_LONG, n -= 3 * KP_LONG)
            crc = kp_three(crc, at, KP_LONG, kp_over_long);
        for (; n >= 3 * KP_SHORT; at += 3 * KP_SHORT, n -= 3 * KP_SHORT)
            crc = kp_three(crc, at, KP_SHORT, kp_over_short);
        wide = crc;
        for (; n >= 8; at += 8, n -= 8)
            wide = _mm_crc32_u64(wide, kp_word(at));
        crc = (uint32_t)wide;
        while (n--)
            crc = _mm_crc32_u8(crc, *at++);
        return crc;
    }
    static int kp_has_instruction(void) { __builtin_cpu_init(); return __builtin_cpu_supports("sse4.2"); }
    #else
    #define kp_crc_hardware kp_crc_table
    static int kp_has_instruction(void) { return 0; }
    #endif

    static uint32_t (*kp_crc)(uint32_t, const uint8_t *, size_t) = kp_crc_table;

    static int kp_crc_begin(void) {
        for (int b = 0; b < 256; b++) {
            uint32_t crc = b;
            for (int i = 0; i < 8; i++)
                crc = crc & 1 ? (crc >> 1) ^ KP_POLYNOMIAL : crc >> 1;
            kp_bytes[0][b] = crc;
        }
        for (int b = 0; b < 256; b++)
            for (int k = 1; k < 8; k++)
                kp_bytes[k][b] = kp_bytes[0][kp_bytes[k - 1][b] & 255] ^ (kp_bytes[k - 1][b] >> 8);
        if (!kp_has_instruction())
            return 0;
        kp_fill_over(kp_over_long, KP_LONG);
        kp_fill_over(kp_over_short, KP_SHORT);
        kp_crc = kp_crc_hardware;
        return 1;
    }
    """
    int kp_crc_begin() noexcept nogil
    uint32_t kp_crc(uint32_t crc, const uint8_t *data, size_t length) noexcept nogil
    uint32_t kp_crc_table(uint32_t crc, const uint8_t *data, size_t length) noexcept nogil

# From this length on the GIL is released: 64 KiB take about 3 microseconds with the instruction and 30 with the tables.
# For less, releasing the GIL would cost more than it gives other threads.
cdef enum:
    RELEASE_FROM = 65536

# Without the instruction, shorter data is handled by the tables: a call of the package alone takes about as long.
cdef enum:
    PACKAGE_FROM = 1024

cdef bint has_instruction = kp_crc_begin()
HARDWARE = bool(has_instruction)
_package_crc32c = None


cdef uint32_t crc_of(uint32_t before, const uint8_t *data, size_t length) noexcept nogil:
    if has_instruction:
        return ~kp_crc(~before, data, length)
    return crc_without_instruction(before, data, length)


cdef uint32_t crc_without_instruction(uint32_t before, const uint8_t *data, size_t length) noexcept nogil:
    if length >= PACKAGE_FROM:
        with gil:
            try:
                return crc_of_package(before, data, length)
            except Exception:  # no memory for the view; the tables need none
                pass
    return ~kp_crc_table(~before, data, length)


cdef uint32_t crc_of_package(uint32_t before, const uint8_t *data, size_t length) except? 0:
    global _package_crc32c
    if _package_crc32c is None:
        from crc32c import crc32c as _package_crc32c  # imported late: many processes never need it
    return _package_crc32c(PyMemoryView_FromMemory(<char *>data, length, PyBUF_READ), before)


def crc32c(data, uint32_t value=0) -> int:
    """Return the CRC of a bytes-like object; `value` is the CRC of the bytes before it."""
    cdef Py_buffer held
    PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
    try:
        if held.len < RELEASE_FROM:
            value = crc_of(value, <const uint8_t *>held.buf, held.len)
        else:
            with nogil:
                value = crc_of(value, <const uint8_t *>held.buf, held.len)
    finally:
        PyBuffer_Release(&held)
    return value


def crc32c_without_instruction(data, uint32_t value=0) -> int:
    """Return the same CRC as on a processor without the instruction: by the package crc32c, for short data by tables.

    Used only by tests.
    """
    cdef Py_buffer held
    PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
    try:
        with nogil:
            value = crc_without_instruction(value, <const uint8_t *>held.buf, held.len)
    finally:
        PyBuffer_Release(&held)
    return value


def crc32c_by_table(data, uint32_t value=0) -> int:
    """Return the same CRC by tables only. Used only by tests."""
    cdef Py_buffer held
    PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
    try:
        with nogil:
            value = ~kp_crc_table(~value, <const uint8_t *>held.buf, held.len)
    finally:
        PyBuffer_Release(&held)
    return value
