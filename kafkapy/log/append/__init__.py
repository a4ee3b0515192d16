"""Appending: the rules that records must meet, and the write under the log's lock."""
