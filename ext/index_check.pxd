# Entries of index files, big-endian.

cdef enum:
    OFFSET_ENTRY = 8    # int32 relative offset, int32 position
    TIME_ENTRY = 12     # int64 timestamp, int32 relative offset
