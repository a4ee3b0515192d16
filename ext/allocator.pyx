"""How much freed memory the C library keeps instead of giving it back to the system.

It gives back what is free at the end of a heap from 128 KiB on, and maps larger blocks each by themselves, until a
first such block is freed. A batch that is decompressed takes and frees some blocks of about that size: their pages
would be touched for the first time again and again, at 1 to 3 us each.
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
    """Keep up to `size` bytes at the end of each heap, and take blocks up to that size from heaps.

    For the whole process. False where the C library is not glibc; then nothing has changed.
    """
    return kafkapy_keep_freed(size)
