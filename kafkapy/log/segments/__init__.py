"""Segments: the files of a segment, the list of a log's segments, and the deletion and splitting of segments."""
