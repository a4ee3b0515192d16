# Settings of the C library's allocator. Only Python functions: other extension modules use nothing of it.
