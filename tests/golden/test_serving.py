"""A broker on a directory that Kafka wrote serves to librdkafka the records that Kafka's consumer read."""

import pytest

from kafkapy.client.administration.admin import EARLIEST, LATEST, Admin
from tests.harness.consumed import consumed

from .support import GOLDEN, expected, lines_of, records_of

FOLDERS = ["kafka-3.9.1-v2", "kafka-3.9.1-v0-v1", "kafka-0.10.2.2", "kafka-0.8.2.2"]
# There is no view of 0.8.2.2: a consumer of 3.9.1 cannot talk to that broker.
SEEN = [folder for folder in FOLDERS if (GOLDEN / folder / "consumer-view.jsonl").exists()]


def where_of(directory):
    topic, _, partition = directory.rpartition("-")
    return topic, int(partition)


@pytest.fixture(scope="module", params=FOLDERS)
def folder(request):
    return request.param


@pytest.fixture(scope="module")
def uncommitted(adopted, folder):
    return consumed(adopted(folder).bootstrap_servers, map(where_of, expected(folder)), "read_uncommitted")


def test_every_record_is_served(uncommitted, folder):
    for name, batches in expected(folder).items():
        first = 40 if name == "v2-deleted-records-0" else 0  # the log start offset of the topic with deleted records
        wanted = [one for one in records_of(batches) if one[0] >= first]
        assert uncommitted[where_of(name)].records == wanted, name


@pytest.mark.parametrize("seen_in", SEEN)
def test_offsets_are_those_that_kafkas_consumer_saw(adopted, seen_in):
    broker = adopted(seen_in)
    view = {(one["topic"], 0): one for one in lines_of(GOLDEN / seen_in / "consumer-view.jsonl")}
    for isolation in ("read_uncommitted", "read_committed"):
        wanted = {where: one[isolation] for where, one in view.items() if isolation in one}
        found = consumed(broker.bootstrap_servers, wanted, isolation) if wanted else {}
        for where, one in wanted.items():
            offsets = [record.offset for record in found[where].records]
            assert (offsets, found[where].end) == (one["offsets"], one["endPosition"]), (where, isolation)
    with Admin(broker.bootstrap_servers) as admin:
        earliest, latest = (admin.offsets(dict.fromkeys(view, at)) for at in (EARLIEST, LATEST))
    for where, one in view.items():
        assert earliest[where].offset == one["beginningOffset"], where
        assert latest[where].offset == one["read_uncommitted"]["endOffset"], where


@pytest.mark.parametrize("seen_in", SEEN)
def test_times_are_answered_as_by_kafka(adopted, seen_in):
    with Admin(adopted(seen_in).bootstrap_servers) as admin:
        for one in lines_of(GOLDEN / seen_in / "consumer-view.jsonl"):
            where = one["topic"], 0
            for asked, offset, timestamp in one["offsetsForTimes"]:
                found = admin.offsets({where: asked})[where]
                wanted = (-1, -1) if offset is None else (offset, timestamp)
                assert (found.offset, found.timestamp) == wanted, (where, asked)
