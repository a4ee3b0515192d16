"""Offset commits of many connections share one append; each is answered and stored as if it had come alone."""

import random
from collections import Counter
from pathlib import Path

import pytest

from kafkapy.coordinator.internal_topic_config import GROUPS
from kafkapy.coordinator.offset_records import decode_key
from kafkapy.errors import Errors
from kafkapy.log.partition_log import PartitionLog
from kafkapy.protocol import apis
from kafkapy.protocol.headers import read_response_header
from kafkapy.record.batch import records_of
from kafkapy.server import committing
from tests.harness.batches import iter_batches
from tests.harness.offset_records import decode_offset
from tests.server.lab import Lab, busy, produce_of, receive, send, turns_of

MANY = 40
PARTITIONS = 3


@pytest.fixture
def lab(tmp_path):
    new_lab = Lab(tmp_path / "together", offset_metadata_max_bytes=100)
    yield from ready(new_lab)


@pytest.fixture
def alone(tmp_path):
    new_lab = Lab(tmp_path / "alone", offset_metadata_max_bytes=100)
    yield from ready(new_lab)


def ready(waiting_lab):
    waiting_lab.wire.create_topic("a", PARTITIONS)
    waiting_lab.wire.create_topic("b", PARTITIONS)
    waiting_lab.wires = [waiting_lab.connect() for _ in range(MANY)]
    for wire in waiting_lab.wires:  # so that the processor has accepted all connections
        wire.end_offset("a", 0)
    yield waiting_lab
    for wire in waiting_lab.wires:
        wire.socket.close()
    waiting_lab.stop()


@pytest.fixture
def gathers(monkeypatch):
    """Return a list that gets the number of connections of each gather."""
    return turns_of(apis.OFFSET_COMMIT, monkeypatch)


@pytest.fixture
def appends(monkeypatch):
    """Return a counter of the batches that each log appended or refused."""
    counts = Counter()

    def append(log, sets, *args, **kwargs):
        counts[log.name] += len(sets)
        return plain(log, sets, *args, **kwargs)

    plain = PartitionLog.append
    monkeypatch.setattr(PartitionLog, "append", append)
    return counts


def commit_of(group, offsets, metadata="", **fields):
    """Return the fields of a commit request; `offsets` are by (topic, partition)."""
    topics = {}
    make = apis.OFFSET_COMMIT.Request.Topics
    for (topic, partition), offset in offsets.items():
        one = make.Partitions(partition_index=partition, committed_offset=offset, committed_metadata=metadata)
        topics.setdefault(topic, make(name=topic, partitions=[])).partitions.append(one)
    return {"group_id": group, "topics": list(topics.values()), **fields}


def codes(wire, version):
    frame = receive(wire)
    _, body = read_response_header(frame, apis.OFFSET_COMMIT, version)
    answer = apis.OFFSET_COMMIT.decode_response(frame, version, body)
    return [(topic.name, one.partition_index, one.error_code) for topic in answer.topics for one in topic.partitions]


def kept(lab):
    """Return the commits of each group in the log, in log order: topic, partition, offset, metadata."""
    found = {}
    directory = Path(lab.server.services.replicas.get(GROUPS, 0).log.dir)
    data = (directory / "00000000000000000000.log").read_bytes()
    for header in iter_batches(data):
        for record in records_of(data, header):
            key = decode_key(record.key)
            if hasattr(key, "topic"):
                value = decode_offset(record.value)
                found.setdefault(key.group, []).append((key.topic, key.partition, value.offset, value.metadata))
    return found


def test_one_append_for_all(lab, gathers, appends):
    with lab.held():
        for number, wire in enumerate(lab.wires):
            send(wire, apis.OFFSET_COMMIT, 8, **commit_of(f"group-{number}", {("a", 0): number, ("b", 1): 7}))
    for wire in lab.wires:
        assert codes(wire, 8) == [("a", 0, Errors.NONE), ("b", 1, Errors.NONE)]
    assert gathers == [MANY]
    assert appends[f"{GROUPS}-0"] == 1
    for number in range(MANY):
        assert lab.group.offsets(f"group-{number}") == {("a", 0): number, ("b", 1): 7}


def test_the_last_commit_of_a_group_in_the_log_wins(lab, gathers):
    with lab.held():
        for number, wire in enumerate(lab.wires):
            send(wire, apis.OFFSET_COMMIT, 8, **commit_of("group", {("a", 0): number}))
    for wire in lab.wires:
        assert codes(wire, 8) == [("a", 0, Errors.NONE)]
    written = kept(lab)["group"]
    assert sorted(offset for _, _, offset, _ in written) == list(range(MANY))
    assert lab.group.offsets("group") == {("a", 0): written[-1][2]}


