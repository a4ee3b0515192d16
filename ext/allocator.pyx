"""Sets how much freed memory the C library keeps instead of returning it to the system.

By default it returns free memory at the end of a heap from 128 KiB on, and maps each larger block separately until the
first such block is freed. Decompressing a batch allocates and frees a few blocks of about that size. Their pages would
be touched for the first time again and again, at 1 to 3 us each.
"""

cdef extern from *:
    """
    #include <stdlib.h>
    #ifdef __GLIBC__
    #include <malloc.h>
    static int kafkapy_keep_freed(int size) {
        return mallopt(M_TRIM_THRESHOLD, size) && mallopt(M_MMAP_THRESHOLD, size);
    }
    #else
    static int kafkapy_keep_freed(int size) { (void)size; return 0; }
    #endif
    """
    bint kafkapy_keep_freed(int size)


def keep_freed(int size) -> bool:
    """Keep up to `size` bytes at the end of each heap, and allocate blocks up to that size from heaps.

    Applies to the whole process. Return False if the C library is not glibc; then nothing changes.
    """
    return kafkapy_keep_freed(size)
