"""Copying at least once: the offsets that are committed, and when."""

import logging

import pytest

from kafkapy.client import Admin, ProduceFailed
from kafkapy.client.errors import ConnectionFailed
from kafkapy.client.producing.pending_batch import Delivery
from kafkapy.errors import Errors, KafkaError
from kafkapy.mirror import at_least_once
from kafkapy.mirror.at_least_once import AtLeastOnce
from kafkapy.mirror.counts import Counts
from kafkapy.mirror.delivery import SafeDelivery, _Sent
from kafkapy.mirror.options import MirrorOptions
from kafkapy.mirror.target_settings import read_target
from kafkapy.mirror.target_topics import NoTopic
from kafkapy.record.rebatch import Rebatcher
from tests.client.conftest import FakeBroker
from tests.client.test_record_producer import Store
from tests.mirror.conftest import FakeMember, Stop, read

NUMBERS = [b"%d" % number for number in range(100)]


def stream_of(member, target, options=None, **properties):
    settings = read_target({"bootstrap.servers": target, **{k.replace("_", "."): v for k, v in properties.items()}})
    counts = Counts()
    stream = AtLeastOnce(member, settings, options or MirrorOptions(commit_interval_s=0.01), counts)
    stream.open()
    return stream, counts


def test_records_arrive_unchanged_and_are_committed_when_acknowledged(target):
    member = FakeMember("alo", 2)
    stream, counts = stream_of(member, target)
    member.take(0, 1)
    member.write(0, NUMBERS[:10])
    member.write(1, NUMBERS[10:20])
    acknowledged = []
    commit = member.commit

    def look_and_commit(offsets):
        acknowledged.append({record.value for record in read(target, "alo")})
        commit(offsets)

    member.commit = look_and_commit
    stream.run(Stop(member))
    stream.close()
    assert member.committed == [{("alo", 0): 10, ("alo", 1): 10}]
    assert acknowledged == [set(NUMBERS[:20])]
    assert {(record.key, record.timestamp) for record in read(target, "alo")} == {(b"k", 1000)}
    assert (counts.records, counts.commits, member.closed) == (20, 1, True)
    with Admin(target) as admin:
        assert len(admin.describe_topic("alo").partitions) == 2


def test_offsets_of_a_failed_commit_are_in_the_next_one(target):
    member = FakeMember("again")
    member.refuses = 1
    stream, counts = stream_of(member, target, MirrorOptions(commit_interval_s=0.0))
    member.take(0)
    member.script = [lambda: member.write(0, NUMBERS[:10])]
    stream.run(Stop(member))
    assert member.committed == [{("again", 0): 10}]
    assert (counts.failed_commits, counts.commits) == (1, 1)
    stream.close()


def test_released_partitions_are_flushed_and_committed_before_and_lost_ones_are_not(target):
    member = FakeMember("given", 2)
    stream, _ = stream_of(member, target, MirrorOptions(commit_interval_s=1000))
    member.take(0, 1)
    member.write(0, NUMBERS[:10])
    member.write(1, NUMBERS[10:20])
    calls = []

    def give_up():
        stream.before_release([("given", 0)])
        calls.append([record.value for record in read(target, "given")])

    member.script = [lambda: None, give_up, lambda: stream.on_lost([("given", 1)])]
    stream.run(Stop(member))
    stream.close()
    assert member.committed == [{("given", 0): 10, ("given", 1): 10}]
    assert sorted(calls[0]) == sorted(NUMBERS[:20])


def make(target, topic, **configs):
    with Admin(target) as admin:
        admin.create_topic(topic, 1, configs={name.replace("_", "."): value for name, value in configs.items()})


def test_a_record_that_the_target_refuses_ends_the_mirror_and_nothing_is_committed(target):
    make(target, "small", max_message_bytes="500")
    member = FakeMember("small")
    stream, counts = stream_of(member, target)
    member.take(0)
    member.write(0, [*NUMBERS[:4], b"x" * 1000, *NUMBERS[4:9]])
    with pytest.raises(ProduceFailed, match=r"1 record for small-0 not stored.*max\.message\.bytes"):
        stream.run(Stop(member))
    stream.close()
    assert (member.committed, counts.lost) == ([], 0)


def test_without_abort_on_send_failure_a_refused_record_is_counted_and_all_others_arrive(target, caplog):
    make(target, "lossy", max_message_bytes="500")
    member = FakeMember("lossy")
    options = MirrorOptions(commit_interval_s=0.01, abort_on_send_failure=False)
    stream, counts = stream_of(member, target, options)
    member.take(0)
    member.write(0, [*NUMBERS[:4], b"x" * 1000, *NUMBERS[4:9]])
    member.write(0, NUMBERS[9:19])
    stream.run(Stop(member, 4))
    stream.close()
    assert {record.value for record in read(target, "lossy")} == set(NUMBERS[:19])
    assert (counts.records, counts.lost) == (19, 1)
    assert member.committed[-1] == {("lossy", 0): 20}
    assert "lost, as abort-on-send-failure is off: 1 record for lossy-0" in caplog.text


