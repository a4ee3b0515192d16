"""Runs `kafkapy start` and kills the process between the preparation of a transaction and its completion.

`python dying_broker.py SEED KAFKAPY start ...` waits for a random number of records that prepare a commit or an abort,
and for a random number of writes to log files. Then it sends itself SIGKILL before, or during, the next write.
"""

import os
import random
import signal
import sys
from collections.abc import Sequence
from typing import Any

from kafkapy.coordinator.transaction_records import STATES, decode_state
from kafkapy.log.storage.files import Buffer, Files
from kafkapy.record.batch import records_of
from kafkapy.record.legacy import iter_entries
from kafkapy.tools.main import main

TOPIC = "__transaction_state"
PREPARED = (STATES.index("PrepareCommit"), STATES.index("PrepareAbort"))
MOST_PREPARED = 60
MOST_WRITES = 12  # about as many as the markers and the last record of a transaction


class Death:
    """Counts the writes to log files, and kills the process at the chosen write."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self._prepared = rng.randint(1, MOST_PREPARED)
        self._writes = rng.randint(0, MOST_WRITES)
        self._torn = rng.random() < 0.3
        self._write = Files.pwritev

    def pwritev(self, files: Files, file: Any, buffers: Sequence[Buffer], position: int) -> int:
        path = str(file.path)
        if not self._prepared and path.endswith(".log"):
            if not self._writes:
                data = b"".join(buffers)
                if self._torn:
                    self._write(files, file, [data[: len(data) // 2]], position)
                os.kill(os.getpid(), signal.SIGKILL)
            self._writes -= 1
        written = self._write(files, file, buffers, position)
        if self._prepared and TOPIC in path and path.endswith(".log") and _prepares(b"".join(buffers)):
            self._prepared -= 1
        return written


def _prepares(data: bytes) -> bool:
    records = [one for batch in iter_entries(data) for one in records_of(data, batch)]
    return any(one.value is not None and decode_state(one.value).state in PREPARED for one in records)


if __name__ == "__main__":
    death = Death(int(sys.argv[1]))
    Files.pwritev = lambda *arguments: death.pwritev(*arguments)  # type: ignore[method-assign]
    sys.exit(main(sys.argv[3:]))
