"""Copying exactly once, also by two mirrors that both believe that they own a partition."""

import time

import pytest

from kafkapy.client import Admin, Cluster, ConnectionFailed, GroupAdmin
from kafkapy.client.producing.transaction_link import TransactionLink
from kafkapy.mirror.counts import Counts
from kafkapy.mirror.exactly_once import ExactlyOnce, NotEnded
from kafkapy.mirror.member import Piece
from kafkapy.mirror.options import MirrorOptions
from kafkapy.mirror.partition_copy import PartitionCopy
from kafkapy.mirror.target_settings import read_target
from kafkapy.mirror.target_topics import NoTopic
from kafkapy.record.batch import build
from tests.client.conftest import FakeBroker
from tests.client.test_transactional_producer import Coordinator
from tests.mirror.conftest import FakeMember, Stop, read

NUMBERS = [b"%d" % number for number in range(100)]
GROUP = "g.source"
PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def again_at_once(monkeypatch):
    monkeypatch.setattr("kafkapy.mirror.exactly_once.RESTART_S", 0.0)


def stream_of(member, target, interval_s=1000.0, **properties):
    settings = read_target({"bootstrap.servers": target, **{k.replace("_", "."): v for k, v in properties.items()}})
    counts = Counts()
    options = MirrorOptions(commit_interval_s=interval_s, exactly_once=True)
    stream = ExactlyOnce(member, GROUP, settings, options, counts)
    stream.open()
    return stream, counts


def member_with(topic, batches):
    """Return a member with one partition of `batches` batches of ten numbers each."""
    member = FakeMember(topic)
    for number in range(batches):
        member.write(0, NUMBERS[10 * number : 10 * number + 10])
    return member


def keeps(target, topic, offset):
    """Wait until the target has this committed offset; return True."""
    deadline = time.monotonic() + PATIENCE_S
    with Cluster(target) as cluster:
        admin = GroupAdmin(cluster)
        while (topic, 0) not in (found := admin.offsets([GROUP])[GROUP]) or found[topic, 0].offset != offset:
            assert time.monotonic() < deadline, found
            time.sleep(0.01)
    return True


def values(target, topic, count):
    """Wait until the topic has `count` values; return them. A commit is answered before its markers are written."""
    deadline = time.monotonic() + PATIENCE_S
    while len(found := [record.value for record in read(target, topic)]) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found


def numbers(target, topic, count):
    return sorted(int(value) for value in values(target, topic, count))


def run_on(stream, member, polls):
    """Run the stream for at least `polls` polls, and until all batches of its partitions are read."""
    enough = Stop(member, polls)
    deadline = time.monotonic() + PATIENCE_S

    def stopped():
        assert time.monotonic() < deadline
        read_all = all(member.positions[where] == 10 * len(member.logs[where]) for where in stream._copies)
        return enough() and not stream._to_start and read_all

    stream.run(stopped)


def take(stream):
    """Wait until the stream has started all partitions that it was given."""
    deadline = time.monotonic() + PATIENCE_S
    while stream._to_start:
        assert time.monotonic() < deadline
        stream._start_due(lambda: False)


def test_records_and_offset_are_committed_together_and_the_source_gets_a_copy(target):
    member = member_with("once", 3)
    stream, counts = stream_of(member, target)
    stream.on_taken([("once", 0)])
    run_on(stream, member, 3)
    stream.close()
    assert numbers(target, "once", 30) == list(range(30))
    assert keeps(target, "once", 30)
    assert member.committed == [{("once", 0): 30}]
    assert (counts.records, counts.commits, counts.fenced) == (30, 1, 0)


def test_a_mirror_resumes_at_the_targets_offsets_whatever_the_source_says(target):
    first = member_with("on", 2)
    stream, _ = stream_of(first, target)
    stream.on_taken([("on", 0)])
    run_on(stream, first, 2)
    stream.close()
    second = member_with("on", 4)  # its own position is 0
    stream, _ = stream_of(second, target)
    stream.on_taken([("on", 0)])
    run_on(stream, second, 2)
    stream.close()
    assert numbers(target, "on", 40) == list(range(40))


def test_the_start_offset_is_committed_before_the_first_record(target):
    member = member_with("begin", 3)
    member.starts["begin", 0] = 20
    stream, _ = stream_of(member, target)
    stream.on_taken([("begin", 0)])
    take(stream)
    assert keeps(target, "begin", 20)
    stream.close()
    # The next mirror begins there, though the source has another position.
    after = member_with("begin", 3)
    stream, _ = stream_of(after, target)
    stream.on_taken([("begin", 0)])
    run_on(stream, after, 2)
    stream.close()
    assert values(target, "begin", 10) == NUMBERS[20:30]


def test_a_mirror_that_was_paused_within_a_transaction_adds_nothing_when_it_continues(target):
    sleeper, heir = member_with("zombie", 4), member_with("zombie", 4)
    asleep, counts = stream_of(sleeper, target)
    asleep.on_taken([("zombie", 0)])
    take(asleep)
    for piece in sleeper.poll(0):
        asleep._copy(piece)
    assert asleep._copies["zombie", 0].after == 10
    # Another mirror gets the partition, and copies all of it.
    awake, _ = stream_of(heir, target)
    awake.on_taken([("zombie", 0)])
    run_on(awake, heir, 4)
    # The first mirror continues: its commit is refused, so it takes over the partition and looks up its offset.
    sleeper.script = [lambda: asleep._commit([("zombie", 0)])]
    run_on(asleep, sleeper, 5)
    assert counts.fenced == 1
    assert numbers(target, "zombie", 40) == list(range(40))
    # Now the second mirror is out of date.
    for member in (sleeper, heir):
        member.write(0, NUMBERS[40:50])
    run_on(asleep, sleeper, 3)
    with pytest.raises(NotEnded):
        run_on(awake, heir, 1)
    run_on(awake, heir, 3)
    assert numbers(target, "zombie", 50) == list(range(50))
    asleep.close()
    awake.close()


