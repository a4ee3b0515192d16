"""The partitions on this broker: leadership, high watermark, reads and appends, and requests that wait for records."""
