"""CRC-32 (IEEE 802.3, as in zlib and gzip), the checksum of messages of formats 0 and 1.

On x86-64 with carry-less multiplication, 64 bytes at a time are folded, as Intel describes ("Fast CRC Computation for
Generic Polynomials Using PCLMULQDQ Instruction", 2009); the CRC of a message of 100 bytes then takes little longer than
the call itself. On other processors, and for the few bytes at the end, eight table look-ups handle eight bytes. The
implementation is chosen when the module is loaded. Results are the same as those of zlib.crc32.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

cdef extern from *:
    """
    #include <endian.h>
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #define KZ_POLYNOMIAL 0xedb88320u   /* bits reversed */

    static uint32_t kz_bytes[8][256];   /* kz_bytes[k][b]: byte b followed by k zero bytes */

    /* All CRCs below are without the inversion before and after. */

    static uint32_t kz_crc_table(uint32_t crc, const uint8_t *at, size_t n) {
        while (n >= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            word = le64toh(word) ^ crc;
            crc = kz_bytes[7][word & 255] ^ kz_bytes[6][(word >> 8) & 255] ^ kz_bytes[5][(word >> 16) & 255]
                ^ kz_bytes[4][(word >> 24) & 255] ^ kz_bytes[3][(word >> 32) & 255] ^ kz_bytes[2][(word >> 40) & 255]
                ^ kz_bytes[1][(word >> 48) & 255] ^ kz_bytes[0][word >> 56];
            at += 8;
            n -= 8;
        }
        while (n--)
            crc = kz_bytes[0][(crc ^ *at++) & 255] ^ (crc >> 8);
        return crc;
    }

    #if defined(__x86_64__)
    #include <emmintrin.h>
    #include <smmintrin.h>
    #include <wmmintrin.h>
    #define KZ_HARDWARE __attribute__((target("sse4.1,pclmul")))

    static inline KZ_HARDWARE __m128i kz_load(const uint8_t *at) { return _mm_loadu_si128((const __m128i *)at); }

    /* Multiply `sum` by the powers of x in the halves of `over`, which shifts it over following bytes; add `next`. */
    static inline KZ_HARDWARE __m128i kz_fold(__m128i sum, __m128i over, __m128i next) {
        __m128i low = _mm_clmulepi64_si128(sum, over, 0x00);
        __m128i high = _mm_clmulepi64_si128(sum, over, 0x11);
        return _mm_xor_si128(_mm_xor_si128(low, high), next);
    }

    static KZ_HARDWARE uint32_t kz_crc_hardware(uint32_t crc, const uint8_t *at, size_t n) {
        if (n < 64)
            return kz_crc_table(crc, at, n);
        /* x^(4*128+32), x^(4*128-32); x^(128+32), x^(128-32); x^64; the polynomial and its inverse: all reversed. */
        const __m128i over_four = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
        const __m128i over_one = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
        const __m128i over_half = _mm_set_epi64x(0, 0x0163cd6124);
        const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
        const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
        __m128i a = _mm_xor_si128(kz_load(at), _mm_cvtsi32_si128((int)crc));
        __m128i b = kz_load(at + 16), c = kz_load(at + 32), d = kz_load(at + 48), rest;
        for (at += 64, n -= 64; n >= 64; at += 64, n -= 64) {
            a = kz_fold(a, over_four, kz_load(at));
            b = kz_fold(b, over_four, kz_load(at + 16));
            c = kz_fold(c, over_four, kz_load(at + 32));
            d = kz_fold(d, over_four, kz_load(at + 48));
        }
        a = kz_fold(kz_fold(kz_fold(a, over_one, b), over_one, c), over_one, d);
        for (; n >= 16; at += 16, n -= 16)
            a = kz_fold(a, over_one, kz_load(at));
        /* Reduce 128 bits to 64, then by Barrett reduction to the 32 bits of the CRC. */
        a = _mm_xor_si128(_mm_clmulepi64_si128(a, over_one, 0x10), _mm_srli_si128(a, 8));
        rest = _mm_srli_si128(a, 4);
        a = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low_words), over_half, 0x00), rest);
        rest = _mm_clmulepi64_si128(_mm_and_si128(a, low_words), barrett, 0x10);
        rest = _mm_clmulepi64_si128(_mm_and_si128(rest, low_words), barrett, 0x00);
        crc = (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, rest), 1);
        return n ? kz_crc_table(crc, at, n) : crc;
    }
    static int kz_has_instruction(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("pclmul");
    }
    #else
    #define kz_crc_hardware kz_crc_table
    static int kz_has_instruction(void) { return 0; }
    #endif

    static uint32_t (*kz_crc)(uint32_t, const uint8_t *, size_t) = kz_crc_table;

    static int kz_crc_begin(void) {
        for (int b = 0; b < 256; b++) {
            uint32_t crc = b;
            for (int i = 0; i < 8; i++)
                crc = crc & 1 ? (crc >> 1) ^ KZ_POLYNOMIAL : crc >> 1;
            kz_bytes[0][b] = crc;
        }
        for (int b = 0; b < 256; b++)
            for (int k = 1; k < 8; k++)
                kz_bytes[k][b] = kz_bytes[0][kz_bytes[k - 1][b] & 255] ^ (kz_bytes[k - 1][b] >> 8);
        if (!kz_has_instruction())
            return 0;
        kz_crc = kz_crc_hardware;
        return 1;
    }
    """
    int kz_crc_begin() noexcept nogil
    uint32_t kz_crc(uint32_t crc, const uint8_t *data, size_t length) noexcept nogil
    uint32_t kz_crc_table(uint32_t crc, const uint8_t *data, size_t length) noexcept nogil

# From this length on the GIL is released.
cdef enum:
    RELEASE_FROM = 65536

HARDWARE = bool(kz_crc_begin())


cdef uint32_t crc_of(uint32_t before, const uint8_t *data, size_t length) noexcept nogil:
    return ~kz_crc(~before, data, length)

def crc32(data, uint32_t value=0) -> int:
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


def crc32_by_table(data, uint32_t value=0) -> int:
    """Return the same CRC by tables only, as on a processor without the instruction. Used only by tests."""
    cdef Py_buffer held
    PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
    try:
        with nogil:
            value = ~kz_crc_table(~value, <const uint8_t *>held.buf, held.len)
    finally:
        PyBuffer_Release(&held)
    return value
