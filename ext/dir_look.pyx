"""Reads a whole directory without the GIL: a start of the broker does this once for each of thousands of logs.

It lists the directory, calls stat for each name, and reads each small file, relative to the open directory. The same
calls in Python take twice as long, and release and take the GIL twenty times.

A log may have thousands of segments, of which only the last one matters when the log is loaded after a clean stop. So
`look_apart` returns no name of the others, but the sizes of their .log files in rows, and neither calls stat for their
other files nor reads them.
"""

from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from libc.errno cimport ENOENT, ENOMEM, errno
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport free, malloc, qsort, realloc
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
        unsigned char d_type
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
    unsigned char DT_REG

cdef enum:
    DIGITS = 20     # of the offset in a file name
    COMPLETE = 1 << LOG | 1 << INDEX | 1 << TIME_INDEX
    WITH_SNAPSHOT = COMPLETE | 1 << SNAPSHOT


def look(str directory not None):
    """Return [(name, bytes, is a directory, modified ms, content or None)] for a directory, in no order.

    Only files of 1 to SMALL bytes that can be read have a content. A name that is removed in between is omitted. Raises
    OSError.
    """
    return looked(directory, False)[0]


def look_apart(str directory not None):
    """Return a list as `look` does, without the files of complete older segments, and the Rows of those as bytes.

    The rows ascend by base offset. An older segment is complete if another one follows and there are a .log file, an
    offset index and a time index, perhaps a producer snapshot, and no other file with its base offset.
    """
    return looked(directory, True)


cdef tuple looked(str directory, bint apart):
    cdef Found *found = NULL
    cdef Row *rows = NULL
    cdef Py_ssize_t count = 0, row_count = 0
    cdef int failed
    cdef bytes path = directory.encode("utf-8", "surrogateescape")
    cdef const char *c_path = path
    try:
        with nogil:
            failed = read_all(c_path, apart, &found, &count, &rows, &row_count)
        if failed:
            errno_is(failed)
            PyErr_SetFromErrnoWithFilenameObject(OSError, directory)
        return [as_tuple(found + at) for at in range(count)], (<char *>rows)[: row_count * sizeof(Row)]
    finally:
        free(found)
        free(rows)


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


cdef int read_all(
    const char *path, bint apart, Found **found, Py_ssize_t *count, Row **rows, Py_ssize_t *row_count
) noexcept nogil:
    """Return 0 or an errno; the caller has to free `found` and `rows` in both cases."""
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
    failed = read_names(listing, found, count)
    if failed == 0 and apart:
        failed = take_rows(fd, found[0], count, rows, row_count)
    if failed == 0:
        failed = read_files(fd, found[0], count)
    closedir(listing)  # and fd
    return failed


cdef int read_names(DIR *listing, Found **found, Py_ssize_t *count) noexcept nogil:
    cdef dirent *entry
    cdef Found *more
    cdef Py_ssize_t room = 0
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
        name_it(found[0] + count[0], entry)
        count[0] += 1


cdef void name_it(Found *one, dirent *entry) noexcept nogil:
    """Set the name of a file, and what the name says."""
    cdef const char *name = entry.d_name
    cdef int at
    memcpy(one.name, name, strlen(name) + 1)
    one.offset, one.kind = -1, OTHER
    for at in range(DIGITS):
        if not c"0" <= name[at] <= c"9":  # also at the end of a shorter name
            return
    if name[0] != c"0":  # more than any offset, as 2^63 has 19 digits
        return
    one.offset = 0
    for at in range(1, DIGITS):
        if one.offset > (INT64_MAX - (name[at] - c"0")) // 10:
            one.offset = -1
            return
        one.offset = 10 * one.offset + (name[at] - c"0")
    if strcmp(name + DIGITS, b".log") == 0:
        one.kind = LOG
    elif entry.d_type != DT_REG:
        return
    elif strcmp(name + DIGITS, b".index") == 0:
        one.kind = INDEX
    elif strcmp(name + DIGITS, b".timeindex") == 0:
        one.kind = TIME_INDEX
    elif strcmp(name + DIGITS, b".snapshot") == 0:
        one.kind = SNAPSHOT


cdef int by_offset(const void *one, const void *other) noexcept nogil:
    cdef int64_t left = (<const Found *>one).offset, right = (<const Found *>other).offset
    return (left > right) - (left < right)


cdef int take_rows(int fd, Found *found, Py_ssize_t *count, Row **rows, Py_ssize_t *row_count) noexcept nogil:
    """Take the files of complete older segments out of `found`, and append a row for each segment. Return 0 or an
    errno.
    """
    cdef int64_t last = -1
    cdef Py_ssize_t at, each, end, kept = 0
    for at in range(count[0]):
        if found[at].kind == LOG and found[at].offset > last:
            last = found[at].offset
    if last <= 0:
        return 0
    rows[0] = <Row *>malloc(count[0] * sizeof(Row))
    if rows[0] == NULL:
        return ENOMEM
    qsort(found, count[0], sizeof(Found), by_offset)
    at = 0
    while at < count[0]:
        end = at + 1
        while end < count[0] and found[end].offset == found[at].offset:
            end += 1
        if 0 <= found[at].offset < last and is_complete(fd, found + at, end - at, rows[0] + row_count[0]):
            row_count[0] += 1
        else:
            for each in range(at, end):
                if kept != each:
                    found[kept] = found[each]
                kept += 1
        at = end
    count[0] = kept
    return 0


cdef bint is_complete(int fd, const Found *files, Py_ssize_t count, Row *row) noexcept nogil:
    """Return True, and fill `row`, if these files of one base offset are a complete segment."""
    cdef stat status
    cdef int seen = 0
    cdef Py_ssize_t at, log = 0
    for at in range(count):
        seen += 1 << files[at].kind
        if files[at].kind == LOG:
            log = at
    if seen != COMPLETE and seen != WITH_SNAPSHOT:
        return False
    if fstatat(fd, files[log].name, &status, 0) < 0 or not S_ISREG(status.st_mode):
        return False
    row.base_offset, row.size, row.has_snapshot = files[0].offset, status.st_size, seen == WITH_SNAPSHOT
    return True


cdef int read_files(int fd, Found *found, Py_ssize_t *count) noexcept nogil:
    """Read what `look` returns of each name, and remove names that do not exist any more. Return 0 or an errno."""
    cdef Py_ssize_t at, kept = 0
    cdef int failed
    for at in range(count[0]):
        failed = read_one(fd, found + at)
        if failed == ENOENT:
            continue
        if failed:
            return failed
        if kept != at:
            found[kept] = found[at]
        kept += 1
    count[0] = kept
    return 0


cdef void errno_is_none() noexcept nogil:
    global errno
    errno = 0


cdef int read_one(int fd, Found *one) noexcept nogil:
    cdef stat status
    cdef int file
    if fstatat(fd, one.name, &status, 0) < 0:
        return errno
    one.size, one.modified_ms = status.st_size, kafkapy_modified_ms(status)
    one.is_dir, one.held = S_ISDIR(status.st_mode), -1
    if S_ISREG(status.st_mode) and 0 < status.st_size <= SMALL:
        file = openat(fd, one.name, O_RDONLY | O_CLOEXEC)
        if file >= 0:
            one.held = <int>c_read(file, one.content, SMALL)
            c_close(file)
        if one.held != one.size:  # the file changes or cannot be read: the caller gets the error when reading it
            one.held = -1
    return 0
