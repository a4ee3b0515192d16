# The system calls of the hot paths, for other extension modules too.
#
# Short calls keep the interpreter's lock: giving it up costs up to a switch interval when another thread is busy.
# Calls that move RELEASE_FROM bytes or more, and those that may sleep, release it. Each function says which it does.

from posix.uio cimport iovec

cdef enum:
    RELEASE_FROM = 65536        # bytes from which a copy (about 10 us) is made without the interpreter's lock
    PARTS = 64                  # buffers that fit the arrays on the stack; also the most one sendmsg takes

# Buffers being gathered for one call: as many of `parts` from `first` on as fit, without the first `skip` bytes.
cdef struct Gather:
    iovec *vectors              # what the kernel gets
    Py_buffer *views            # what keeps the memory where it is; `count` of them are held
    int room                    # how many of each there are
    int count                   # how many are filled
    size_t size                 # bytes in all of them

cdef int gather(Gather *into, object parts, Py_ssize_t first, Py_ssize_t last, Py_ssize_t skip) except -1
cdef void let_go(Gather *of) noexcept