def test_records_can_keep_the_number_of_their_partition(target):
    member = FakeMember("kept", 3)
    stream, _ = stream_of(member, target, MirrorOptions(commit_interval_s=0.01, keep_partitions=True))
    member.take(0, 1, 2)
    for number in range(3):
        member.write(number, NUMBERS[10 * number : 10 * number + 10])
    stream.run(Stop(member))
    stream.close()
    found = {(record.partition, record.value) for record in read(target, "kept")}
    assert found == {(number // 10, NUMBERS[number]) for number in range(30)}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (MirrorOptions(keep_partitions=True), "topic 'few' has no partition 2 in the target, only 1, but records are"),
        (MirrorOptions(create_topics="never"), "the target has no topic 'none' and does not create it; create it"),
    ],
)
def test_a_topic_that_does_not_fit_is_reported_in_a_sentence(target, options, says):
    topic = "few" if options.keep_partitions else "none"
    member = FakeMember(topic, 3)
    if topic == "few":
        make(target, topic)
    stream, _ = stream_of(member, target, options)
    member.take(2)
    member.write(2, NUMBERS[:10])
    with pytest.raises(NoTopic, match=says):
        stream.run(Stop(member))
    stream.close()


def test_the_creation_of_topics_can_be_left_to_the_target(target, caplog):
    member = FakeMember("auto", 3)
    stream, _ = stream_of(member, target, MirrorOptions(create_topics="target", commit_interval_s=0.01))
    member.take(2)
    member.write(2, NUMBERS[:10])
    stream.run(Stop(member))
    stream.close()
    assert len(read(target, "auto")) == 10
    assert "topic 'auto' has 1 partitions in the target and 3 in the source" in caplog.text


def test_after_a_failure_a_new_producer_sends_only_unacknowledged_batches(target):
    make(target, "delivery", max_message_bytes="500")
    counts = Counts()
    delivery = SafeDelivery(read_target({"bootstrap.servers": target}), counts, abort=False)
    member = FakeMember("delivery")
    rebatcher = Rebatcher()
    for values in (NUMBERS[:10], [*NUMBERS[10:19], b"x" * 1000], NUMBERS[20:30]):
        member.logs["delivery", 0].clear()
        member.write(0, values)
        (data,) = member.logs["delivery", 0]
        delivery.send(rebatcher.feed(("delivery", 0), memoryview(data), 0, 1))
        delivery.send(rebatcher.finish())
    delivery.flush()
    delivery.close()
    values = [record.value for record in read(target, "delivery")]
    assert set(values) == {*NUMBERS[:19], *NUMBERS[20:30]}
    assert values[:10] == NUMBERS[:10]
    assert values.count(NUMBERS[0]) == 1
    assert counts.lost == 1


def test_acknowledged_batches_are_released_even_behind_an_unacknowledged_one(target):
    make(target, "behind")
    counts = Counts()
    delivery = SafeDelivery(read_target({"bootstrap.servers": target}), counts, abort=True)
    member = FakeMember("behind")
    member.write(0, NUMBERS[:10])
    (data,) = member.logs["behind", 0]
    for _ in range(3):
        rebatcher = Rebatcher()
        delivery.send(rebatcher.feed(("behind", 0), memoryview(data), 0, 1))
        delivery.send(rebatcher.finish())
    delivery._producer.flush()
    waiting = _Sent(delivery._unacknowledged[-1].batch)
    waiting.delivery = Delivery("behind", 0)
    delivery._unacknowledged.appendleft(waiting)
    delivery._forget_acknowledged()
    assert list(delivery._unacknowledged) == [waiting]
    assert counts.records == 30
    delivery.close()


def test_records_without_key_go_to_a_partition_with_a_leader():
    broker = FakeBroker()
    try:
        broker.topics = {"t": [-1, 1, -1, 1, -1]}
        store = Store(broker)
        member = FakeMember("t")
        stream, counts = stream_of(member, broker.address, batch_size="100", delivery_timeout_ms="60000")
        member.take(0)
        for begin in range(0, 100, 10):
            member.write(0, NUMBERS[begin : begin + 10], key=None)
        stream.run(Stop(member, 12))
        stream.close()
        broker.topics["t"][1] = -1  # the mirror that begins now finds no leader
        again, _ = stream_of(member, broker.address, batch_size="100", delivery_timeout_ms="60000")
        member.take(0)
        again.run(Stop(member, 12))
        again.close()
    finally:
        broker.close()
    assert counts.records == 100
    assert sorted(store.values()) == sorted(2 * NUMBERS)
    assert {partition for _, partition, _ in store.stored} == {1, 3}


def test_an_error_that_repeats_is_logged_once(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(at_least_once, "BACKOFF_S", 0.0)
    errors = [ConnectionFailed("away"), ConnectionFailed("away"), KafkaError(Errors.LEADER_NOT_AVAILABLE, "no leader")]

    def work():
        if errors:
            raise errors.pop(0)
        return "done"

    assert at_least_once.with_retries(work, lambda: False) == "done"
    assert [record.getMessage() for record in caplog.records] == [
        "retrying: away",
        "retrying: LEADER_NOT_AVAILABLE: no leader",
    ]