def test_released_partitions_are_committed_and_lost_ones_are_left_to_others(target):
    member = FakeMember("gone", 2)
    for number in range(2):
        member.write(number, NUMBERS[10 * number : 10 * number + 10])
    stream, _ = stream_of(member, target)
    stream.on_taken([("gone", 0), ("gone", 1)])
    take(stream)
    member.script = [
        lambda: None,
        lambda: stream.before_release([("gone", 0)]),
        lambda: stream.on_lost([("gone", 1)]),
    ]
    run_on(stream, member, 1)
    stream.close()
    assert member.committed == [{("gone", 0): 10}]
    heir = FakeMember("gone", 2)
    heir.logs = member.logs
    stream, _ = stream_of(heir, target)
    stream.on_taken([("gone", 0), ("gone", 1)])
    run_on(stream, heir, 2)
    stream.close()
    assert numbers(target, "gone", 20) == list(range(20))


def test_a_topic_with_fewer_partitions_has_no_place_for_the_offsets(target):
    with Admin(target) as admin:
        admin.create_topic("narrow", 1)
    member = FakeMember("narrow", 2)
    stream, _ = stream_of(member, target)
    stream.on_taken([("narrow", 1)])
    with pytest.raises(
        NoTopic, match="no partition 1 in the target, only 1, but exactly-once keeps the offset of each"
    ):
        run_on(stream, member, 1)
    stream.close()


def test_a_record_that_the_target_always_refuses_ends_the_mirror(target):
    with Admin(target) as admin:
        admin.create_topic("tight", 1, configs={"max.message.bytes": "500"})
    member = FakeMember("tight")
    member.write(0, [*NUMBERS[:9], b"x" * 1000])
    stream, _ = stream_of(member, target)
    stream.on_taken([("tight", 0)])
    with pytest.raises(Exception, match=r"max\.message\.bytes"):
        run_on(stream, member, 2)
    stream.close()
    assert values(target, "tight", 0) == []


@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize("request_name", ["end", "send_offsets", "add_partitions", "init"])
def test_after_a_request_with_unknown_outcome_the_partition_is_taken_again(
    target, monkeypatch, request_name, carried_out
):
    topic = f"unknown-{request_name}-{carried_out}"
    member = member_with(topic, 3)
    stream, counts = stream_of(member, target, interval_s=0.0)
    stream.on_taken([(topic, 0)])
    real = getattr(TransactionLink, request_name)
    left = [3 if request_name != "init" else 1]

    def cut_off(*words, **more):
        left[0] -= 1
        if left[0] or carried_out:
            answer = real(*words, **more)
        if not left[0]:
            raise ConnectionFailed("the connection broke")
        return answer

    monkeypatch.setattr(TransactionLink, request_name, cut_off)
    run_on(stream, member, 8)
    stream.close()
    assert left[0] <= 0
    assert counts.failed_commits == (request_name != "add_partitions")  # the producer retries that request itself
    assert numbers(target, topic, 30) == list(range(30))
    assert keeps(target, topic, 30)


def test_nothing_is_committed_of_a_piece_that_is_damaged_after_its_first_records(target):
    """Otherwise the next mirror, which begins before these records, would copy them again."""
    member = FakeMember("damaged")
    for number in range(3):  # large, so that some are sent before the damage is found
        member.write(0, [value.rjust(50_000) for value in NUMBERS[10 * number : 10 * number + 10]])
    sound, damaged, last = member.logs["damaged", 0]
    member.logs["damaged", 0][1] = damaged + last[:-1] + b"?"
    stream, _ = stream_of(member, target, batch_size="20000")
    stream.on_taken([("damaged", 0)])
    with pytest.raises(ValueError, match="wrong CRC"):
        run_on(stream, member, 3)
    stream.before_release([("damaged", 0)])  # a member that is being closed does this
    stream.close()
    heir = FakeMember("damaged")
    heir.logs["damaged", 0] = [sound, damaged, last]
    stream, _ = stream_of(heir, target)
    stream.on_taken([("damaged", 0)])
    run_on(stream, heir, 3)
    stream.close()
    assert numbers(target, "damaged", 30) == list(range(30))


def test_records_of_a_failed_transaction_are_read_again_even_if_the_target_has_lost_its_offset(target):
    """The mirror seeks to the start of the transaction: the source's own position may be behind it."""
    member = member_with("forgotten", 2)
    stream, _ = stream_of(member, target)
    stream.on_taken([("forgotten", 0)])
    take(stream)
    seeks = []
    member.seek = lambda where, offset: seeks.append(offset)
    for _ in range(2):
        for piece in member.poll(0):
            stream._copy(piece)
    stream._drop(stream._copies["forgotten", 0], ConnectionFailed("the connection broke"))
    assert seeks == [0, None]
    stream.close()


def test_records_without_key_go_to_a_partition_with_a_leader():
    broker = FakeBroker()
    try:
        coordinator = Coordinator(broker)
        coordinator.transactional_id = "g.t.0"
        broker.topics = {"t": [-1, 1, -1, -1]}
        copy = PartitionCopy(
            ("t", 0), "g", read_target({"bootstrap.servers": broker.address}), MirrorOptions(exactly_once=True)
        )
        data = build([(1000, None, value, ()) for value in NUMBERS])
        copy.copy(Piece(("t", 0), memoryview(data), 0, 100), 4)
        copy.commit()
        copy.drop()
    finally:
        broker.close()
    assert [(partition, values) for partition, _, _, values in coordinator.stored] == [(1, NUMBERS)]
