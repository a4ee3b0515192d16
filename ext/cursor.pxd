# The bounds-checked cursor: every decoder reads through a Reader and every encoder writes through a Writer.
#
# The get_* and put_* methods are inlined into the modules that cimport them. Numbers are big-endian. A length n is
# always checked as `n < 0 or n > end - at`: in `at + n > end`, a hostile n could overflow the sum.

cimport cython
from libc.string cimport memcpy
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from kafkapy._ext.varint cimport (
    VARINT_MAX, VARLONG_MAX, get_uvarint32, put_uvarint32, put_uvarint64, zigzag32, zigzag64
)

cdef extern from *:
    """
    #ifndef KAFKAPY_BIG_ENDIAN
    #define KAFKAPY_BIG_ENDIAN
    #include <endian.h>
    #include <stdint.h>
    #include <string.h>
    /* memcpy, not a cast: the fields of a frame are not aligned. */
    static inline uint16_t kafkapy_load16(const void *at) { uint16_t v; memcpy(&v, at, 2); return be16toh(v); }
    static inline uint32_t kafkapy_load32(const void *at) { uint32_t v; memcpy(&v, at, 4); return be32toh(v); }
    static inline uint64_t kafkapy_load64(const void *at) { uint64_t v; memcpy(&v, at, 8); return be64toh(v); }
    static inline void kafkapy_store16(void *at, uint16_t v) { v = htobe16(v); memcpy(at, &v, 2); }
    static inline void kafkapy_store32(void *at, uint32_t v) { v = htobe32(v); memcpy(at, &v, 4); }
    static inline void kafkapy_store64(void *at, uint64_t v) { v = htobe64(v); memcpy(at, &v, 8); }
    static inline double kafkapy_double_of(uint64_t v) { double d; memcpy(&d, &v, 8); return d; }
    static inline uint64_t kafkapy_bits_of(double d) { uint64_t v; memcpy(&v, &d, 8); return v; }
    #endif
    """
    # Loads and stores without a bounds check: only for memory whose length was checked before.
    uint16_t load16 "kafkapy_load16"(const void *at) noexcept nogil
    uint32_t load32 "kafkapy_load32"(const void *at) noexcept nogil
    uint64_t load64 "kafkapy_load64"(const void *at) noexcept nogil
    void store16 "kafkapy_store16"(void *at, uint16_t value) noexcept nogil
    void store32 "kafkapy_store32"(void *at, uint32_t value) noexcept nogil
    void store64 "kafkapy_store64"(void *at, uint64_t value) noexcept nogil
    double double_of "kafkapy_double_of"(uint64_t bits) noexcept nogil
    uint64_t bits_of "kafkapy_bits_of"(double value) noexcept nogil

# The value after `except?` is the one for which the caller checks whether an exception is set. These are unlikely
# numbers: -1 (null, none) is frequent, and would cost that check each time.


