"""System calls without the overhead of Python's own functions: EAGAIN is a return value, and short calls keep the GIL.

Measured: if a socket method releases the GIL while another thread runs Python code, a network thread handles 266
requests/s instead of 14,600. So calls of a few microseconds keep the GIL, and large ones release it.

Every function returns what the system call returns, or -1 for EAGAIN, and raises OSError for any other error. Sockets
must be non-blocking.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_SetFromErrno
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset
from posix.types cimport off_t
from posix.uio cimport iovec

cdef extern from "sys/socket.h" nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <limits.h>
    #include <sys/epoll.h>
    #include <sys/sendfile.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #include <sys/vfs.h>
    #include <unistd.h>
    static _Thread_local int kafkapy_may_wait;
    """
    int may_wait "kafkapy_may_wait"  # of the calling thread: see this_thread_may_wait
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t c_recv "recv"(int fd, void *to, size_t size, int flags)
    ssize_t c_send "send"(int fd, const void *data, size_t size, int flags)
    ssize_t c_sendmsg "sendmsg"(int fd, const msghdr *message, int flags)
    int C_MSG_DONTWAIT "MSG_DONTWAIT"
    int C_MSG_MORE "MSG_MORE"
    int C_MSG_NOSIGNAL "MSG_NOSIGNAL"
    int C_MSG_PEEK "MSG_PEEK"

cdef extern from "sys/sendfile.h" nogil:
    ssize_t c_sendfile "sendfile"(int out, int source, off_t *position, size_t count)

cdef extern from "sys/uio.h" nogil:
    ssize_t c_pwritev "pwritev"(int fd, const iovec *vectors, int count, off_t position)
    int IOV_MAX

cdef extern from "unistd.h" nogil:
    ssize_t c_read "read"(int fd, void *to, size_t size)
    ssize_t c_write "write"(int fd, const void *data, size_t size)
    int c_syncfs "syncfs"(int fd)

cdef extern from "sys/vfs.h" nogil:
    struct statfs:
        long f_type
    int fstatfs(int fd, statfs *into)

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data:
        int fd
    struct epoll_event:
        uint32_t events
        epoll_data data
    int c_epoll_wait "epoll_wait"(int epoll, epoll_event *events, int most, int timeout)

MSG_MORE = C_MSG_MORE

cdef enum:
    EVENTS = 256


cdef object failed():
    """Return -1 if the call would have had to wait, otherwise raise OSError."""
    if errno == EAGAIN:
        return -1
    PyErr_SetFromErrno(OSError)


# Receiving

def recv_into(int fd, buffer not None, Py_ssize_t start, Py_ssize_t end):
    """Receive into buffer[start:end], keeping the GIL; return the bytes received, 0 if the peer has ended sending."""
    cdef Py_buffer view
    cdef ssize_t n
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        if start < 0 or end > view.len or start >= end:
            raise ValueError(f"cannot receive into {start}:{end} of a buffer of {view.len} bytes")
        n = c_recv(fd, <char *>view.buf + start, end - start, C_MSG_DONTWAIT)
    finally:
        PyBuffer_Release(&view)
    return n if n >= 0 else failed()


def recv_into_long(int fd, buffer not None, Py_ssize_t start, Py_ssize_t end):
    """Receive as `recv_into`, but release the GIL if at least RELEASE_FROM bytes are requested."""
    cdef Py_buffer view
    cdef ssize_t n
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        if start < 0 or end > view.len or start >= end:
            raise ValueError(f"cannot receive into {start}:{end} of a buffer of {view.len} bytes")
        if end - start < RELEASE_FROM:
            n = c_recv(fd, <char *>view.buf + start, end - start, C_MSG_DONTWAIT)
        else:
            with nogil:
                n = c_recv(fd, <char *>view.buf + start, end - start, C_MSG_DONTWAIT)
    finally:
        PyBuffer_Release(&view)
    return n if n >= 0 else failed()


def unread(int fd):
    """Return 1 if there are unread bytes, 0 if the peer has finished sending, -1 if there is nothing to read now."""
    cdef char byte
    cdef ssize_t n = c_recv(fd, &byte, 1, C_MSG_DONTWAIT | C_MSG_PEEK)
    return n if n >= 0 else failed()


# Sending

def sendmsg(int fd, list parts not None, Py_ssize_t first, Py_ssize_t last, Py_ssize_t skip=0, bint more=False):
    """Send parts[first:last] (buffers) without the first `skip` bytes, in one call of at most 64 parts.

    Return the bytes sent. `more` sets MSG_MORE, which is also set if not all parts fit into the call.
    """
    cdef Py_buffer views[PARTS]
    cdef iovec vectors[PARTS]
    cdef Gather all_of
    cdef msghdr message
    cdef ssize_t n
    cdef int flags = C_MSG_DONTWAIT | C_MSG_NOSIGNAL
    if first < 0 or last > len(parts) or first >= last:
        raise ValueError(f"cannot send the parts {first}:{last} of {len(parts)}")
    all_of.vectors = vectors
    all_of.views = views
    all_of.room = PARTS
    try:
        gather(&all_of, parts, first, last, skip)
        if more or all_of.count < last - first:
            flags |= C_MSG_MORE
        memset(&message, 0, sizeof(message))
        message.msg_iov = vectors
        message.msg_iovlen = all_of.count
        if all_of.size >= RELEASE_FROM:
            with nogil:
                n = c_sendmsg(fd, &message, flags)
        elif all_of.count == 1:  # most responses: the kernel has less to check than in sendmsg
            n = c_send(fd, vectors[0].iov_base, vectors[0].iov_len, flags)
        else:
            n = c_sendmsg(fd, &message, flags)
    finally:
        release_views(&all_of)
    return n if n >= 0 else failed()


