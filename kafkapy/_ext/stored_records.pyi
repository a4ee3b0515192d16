"""Types of ext/stored_records.pyx, whose walk is for other C modules."""

class DamagedBatch(ValueError):
    position: int
    reason: str
    def __init__(self, position: int, reason: str) -> None: ...
