"""Which parts of a file are in the page cache, so that network threads never wait for a disk.

cachestat(2) (Linux 6.5) counts the cached pages of a range in 0.3 to 7 us. If it counts a page as absent, the page is
absent; but it also counts pages that are still being read. So `ready` also tries to read the last byte with
preadv2(RWF_NOWAIT), which never waits. If cachestat is missing or refused, mincore(2) on a short mapping is used
instead; also if a file system does not support RWF_NOWAIT (FUSE, NFS, some overlays), since mincore counts only
readable pages.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EAGAIN, EINTR, EINVAL, ENOMEM, ENOSYS, EOPNOTSUPP, EPERM, errno
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport strerror
from posix.types cimport off_t
from posix.uio cimport iovec

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <fcntl.h>
    #include <stdint.h>
    #include <sys/mman.h>
    #include <sys/sendfile.h>
    #include <sys/syscall.h>
    #include <sys/uio.h>
    #include <unistd.h>
    /* glibc has no wrapper, and older headers lack the number, which is the same on every architecture. */
    #ifndef SYS_cachestat
    #define SYS_cachestat 451
    #endif
    #ifndef RWF_NOWAIT
    #define RWF_NOWAIT 0x00000008
    #endif
    struct kafkapy_cachestat_range { uint64_t off, len; };
    struct kafkapy_cachestat { uint64_t cached, dirty, writeback, evicted, recently_evicted; };
    static int kafkapy_cachestat(int fd, uint64_t off, uint64_t len, uint64_t *pages) {
        struct kafkapy_cachestat_range range = {off, len};
        struct kafkapy_cachestat stat;
        int result = (int)syscall(SYS_cachestat, fd, &range, &stat, 0);
        if (result == 0) *pages = stat.cached;
        return result;
    }
    static ssize_t kafkapy_pread_now(int fd, void *to, size_t size, off_t position) {
        struct iovec vector = {to, size};
        return preadv2(fd, &vector, 1, position, RWF_NOWAIT);
    }
    """
    int c_cachestat "kafkapy_cachestat"(int fd, uint64_t off, uint64_t len, uint64_t *pages) nogil
    ssize_t c_pread_now "kafkapy_pread_now"(int fd, void *to, size_t size, off_t position) nogil
    ssize_t c_pread "pread"(int fd, void *to, size_t size, off_t position) nogil
    void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t position) nogil
    int munmap(void *at, size_t size) nogil
    int mincore(void *at, size_t size, unsigned char *pages) nogil
    long sysconf(int name) nogil
    int c_open "open"(const char *path, int flags) nogil
    ssize_t sendfile(int out, int source, off_t *position, size_t count) nogil
    int _SC_PAGESIZE, PROT_READ, MAP_SHARED, O_WRONLY, O_CLOEXEC
    void *MAP_FAILED

cdef enum:
    CHUNK = 65536
    UNOPENED = -2

cdef uint64_t PAGE = <uint64_t>sysconf(_SC_PAGESIZE)
cdef bint has_cachestat = True
cdef bint has_nowait = True
cdef int null_fd = UNOPENED  # /dev/null, -1 if it cannot be opened


cdef int check_range(off_t position, Py_ssize_t length) except -1:
    if position < 0 or length <= 0 or length > <Py_ssize_t>0x7fffffffffff - position:
        raise ValueError(f"{length} bytes from byte {position} on are not a range of a file")
    return 0


cdef int64_t pages_there(int fd, off_t position, Py_ssize_t length) noexcept nogil:
    """Return how many pages of the range can be read without waiting, by mincore; -errno if it fails."""
    cdef off_t start = position - <off_t>(<uint64_t>position % PAGE)
    cdef size_t size = <size_t>(position + length - start)
    cdef size_t index, pages = (size + PAGE - 1) // PAGE
    cdef unsigned char *flags
    cdef int64_t count = 0
    cdef void *mapping = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, start)
    if mapping == MAP_FAILED:
        return -errno
    flags = <unsigned char *>malloc(pages)
    if flags is NULL:
        count = -ENOMEM
    elif mincore(mapping, size, flags) < 0:
        count = -errno
    else:
        for index in range(pages):
            count += flags[index] & 1
    munmap(mapping, size)
    free(flags)
    return count


cdef bint readable(int fd, off_t position, Py_ssize_t length) noexcept nogil:
    cdef int64_t last = (position + length - 1) // <int64_t>PAGE
    return pages_there(fd, position, length) > last - position // <int64_t>PAGE


