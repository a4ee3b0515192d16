# Reads a directory: its names, what stat returns for each, and the content of small files.
#
# With `apart`, most files of a partition's directory, those of complete older segments, become one row per segment.

from libc.stdint cimport int64_t

cdef enum:
    SMALL = 128         # files up to this size are read
    NAME_ROOM = 256     # NAME_MAX of Linux, and the zero at the end

# The kinds of files of a segment; OTHER is any other name.
cdef enum Kind:
    LOG
    INDEX
    TIME_INDEX
    SNAPSHOT
    OTHER

# What `look_apart` returns of one segment, in native byte order.
cdef struct Row:
    int64_t base_offset
    int64_t size                # of the .log file, in bytes
    int64_t has_snapshot        # 1 if a producer snapshot has the segment's base offset, else 0

# One name. 440 bytes: a directory of 10,000 segments takes 17 MB until `look` returns.
cdef struct Found:
    int64_t size                # bytes
    int64_t modified_ms
    bint is_dir
    int held                    # bytes in `content`; -1: not read
    Kind kind                   # OTHER also for an index or a snapshot that is not a regular file
    int64_t offset              # the twenty digits at the beginning of the name; -1 if there are none
    char name[NAME_ROOM]
    char content[SMALL]