def some_commit(source, number):
    """Draw (version, fields) of a commit that is accepted, or refused with one of the possible errors."""
    version = source.randint(0, 9)
    partitions = [(source.choice("ab"), source.randrange(PARTITIONS)) for _ in range(source.randint(0, 5))]
    kind = source.choice(["good", "good", "good", "unknown", "metadata", "generation", "nameless"])
    offsets = {where: source.randrange(1000) for where in partitions}
    fields = {}
    if kind == "unknown":
        offsets["nowhere", 1] = offsets["a", PARTITIONS] = 1
    if kind == "generation" and version:
        fields = {"generation_id_or_member_epoch": 3, "member_id": "nobody"}
    metadata = "m" * 101 if kind == "metadata" else source.choice(["", "told"])
    group = "" if kind == "nameless" else f"group-{number}"
    return version, commit_of(group, offsets, metadata, **fields)


@pytest.mark.parametrize("seed", range(4))
def test_each_is_answered_and_kept_as_if_it_had_come_alone(lab, alone, gathers, seed):
    source = random.Random(seed)
    for _ in range(3):
        commits = [some_commit(source, number) for number in range(MANY)]
        with lab.held():
            for wire, (version, fields) in zip(lab.wires, commits, strict=True):
                send(wire, apis.OFFSET_COMMIT, version, **fields)
        together = [codes(wire, version) for wire, (version, _) in zip(lab.wires, commits, strict=True)]
        assert max(gathers) > MANY / 2
        gathers.clear()
        for (version, fields), answer in zip(commits, together, strict=True):
            send(alone.wire, apis.OFFSET_COMMIT, version, **fields)
            assert codes(alone.wire, version) == answer, (version, fields)
        assert not gathers
    named, plain = kept(lab), kept(alone)
    assert sorted(named.pop("", ())) == sorted(plain.pop("", ()))  # shared by connections, in any order
    assert named == plain


def test_commits_that_are_too_large_together_are_appended_one_by_one(tmp_path, gathers, appends):
    lab = Lab(tmp_path / "small", offsets_topic_segment_bytes=1000)
    for made in ready(lab):
        with made.held():
            for number, wire in enumerate(made.wires):
                send(wire, apis.OFFSET_COMMIT, 8, **commit_of(f"group-{number}", {("a", 0): number}))
        assert [codes(wire, 8) for wire in made.wires] == [[("a", 0, Errors.NONE)]] * MANY
        assert gathers == [MANY]
        assert appends[f"{GROUPS}-0"] > MANY  # all together once, then each alone


def test_waiting_appends_are_answered_when_they_are_done(lab, gathers, monkeypatch):
    busy(monkeypatch, "append")
    with lab.held():
        for number, wire in enumerate(lab.wires):
            send(wire, apis.OFFSET_COMMIT, 8, **commit_of(f"group-{number}", {("a", 0): number}))
    assert [codes(wire, 8) for wire in lab.wires] == [[("a", 0, Errors.NONE)]] * MANY
    assert gathers == [MANY]


def test_a_commit_that_cannot_be_handled_closes_only_its_connection(lab, gathers, monkeypatch):
    def begin(broker, call, now_ms, reply):
        if call.request.group_id == "odd":
            raise RuntimeError("an unforeseen error")
        return plain(broker, call, now_ms, reply)

    plain = committing.begin
    monkeypatch.setattr(committing, "begin", begin)
    with lab.held():
        for wire, group in zip(lab.wires[:3], ("one", "odd", "two"), strict=True):
            send(wire, apis.OFFSET_COMMIT, 8, **commit_of(group, {("a", 0): 1}))
    assert codes(lab.wires[0], 8) == codes(lab.wires[2], 8) == [("a", 0, Errors.NONE)]
    assert lab.wires[1].socket.recv(1) == b""
    assert gathers == [3]


def test_commits_and_records_come_in_one_turn(lab, gathers):
    with lab.held():
        for number, wire in enumerate(lab.wires):
            if number % 2:
                send(wire, apis.PRODUCE, 9, **produce_of("a"))
            else:
                send(wire, apis.OFFSET_COMMIT, 8, **commit_of(f"group-{number}", {("a", 0): number}))
    for number, wire in enumerate(lab.wires):
        if number % 2:
            receive(wire)
        else:
            assert codes(wire, 8) == [("a", 0, Errors.NONE)]
    assert lab.wire.end_offset("a", 0) == MANY / 2
    assert gathers == [MANY / 2]
