"""A librdkafka producer that wants a fixed rate, whatever its quota is, as a process of its own.

`python -m perf.greedy_producer BOOTSTRAP TOPIC BYTES_PER_SECOND` produces with the client id `greedy`, as much as
librdkafka's queue takes, until it is ended. It prints `producing` after the first record was acknowledged.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perf import frames
from perf.processes import Child

CLIENT_ID = "greedy"
VALUE = 10_000  # bytes of a record
BURST = 20  # records produced between two looks at the clock


@contextmanager
def greedy_producer(bootstrap: str, topic: str, rate: float, output: Path) -> Iterator[None]:
    """Have a process produce `rate` bytes a second to the topic in the block. Its errors go to the file `output`."""
    command = [sys.executable, "-m", "perf.greedy_producer", bootstrap, topic, str(rate)]
    child = Child(command, output, keep_stdout=True)
    try:
        child.first_line("the greedy producer did not start")
        yield
        if child.process.poll() is not None:
            raise child.failure("the greedy producer stopped producing")
    finally:
        child.stop()


def main(bootstrap: str, topic: str, rate: float) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "client.id": CLIENT_ID, "linger.ms": 5, "queue.buffering.max.kbytes": 16_384}
    )
    value = frames.plain_values(VALUE, 1)[0]
    producer.produce(topic, value)
    if producer.flush(30):
        raise SystemExit("the first record was not acknowledged within 30 s")
    print("producing", flush=True)
    due = time.perf_counter()
    while True:
        for _ in range(BURST):
            try:
                producer.produce(topic, value)
            except BufferError:
                break
        producer.poll(0)
        due = max(due + BURST * VALUE / rate, time.perf_counter() - 1)
        time.sleep(max(0.0, due - time.perf_counter()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