def sendfile(int out, int source, off_t position, Py_ssize_t count):
    """Send up to `count` bytes of the file `source` from `position` on; return 0 if the file ends there.

    Releases the GIL from RELEASE_FROM bytes on. Waits for the disk if the pages are not in memory, even if the socket
    is non-blocking: check with `residency` first.
    """
    cdef ssize_t n
    if count < RELEASE_FROM:
        n = c_sendfile(out, source, &position, count)
    else:
        with nogil:
            n = c_sendfile(out, source, &position, count)
    return n if n >= 0 else failed()


# Files

def this_thread_may_wait():
    """Let every write of the calling thread release the GIL from now on.

    A short write takes microseconds, but milliseconds if the disk has fallen behind. With the GIL held, it would then
    stop all threads.
    """
    global may_wait
    may_wait = True


def pwritev(int fd, parts not None, off_t position):
    """Write the buffers one after the other at `position`, in one call; return the bytes written, which may be fewer.

    A call writes at most IOV_MAX (1,024) buffers. Releases the GIL from 64 KiB on, and always after
    `this_thread_may_wait`.
    """
    cdef Py_buffer few_views[PARTS]
    cdef iovec few_vectors[PARTS]
    cdef Gather all_of
    cdef ssize_t n
    cdef Py_ssize_t count
    parts = parts if type(parts) is list else list(parts)
    count = len(parts)
    if count == 0:
        return 0
    all_of.count = 0
    all_of.vectors = few_vectors
    all_of.views = few_views
    all_of.room = PARTS
    try:
        if count > PARTS:
            all_of.room = <int>min(count, <Py_ssize_t>IOV_MAX)
            all_of.vectors = <iovec *>PyMem_Malloc(all_of.room * sizeof(iovec))
            all_of.views = <Py_buffer *>PyMem_Malloc(all_of.room * sizeof(Py_buffer))
            if all_of.vectors is NULL or all_of.views is NULL:
                raise MemoryError()
        gather(&all_of, parts, 0, count, 0)
        while True:
            if all_of.size < RELEASE_FROM and not may_wait:
                n = c_pwritev(fd, all_of.vectors, all_of.count, position)
            else:
                with nogil:
                    n = c_pwritev(fd, all_of.vectors, all_of.count, position)
            if n >= 0 or errno != EINTR:
                break
    finally:
        release_views(&all_of)
        if all_of.vectors is not few_vectors:
            PyMem_Free(all_of.vectors)
        if all_of.views is not few_views:
            PyMem_Free(all_of.views)
    return n if n >= 0 else failed()


def syncfs(int fd):
    """Sync everything that was written to the file system of an open file, without the GIL."""
    cdef int failed
    with nogil:
        failed = c_syncfs(fd)
    if failed:
        PyErr_SetFromErrno(OSError)


def file_system_type(int fd):
    """Return the number of the type of an open file's file system: f_type of statfs(2)."""
    cdef statfs found
    if fstatfs(fd, &found):
        PyErr_SetFromErrno(OSError)
    return found.f_type


# Waiting

def epoll_wait(int epoll, int timeout_ms):
    """Return up to 256 ready descriptors as a list of (fd, events); an empty list if a signal interrupts the wait.

    With a time-out of 0 the GIL is kept, otherwise released; -1 waits forever.
    """
    cdef epoll_event events[EVENTS]
    cdef int n, i
    cdef list ready
    if timeout_ms == 0:
        n = c_epoll_wait(epoll, events, EVENTS, 0)
    else:
        with nogil:
            n = c_epoll_wait(epoll, events, EVENTS, timeout_ms)
    if n < 0:
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
        return []
    ready = []
    for i in range(n):
        ready.append((events[i].data.fd, events[i].events))
    return ready


def event_set(int fd):
    """Add 1 to an eventfd, which wakes the threads that wait for it."""
    cdef uint64_t one = 1
    if c_write(fd, &one, 8) < 0 and errno != EAGAIN:  # EAGAIN: the counter is full, so the eventfd is set anyway
        PyErr_SetFromErrno(OSError)


def event_clear(int fd):
    """Reset a non-blocking eventfd to 0."""
    cdef uint64_t value
    if c_read(fd, &value, 8) < 0 and errno != EAGAIN:
        PyErr_SetFromErrno(OSError)


# Gathering

cdef int gather(Gather *into, object parts, Py_ssize_t first, Py_ssize_t last, Py_ssize_t skip) except -1:
    cdef Py_buffer *view
    cdef Py_ssize_t index
    into.count = 0
    into.size = 0
    for index in range(first, last):
        if into.count == into.room:
            break
        view = &into.views[into.count]
        PyObject_GetBuffer(parts[index], view, PyBUF_SIMPLE)
        into.vectors[into.count].iov_base = view.buf
        into.vectors[into.count].iov_len = view.len
        into.count += 1
        if skip:
            if skip < 0 or skip > view.len:
                raise ValueError(f"cannot skip {skip} bytes of a part of {view.len}")
            into.vectors[0].iov_base = <char *>view.buf + skip
            into.vectors[0].iov_len = view.len - skip
            into.size -= skip
            skip = 0
        into.size += view.len
    return 0


cdef void release_views(Gather *of) noexcept:
    cdef int index
    for index in range(of.count):
        PyBuffer_Release(&of.views[index])
    of.count = 0
