# Which parts of a file are in memory. Most of it is Python functions: their system calls take longer than a Python
# call.

from libc.stdint cimport int64_t
from posix.types cimport off_t

# Return True if the whole range can be read without waiting, by mincore(2): for file systems without RWF_NOWAIT. False
# if mincore fails. The range must be valid: position >= 0, length > 0, no overflow.
cdef bint readable(int fd, off_t position, Py_ssize_t length) noexcept nogil

cdef enum:
    FAILED = -2

# Read up to `size` bytes from `position` on, if that is possible without waiting. Return the bytes read (0 at the end
# of the file), -1 if the first of them is not in memory, or FAILED, with errno set.
cdef ssize_t read_there(int fd, char *to, Py_ssize_t size, off_t position) noexcept
