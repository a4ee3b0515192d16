# Which parts of a file are in memory. The questions are Python functions: they take longer than the call around them.

from libc.stdint cimport int64_t
from posix.types cimport off_t

# Whether all of the range can be read without waiting, by mincore(2): for file systems that do not know RWF_NOWAIT.
# False also where nobody can say. The range is one: position >= 0, length > 0, no overflow.
cdef bint readable(int fd, off_t position, Py_ssize_t length) noexcept nogil
