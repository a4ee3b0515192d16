"""Histories: what each client of a run did and saw, one JSON object a line, written by the client as it happens.

Every event has "e", its kind, and "t", seconds of the machine's monotonic clock, which all clients share. The value of
a record is its producer's name and a number ("java-producer:17", then a full stop and padding), so every value is
unique.

| event | fields | written by |
|---|---|---|
| begin | client, role, and acks or isolation | all, first |
| sent, acked, failed | topic, p (partition), v (value); acked: o (offset) if known; failed: error | producers |
| seen | topic, p, o, v, epoch (leader epoch, -1 if the client does not say) | consumers |
| assigned, committed | topic, p, o, t0 (when the client asked) | members of groups |
| ended | outcome (committed, aborted, unknown), values | transactional producers |
| hw | topic, p, epoch, hw | the watcher of high watermarks |
| error | error | all, for an unexpected error |
| done | | all, last |
"""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

Event = dict[str, Any]


class Writer:
    """Writes the events of one client; may be used by several threads."""

    def __init__(self, file: Path, client: str, role: str, **about: object) -> None:
        self._file = file.open("w", buffering=1 << 16)
        self._lock = threading.Lock()
        self("begin", client=client, role=role, **about)

    def __call__(self, kind: str, **fields: object) -> None:
        """Write an event with the current time."""
        event = {"e": kind, "t": round(time.monotonic(), 4), **fields}
        with self._lock:
            self._file.write(json.dumps(event, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Write "done" and close the file."""
        self("done")
        self._file.close()


class History(NamedTuple):
    """All events of one client."""

    client: str
    role: str
    about: Event
    events: list[Event]

    def of(self, *kinds: str) -> Iterator[Event]:
        """Return the events of these kinds, in order."""
        return (event for event in self.events if event["e"] in kinds)


def read(file: Path) -> History:
    """Return the history in a file, without a last line that was cut off because the client was killed."""
    lines = file.read_text().split("\n")
    events = [json.loads(line) for line in lines[:-1]]
    first = events[0]
    assert first["e"] == "begin", first
    return History(first["client"], first["role"], first, events[1:])


def name(value: bytes | str) -> str:
    """Return a value without its padding."""
    text = value.decode() if isinstance(value, bytes) else value
    return text.partition(".")[0]
