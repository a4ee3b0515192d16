"""Reads a whole directory without the GIL: a start of the broker does this once for each of thousands of logs.

It lists the directory, calls stat for each name, and reads each small file, relative to the open directory. The same
calls in Python take twice as long, and release and take the GIL twenty times.
"""

from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from libc.errno cimport ENOENT, ENOMEM, errno
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, strcmp, strlen

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <dirent.h>
    #include <fcntl.h>
    #include <sys/stat.h>
    #include <unistd.h>
    #define kafkapy_modified_ms(s) ((int64_t)(s).st_mtim.tv_sec * 1000 + (s).st_mtim.tv_nsec / 1000000)
    """
    ctypedef struct DIR:
        pass
    struct dirent:
        char d_name[256]
    struct stat:
        unsigned int st_mode
        long long st_size
    DIR *fdopendir(int fd) nogil
    dirent *readdir(DIR *directory) nogil
    int closedir(DIR *directory) nogil
    int fstatat(int fd, const char *name, stat *into, int flags) nogil
    int c_open "open"(const char *path, int flags) nogil
    int openat(int fd, const char *name, int flags) nogil
    ssize_t c_read "read"(int fd, void *to, size_t size) nogil
    int c_close "close"(int fd) nogil
    int64_t kafkapy_modified_ms(stat one) nogil
    bint S_ISDIR(unsigned int mode) nogil
    bint S_ISREG(unsigned int mode) nogil
    int O_RDONLY, O_DIRECTORY, O_CLOEXEC


def look(str directory not None):
    """Return [(name, bytes, is a directory, modified ms, content or None)] for a directory, in no order.

    Only files of 1 to SMALL bytes that can be read have a content. A name that is removed in between is omitted. Raises
    OSError.
    """
    cdef Found *found = NULL
    cdef Py_ssize_t count = 0
    cdef int failed
    cdef bytes path = directory.encode("utf-8", "surrogateescape")
    cdef const char *c_path = path
    try:
        with nogil:
            failed = read_all(c_path, &found, &count)
        if failed:
            errno_is(failed)
            PyErr_SetFromErrnoWithFilenameObject(OSError, directory)
        return [as_tuple(found + at) for at in range(count)]
    finally:
        free(found)


cdef void errno_is(int number) noexcept:
    global errno
    errno = number


cdef tuple as_tuple(Found *one):
    return (
        one.name[: strlen(one.name)].decode("utf-8", "surrogateescape"),
        one.size,
        bool(one.is_dir),
        one.modified_ms,
        one.content[: one.held] if one.held >= 0 else None,
    )


cdef int read_all(const char *path, Found **found, Py_ssize_t *count) noexcept nogil:
    """Return 0 or an errno; the caller has to free `found` in both cases."""
    cdef int fd = c_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    cdef DIR *listing
    cdef int failed = 0
    if fd < 0:
        return errno
    listing = fdopendir(fd)
    if listing == NULL:
        failed = errno
        c_close(fd)
        return failed
    failed = read_names(listing, fd, found, count)
    closedir(listing)  # and fd
    return failed


cdef int read_names(DIR *listing, int fd, Found **found, Py_ssize_t *count) noexcept nogil:
    cdef dirent *entry
    cdef Found *more
    cdef Py_ssize_t room = 0
    cdef int failed
    while True:
        errno_is_none()
        entry = readdir(listing)
        if entry == NULL:
            return errno
        if strcmp(entry.d_name, b".") == 0 or strcmp(entry.d_name, b"..") == 0 or strlen(entry.d_name) >= NAME_ROOM:
            continue
        if count[0] == room:
            room = 2 * room if room else 16
            more = <Found *>realloc(found[0], room * sizeof(Found))
            if more == NULL:
                return ENOMEM
            found[0] = more
        failed = read_one(fd, entry.d_name, found[0] + count[0])
        if failed == 0:
            count[0] += 1
        elif failed != ENOENT:
            return failed


cdef void errno_is_none() noexcept nogil:
    global errno
    errno = 0


cdef int read_one(int fd, const char *name, Found *one) noexcept nogil:
    cdef stat status
    cdef int file
    if fstatat(fd, name, &status, 0) < 0:
        return errno
    memcpy(one.name, name, strlen(name) + 1)
    one.size, one.modified_ms = status.st_size, kafkapy_modified_ms(status)
    one.is_dir, one.held = S_ISDIR(status.st_mode), -1
    if S_ISREG(status.st_mode) and 0 < status.st_size <= SMALL:
        file = openat(fd, name, O_RDONLY | O_CLOEXEC)
        if file >= 0:
            one.held = <int>c_read(file, one.content, SMALL)
            c_close(file)
        if one.held != one.size:  # the file changes or cannot be read: the caller gets the error when reading it
            one.held = -1
    return 0
