"""Partitions as this broker holds them: leadership, high watermark, and the reads and appends that wait."""
