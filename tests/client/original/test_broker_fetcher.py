"""The thread that fetches from one broker, while partitions come and go."""

import threading
from collections.abc import Sequence

from kafkapy.client.original.consuming.broker_fetcher import BrokerFetcher
from kafkapy.client.original.consuming.fetch_wire import Fetched
from kafkapy.client.original.consuming.settings import consumer_settings
from kafkapy.client.original.consuming.streams import OwnedPartition, Stream
from kafkapy.errors import Errors
from kafkapy.record.batch import build

PATIENCE_S = 10.0
SETTINGS = consumer_settings({"zookeeper.connect": "z:1", "group.id": "g"})


class SlowWire:
    """A connection that answers with one record for each partition. The first response waits until the test releases
    it, and has the error code that the test chooses."""

    def __init__(self, error_code: int = 0) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self._error_code = error_code

    def fetch(self, partitions: Sequence[OwnedPartition], max_wait_ms: int) -> list[Fetched]:
        positions = [(owned.where, owned.fetch_from or 0) for owned in partitions]
        code = 0
        if not self.asked.is_set():
            self.asked.set()
            assert self.may_answer.wait(PATIENCE_S)
            code = self._error_code
        data = {where: build([(0, None, b"%d" % at, ())], base_offset=at) for where, at in positions}
        return [Fetched(where, code, memoryview(data[where]), at + 1) for where, at in positions]

    def close(self) -> None:
        pass


def first_after_it_was_taken_again(wire: SlowWire) -> tuple[int, list[OwnedPartition]]:
    """Release a partition while it is fetched at offset 100, and claim it again at offset 50. Return the start of its
    first chunk, and the partitions that the fetcher gave back."""
    stream, back = Stream(), []
    fetcher = BrokerFetcher(("b", 1), wire, SETTINGS, back.extend)
    try:
        before, after = (OwnedPartition(("t", "0"), stream, offset) for offset in (100, 50))
        fetcher.add([before])
        assert wire.asked.wait(PATIENCE_S)
        stream.revoke([before])
        fetcher.add([after])
        wire.may_answer.set()
        chunk = stream.next_chunk(PATIENCE_S)
        assert chunk is not None
        assert chunk.owned is after
        assert chunk.data == build([(0, None, b"%d" % chunk.start, ())], base_offset=chunk.start)
        return chunk.start, back
    finally:
        wire.may_answer.set()
        fetcher.close()
        fetcher.join(PATIENCE_S)


def test_a_response_from_before_a_partition_was_released_is_ignored_after_it_is_claimed_again() -> None:
    """Otherwise the records from offset 50 to 100 would never be read."""
    assert first_after_it_was_taken_again(SlowWire()) == (50, [])


def test_an_error_from_before_a_partition_was_released_does_not_move_its_new_position() -> None:
    start, back = first_after_it_was_taken_again(SlowWire(Errors.NOT_LEADER_OR_FOLLOWER))
    assert start == 50
    assert [owned.revoked for owned in back] == [True]


class EmptyMessageWire:
    """A broker of Kafka 0.7 whose log has one compressed message with no messages in it, in its first 30 bytes."""

    def __init__(self) -> None:
        self.asked: list[int | None] = []

    def fetch(self, partitions: Sequence[OwnedPartition], max_wait_ms: int) -> list[Fetched]:
        self.asked += [owned.fetch_from for owned in partitions]
        return [Fetched(owned.where, 0, memoryview(b""), 30) for owned in partitions]

    def close(self) -> None:
        pass


def test_a_compressed_message_with_no_messages_in_it_is_passed_over() -> None:
    wire, stream = EmptyMessageWire(), Stream()
    fetcher = BrokerFetcher(("b", 1), wire, SETTINGS, lambda _: None)
    try:
        fetcher.add([OwnedPartition(("t", "8-0"), stream, 0)])
        chunk = stream.next_chunk(PATIENCE_S)
    finally:
        fetcher.close()
        fetcher.join(PATIENCE_S)
    assert chunk is not None
    assert (chunk.start, chunk.after, len(chunk.data)) == (0, 30, 0)
    assert set(wire.asked[1:]) <= {30}
    assert stream.next_chunk(0) is None
