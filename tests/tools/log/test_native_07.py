"""The tools on native logs of Kafka 0.7 that a broker is writing."""

import json
import threading

import pytest

from kafkapy.log.offline.places import places_in
from kafkapy.record.compression import GZIP, compress
from kafkapy.record.kafka07 import build_message
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.log.tail.follow_07 import Follower07
from tests.harness.golden_07 import GOLDEN_07, TOPICS_07, expected
from tests.log.log07.bench import Bench, put, put_set


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path, segment_bytes=300)
    yield bench
    bench.directory.close()


class Tail:
    def __init__(self, directory):
        (place,) = places_in([directory])
        self.notes = []
        self.follower = Follower07(place, self.notes.append)

    def last(self, count):
        found = []
        self.follower.last(count, lambda one: found.append((one.record.offset, one.record.value)))
        return found

    def poll(self):
        found = []
        while self.follower.poll(lambda one: found.append((one.record.offset, one.record.value))):
            pass
        return found


@pytest.mark.parametrize("topic", TOPICS_07)
def test_the_last_messages_of_golden_logs_are_shown(topic):
    wanted = [(offset, payload) for offset, _, payload in expected(f"{topic}-0")]
    tail = Tail(GOLDEN_07 / "data" / f"{topic}-0")
    for count in (0, 1, 3, len(wanted), len(wanted) + 5):
        assert tail.last(count) == (wanted[-count:] if count else [])
    assert tail.poll() == []


def test_new_messages_are_followed_across_segments(bench, tmp_path):
    log = bench.log()
    put(log, b"before")
    tail = Tail(tmp_path / "t-0")
    assert tail.poll() == []
    wanted = []
    for number in range(40):
        payload = b"message %d" % number
        wanted.append((log.segments[-1].start + log.segments[-1].size, payload))  # a roll begins at that position
        put(log, payload)
    assert len(log.segments) > 2
    assert tail.poll() == wanted
    inner = build_message(b"a") + build_message(b"b")
    at = log.segments[-1].start + log.segments[-1].size
    put_set(log, build_message(compress(GZIP, inner), codec=GZIP))
    assert tail.poll() == [(at, b"a"), (at, b"b")]


def test_a_message_that_is_written_in_part_is_shown_when_it_is_whole(bench, tmp_path):
    log = bench.log()
    put(log, b"one")
    tail = Tail(tmp_path / "t-0")
    data = build_message(b"two")
    with open(log.segments[-1].path, "ab", buffering=0) as file:
        file.write(data[:7])
        assert tail.poll() == []
        file.write(data[7:])
    assert tail.poll() == [(13, b"two")]


def test_what_happens_to_the_log_meanwhile_is_said(bench, tmp_path):
    log = bench.log()
    put(log, b"x" * 400)
    tail = Tail(tmp_path / "t-0")
    put(log, b"y")
    with open(log.segments[-1].path, "r+b") as file:
        assert tail.poll() == [(410, b"y")]
        file.truncate(0)
    assert tail.poll() == []
    assert tail.notes == ["t-0: the log was cut to offset 410."]
    for segment in log.segments:
        segment.files.unlink(segment.path)
    with pytest.raises(ToolError, match="t-0 is gone"):
        tail.poll()


def test_deleted_messages_are_said(bench, tmp_path):
    log = bench.log()
    put(log, b"x" * 400)
    tail = Tail(tmp_path / "t-0")
    tail.follower.next_offset = 0
    put(log, b"y")
    log.segments[0].files.unlink(log.segments[0].path)
    assert tail.poll() == [(410, b"y")]
    assert tail.notes == ["t-0: messages before offset 410 have been deleted."]


def test_the_commands_find_no_fault_while_a_broker_writes(kafkapy, bench, tmp_path):
    log = bench.log()
    put(log, b"first")
    stop = threading.Event()

    def write():
        while not stop.is_set():
            put(log, b"some text", b"more text" * 3)
            if len(log.segments) > 200:
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3):
            code, out, err = kafkapy("log", "verify", tmp_path / "t-0")
            assert (code, err) == (0, ""), out
    finally:
        stop.set()
        writer.join()
    code, out, _ = kafkapy("log", "tail", "-n", "1", "--json", tmp_path / "t-0")
    assert (code, json.loads(out)["value"]) == (0, "more text" * 3)
    code, out, _ = kafkapy("log", "find", "--value", "^first$", tmp_path / "t-0")
    assert (code, out.count("first")) == (0, 1)
    for command in ("dump", "stats"):
        code, out, err = kafkapy("log", command, tmp_path / "t-0")
        assert code == 0, err
