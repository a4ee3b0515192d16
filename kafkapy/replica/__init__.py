"""The partitions on this broker: leadership, high watermark, reads, appends, and requests that wait for either."""
