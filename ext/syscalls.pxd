# The system calls of the hot paths.
#
# Short calls keep the GIL: releasing it costs up to a switch interval if another thread runs Python code. Calls that
# move RELEASE_FROM bytes or more, and those that may wait, release it. Each function says which of the two it does.

from posix.uio cimport iovec

cdef enum:
    RELEASE_FROM = 65536        # from this many bytes on (a copy of about 10 us), the GIL is released
    PARTS = 64                  # buffers that fit into arrays on the stack, and the most that one sendmsg takes

# The buffers of one call: as many of `parts` from `first` on as fit, without the first `skip` bytes.
cdef struct Gather:
    iovec *vectors              # what the kernel gets
    Py_buffer *views            # keep the memory in place; `count` of them are held
    int room                    # capacity of both arrays
    int count                   # number of buffers in the arrays
    size_t size                 # total bytes

cdef int gather(Gather *into, object parts, Py_ssize_t first, Py_ssize_t last, Py_ssize_t skip) except -1
cdef void release_views(Gather *of) noexcept