def resident_pages(int fd, off_t position, Py_ssize_t length):
    """Return how many pages of the range are in memory, by mincore(2), which does not count pages being read.

    Costs a mapping and an unmapping. Pages beyond the end of the file do not count.
    """
    cdef int64_t count
    check_range(position, length)
    count = pages_there(fd, position, length)
    if count < 0:
        raise OSError(-count, strerror(<int>-count).decode())
    return count


def resident(int fd, off_t position, Py_ssize_t length):
    """Return True if every page of the range is cached or being read, by cachestat or else mincore."""
    global has_cachestat
    cdef uint64_t pages = 0
    cdef uint64_t wanted
    check_range(position, length)
    wanted = (<uint64_t>position + <uint64_t>length - 1) // PAGE - <uint64_t>position // PAGE + 1
    if has_cachestat:
        if c_cachestat(fd, position, length, &pages) == 0:
            return pages >= wanted
        if errno == ENOSYS:
            has_cachestat = False
        elif errno != EPERM and errno != EOPNOTSUPP:
            PyErr_SetFromErrno(OSError)
    return resident_pages(fd, position, length) >= wanted


def ready(int fd, off_t position, Py_ssize_t length):
    """Return True if the range can be read without waiting for a disk.

    The pages are counted first, and then the last byte is read. In the other order, trying to read an absent page would
    start the kernel's read-ahead, which takes this thread up to 2 ms (measured with 8 MiB).
    """
    global has_nowait
    cdef char byte
    if not resident(fd, position, length):
        return False
    if has_nowait:
        if c_pread_now(fd, &byte, 1, position + length - 1) >= 0:
            return True
        if errno == EAGAIN:
            return False
        if errno == ENOSYS:
            has_nowait = False
        elif errno != EOPNOTSUPP and errno != EINVAL:
            PyErr_SetFromErrno(OSError)
    return readable(fd, position, length)


def read_now(int fd, buffer not None, Py_ssize_t start, Py_ssize_t end, off_t position):
    """Read into buffer[start:end] what can be read without waiting; return the bytes read (0 at the end of the file).

    Return -1 if not even the first byte is in memory. The GIL is kept while bytes are copied: read at most about 100
    KiB.
    """
    cdef Py_buffer view
    cdef ssize_t n
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        if start < 0 or end > view.len or start >= end:
            raise ValueError(f"cannot read into {start}:{end} of a buffer of {view.len} bytes")
        n = read_there(fd, <char *>view.buf + start, end - start, position)
    finally:
        PyBuffer_Release(&view)
    if n == FAILED:
        PyErr_SetFromErrno(OSError)
    return n


cdef ssize_t read_there(int fd, char *to, Py_ssize_t size, off_t position) noexcept:
    global has_nowait
    cdef ssize_t n
    if has_nowait:
        n = c_pread_now(fd, to, size, position)
        if n >= 0:
            return n
        if errno == EAGAIN:
            return -1
        if errno == ENOSYS:
            has_nowait = False
        elif errno != EOPNOTSUPP and errno != EINVAL:
            return FAILED
    # The file system does not support RWF_NOWAIT: check the pages by mincore instead.
    if not readable(fd, position, size):
        return -1
    n = c_pread(fd, to, size, position)
    return n if n >= 0 else FAILED


cdef ssize_t discard(int fd, off_t position, Py_ssize_t size) noexcept nogil:
    """Read up to `size` bytes and discard them. Return the bytes read, or -1 with errno set. If the file system refuses
    sendfile, the bytes are copied."""
    cdef char scratch[CHUNK]
    cdef off_t at = position
    cdef ssize_t n
    if null_fd >= 0:
        n = sendfile(null_fd, fd, &at, size)
        if n >= 0 or errno != EINVAL:
            return n
    return c_pread(fd, scratch, min(<Py_ssize_t>CHUNK, size), position)


def load(int fd, off_t position, Py_ssize_t length):
    """Read the range and discard the bytes, so that it is in the page cache afterwards. Releases the GIL.

    For the read pools. Return the bytes read. The bytes go to /dev/null by sendfile, which waits for the disk and copies
    nothing: 0.02 s of CPU per GiB, where pread into a small buffer takes 0.10. posix_fadvise(WILLNEED) takes 0.22: the
    kernel's own read-ahead uses large pages, and it continues ahead of a sequential reader by itself.
    """
    global null_fd
    cdef Py_ssize_t there = 0
    cdef ssize_t n = 1
    check_range(position, length)
    if null_fd == UNOPENED:
        null_fd = c_open("/dev/null", O_WRONLY | O_CLOEXEC)
    with nogil:
        while there < length:
            n = discard(fd, position + there, length - there)
            if n > 0:
                there += n
            elif n == 0 or errno != EINTR:
                break
    if n < 0:
        PyErr_SetFromErrno(OSError)
    return there
