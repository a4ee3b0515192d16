# Reads a directory: its names, what stat returns for each, and the content of small files.

from libc.stdint cimport int64_t

cdef enum:
    SMALL = 128         # files up to this size are read
    NAME_ROOM = 256     # NAME_MAX of Linux, and the zero at the end

# One name. 420 bytes: a directory of 10,000 segments takes 17 MB until `look` returns.
cdef struct Found:
    int64_t size                # bytes
    int64_t modified_ms
    bint is_dir
    int held                    # bytes in `content`; -1: not read
    char name[NAME_ROOM]
    char content[SMALL]
