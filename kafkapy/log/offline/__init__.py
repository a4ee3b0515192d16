"""Segment files read from outside, without a broker: found by path, looked up by offset or time, taken as columns.

Nothing here writes. What a file says is not believed: an index is a help, a size is checked before memory is taken.
"""
