"""Transaction markers, for tests that build batches by hand."""

import struct


def encode_marker(coordinator_epoch: int) -> bytes:
    """Return the value of a transaction marker: version 0 and the coordinator's epoch."""
    return struct.pack(">hi", 0, coordinator_epoch)
