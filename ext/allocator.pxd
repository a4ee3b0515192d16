# What the process asks of the C library's allocator. Nothing in it is for other extension modules.
