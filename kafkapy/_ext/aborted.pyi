"""Types of ext/aborted.pyx, which other C modules use."""

from collections.abc import Iterable
from typing import final

@final
class AbortedTransactions:
    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None: ...
    @property
    def failed(self) -> bool: ...
