"""`python -m kafkapy.tools.bench.worker FD SLOTS SLOT`: the process of one client.

The process reads its job (a pickle) from standard input, prepares it, prints a line and waits for a line from the
command, so that all clients begin together. Then it runs the job. If it fails, its last line is the error, as JSON.
"""

from __future__ import annotations

import gc
import json
import pickle
import signal
import sys

from kafkapy.tools.bench.board import Board
from kafkapy.tools.bench.jobs import CLOSED, Job

READY = b"ready\n"


def main(fd: int, slots: int, number: int) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which then tells its clients to end
    out = sys.stdout.buffer
    try:
        job: Job = pickle.load(sys.stdin.buffer)
        slot = Board(slots, fd).slots[number]
        job.prepare()
        out.write(READY)
        out.flush()
        if not sys.stdin.buffer.readline():
            return 1
        gc.collect()
        gc.freeze()
        gc.disable()  # the loops make no reference cycles, and a pause would count as latency of the broker
        slot.begin()
        try:
            job.run(slot)
        finally:
            slot.end()
    except Exception as error:
        from kafkapy.tools.main import sentence_of

        text = CLOSED if isinstance(error, ConnectionError) else sentence_of(error)
        out.write(json.dumps({"error": text}).encode() + b"\n")
        out.flush()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
