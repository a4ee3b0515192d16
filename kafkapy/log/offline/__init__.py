"""Read the segment files of partitions without a broker: find them by path, search by offset or time, read them as
columns.

Nothing here writes. The content of a file is not trusted: an index only speeds up a search, and a size is checked
before memory is allocated.
"""