@cython.final
cdef class Reader:
    cdef Py_buffer _held            # keeps the memory in place while this Reader lives
    cdef bint _holding              # True if _held has to be released
    cdef object _source             # the buffer's owner, as passed in
    cdef object _view               # memoryview of the whole buffer, created for the first slice
    cdef const uint8_t *start       # first byte of the buffer; positions count from here
    cdef const uint8_t *at          # next byte to read
    cdef const uint8_t *end         # first byte after the buffer

    cdef int short_read(self, Py_ssize_t wanted) except -1
    cdef int bad_varint(self, int taken) except -1
    cdef object slice_view(self, Py_ssize_t begin, Py_ssize_t end)

    cdef inline Py_ssize_t left(self) noexcept:
        return self.end - self.at

    cdef inline Py_ssize_t tell(self) noexcept:
        return self.at - self.start

    cdef inline int need(self, Py_ssize_t n) except -1:
        if n < 0 or n > self.end - self.at:
            return self.short_read(n)
        return 0

    # Return the address of the next n bytes; it is valid as long as this Reader lives.
    cdef inline const uint8_t *take(self, Py_ssize_t n) except? NULL:
        cdef const uint8_t *at = self.at
        if n < 0 or n > self.end - at:
            self.short_read(n)
            return NULL
        self.at = at + n
        return at

    cdef inline int advance(self, Py_ssize_t n) except -1:
        self.need(n)
        self.at += n
        return 0

    cdef inline bytes get_bytes(self, Py_ssize_t n):
        self.need(n)
        cdef const uint8_t *at = self.at
        self.at += n
        return (<const char *>at)[:n]

    # Return the next n bytes as a slice of the original buffer, not a copy; writable if the buffer is.
    cdef inline object get_view(self, Py_ssize_t n):
        self.need(n)
        cdef Py_ssize_t begin = self.at - self.start
        self.at += n
        return self.slice_view(begin, begin + n)

    cdef inline int8_t get_int8(self) except? -119:
        self.need(1)
        self.at += 1
        return <int8_t>(self.at - 1)[0]

    cdef inline int16_t get_int16(self) except? -31337:
        self.need(2)
        self.at += 2
        return <int16_t>load16(self.at - 2)

    cdef inline int32_t get_int32(self) except? -1898313370:
        self.need(4)
        self.at += 4
        return <int32_t>load32(self.at - 4)

    cdef inline int64_t get_int64(self) except? -8983133700127339:
        self.need(8)
        self.at += 8
        return <int64_t>load64(self.at - 8)

    cdef inline double get_float64(self) except? -8983133700127.25:
        self.need(8)
        self.at += 8
        return double_of(load64(self.at - 8))

    cdef inline uint32_t get_uvarint(self) except? 3898313370:
        cdef uint32_t raw = 0
        cdef int taken = get_uvarint32(self.at, self.end, &raw)
        if taken <= 0:
            self.bad_varint(taken)
        self.at += taken
        return raw

    # Skip the tagged fields at the end of a structure.
    cdef inline int skip_tagged(self) except -1:
        cdef Py_ssize_t fields = self.get_uvarint()
        while fields > 0:
            fields -= 1
            self.get_uvarint()
            self.advance(self.get_uvarint())
        return 0


@cython.final
cdef class Writer:
    cdef uint8_t *data              # the memory, owned (PyMem_Raw)
    cdef Py_ssize_t size            # bytes written so far
    cdef Py_ssize_t room            # capacity of `data`
    cdef Py_ssize_t _exported       # number of exported buffers; while there are any, `data` must not move

    cdef int grow(self, Py_ssize_t n) except -1
    cdef int put_buffer(self, object buffer) except -1

    # Ensure capacity for n more bytes, without counting them as written.
    cdef inline int reserve(self, Py_ssize_t n) except -1:
        if n < 0 or n > self.room - self.size:
            return self.grow(n)
        return 0

    # Append n bytes for the caller to fill, and return their address.
    cdef inline uint8_t *extend(self, Py_ssize_t n) except NULL:
        self.reserve(n)
        cdef uint8_t *at = self.data + self.size
        self.size += n
        return at

    cdef inline int put_raw(self, const void *source, Py_ssize_t n) except -1:
        self.reserve(n)
        memcpy(self.data + self.size, source, n)
        self.size += n
        return 0

    cdef inline int put_bytes(self, bytes source) except -1:
        return self.put_raw(<const char *>source, len(source))

    cdef inline int put_int8(self, int8_t value) except -1:
        self.reserve(1)
        self.data[self.size] = <uint8_t>value
        self.size += 1
        return 0

    cdef inline int put_int16(self, int16_t value) except -1:
        self.reserve(2)
        store16(self.data + self.size, <uint16_t>value)
        self.size += 2
        return 0

    cdef inline int put_int32(self, int32_t value) except -1:
        self.reserve(4)
        store32(self.data + self.size, <uint32_t>value)
        self.size += 4
        return 0

    cdef inline int put_int64(self, int64_t value) except -1:
        self.reserve(8)
        store64(self.data + self.size, <uint64_t>value)
        self.size += 8
        return 0

    cdef inline int put_float64(self, double value) except -1:
        self.reserve(8)
        store64(self.data + self.size, bits_of(value))
        self.size += 8
        return 0

    cdef inline int put_uvarint(self, uint32_t value) except -1:
        self.reserve(VARINT_MAX)
        self.size += put_uvarint32(self.data + self.size, value)
        return 0

    cdef inline int put_varint(self, int32_t value) except -1:
        self.reserve(VARINT_MAX)
        self.size += put_uvarint32(self.data + self.size, zigzag32(value))
        return 0

    cdef inline int put_varlong(self, int64_t value) except -1:
        self.reserve(VARLONG_MAX)
        self.size += put_uvarint64(self.data + self.size, zigzag64(value))
        return 0
