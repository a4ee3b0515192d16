"""Segments: their files, the list of a log's segments, deletion and splitting."""
