"""The original producer reports each message as stored or lost, and all messages reported as stored are there.

`KAFKAPY_FAULT_ROUNDS=40 python -m pytest tests/faults/test_original_producer.py -s` runs the full length.
"""

import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.client import Admin, SimpleConsumer
from tests.faults.rounds import rounds
from tests.harness.brokers import KafkapyBroker, Process, free_port
from tests.harness.waiting import eventually

pytestmark = pytest.mark.not_quick

JOB = Path(__file__).with_name("producing_job.py")
ENOUGH = 300  # messages whose result must be reported before the test continues
QUICK = ["retry.backoff.ms=20", "request.timeout.ms=2000", "queue.buffering.max.ms=20"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[list[KafkapyBroker]]:
    """Yield the running broker in a list, so that a test can replace it."""
    running = [KafkapyBroker(tmp_path, port=free_port())]
    with Admin(running[0].bootstrap) as admin:
        admin.create_topic("t", 2)
    yield running
    running[0].stop()


class Job:
    def __init__(self, kind: str, broker: KafkapyBroker, directory: Path, *properties: str) -> None:
        words = [kind, broker.bootstrap, *QUICK, *properties]
        self.process = Process([sys.executable, str(JOB), *words], directory / "job.log")

    def numbers(self, what: str) -> Counter[int]:
        lines = (line.split() for line in self.process.lines)
        return Counter(int(line[1]) for line in lines if line[0] == what)

    def wait_for(self, count: int) -> None:
        eventually(lambda: len(self.process.lines) >= count, seconds=60)

    def stop(self) -> tuple[int, int]:
        """Stop the job. Return (number of sent messages, number of messages that the producer counted as lost)."""
        assert self.process.stop() == 0
        last = re.fullmatch(r"sent (\d+) failed (\d+)", self.process.lines[-1])
        assert last is not None
        return int(last[1]), int(last[2])


def there(broker: KafkapyBroker) -> Counter[int]:
    found: Counter[int] = Counter()
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        for partition in (0, 1):
            offset = 0
            while (messages := consumer.fetch("t", partition, offset, 1 << 20)).valid_bytes:
                found.update(int(message.value or b"") for _, message in messages)
                offset = messages.next_offset
    return found


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_messages_reported_as_stored_survive_a_kill_of_the_producer(
    broker: list[KafkapyBroker], tmp_path: Path, kind: str
) -> None:
    choose = random.Random(4)
    before: Counter[int] = Counter()
    stored_so_far = 0
    for _ in range(rounds(2)):
        job = Job(kind, broker[0], tmp_path)
        job.wait_for(choose.randrange(1, 2 * ENOUGH))
        job.process.kill()
        stored = job.numbers("stored")
        assert set(stored.values()) <= {1}
        now = there(broker[0])
        assert not stored - (now - before)
        before, stored_so_far = now, stored_so_far + stored.total()
    print(json.dumps({"kind": kind, "rounds": rounds(2), "stored": stored_so_far, "there": before.total()}))


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_clean_close_reports_the_result_of_every_message(
    broker: list[KafkapyBroker], tmp_path: Path, kind: str
) -> None:
    job = Job(kind, broker[0], tmp_path)
    job.wait_for(ENOUGH)
    sent, failed = job.stop()
    assert failed == 0
    assert job.numbers("stored") == there(broker[0]) == Counter(range(sent))


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_each_message_is_stored_or_reported_as_lost_though_the_broker_is_killed(
    broker: list[KafkapyBroker], tmp_path: Path, kind: str
) -> None:
    choose = random.Random(5)
    job = Job(kind, broker[0], tmp_path, "message.send.max.retries=1", "queue.enqueue.timeout.ms=-1")
    for _ in range(rounds(2)):
        job.wait_for(len(job.process.lines) + choose.randrange(1, ENOUGH))
        broker[0].kill()
        job.wait_for(len(job.process.lines) + choose.randrange(1, ENOUGH))
        broker[0] = KafkapyBroker(tmp_path, port=broker[0].port)
        seen = len(job.numbers("stored"))
        eventually(lambda seen=seen: len(job.numbers("stored")) > seen, seconds=60)
    sent, failed = job.stop()
    stored, lost = job.numbers("stored"), job.numbers("lost")
    now = there(broker[0])
    print(json.dumps({"kind": kind, "sent": sent, "lost": failed, "there": now.total()}))
    assert stored + lost == Counter(range(sent))
    assert lost.total() == failed > 0
    assert not stored - now
