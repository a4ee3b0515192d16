# One look at a directory: its names, what stat says of each, and what small files hold.

from libc.stdint cimport int64_t

cdef enum:
    SMALL = 128         # bytes of a file up to which its content is read
    NAME_ROOM = 256     # NAME_MAX of Linux, and the zero behind it

# One name. 420 bytes: a directory of 10,000 segments takes 17 MB for as long as the look lasts.
cdef struct Found:
    int64_t size                # bytes
    int64_t modified_ms
    bint is_dir
    int held                    # bytes in `content`; -1 where it was not read
    char name[NAME_ROOM]
    char content[SMALL]
