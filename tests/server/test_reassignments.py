"""Requests about partition reassignments to the broker that is the controller."""

from kafkapy.metadata.topic_nodes import Move
from kafkapy.metadata.tree import wait
from kafkapy.protocol.apis import LIST_PARTITION_REASSIGNMENTS
from tests.harness.wire import Wire
from tests.server.requests import start_broker


def test_reassignments_are_listed_of_a_topic_that_is_named_once_for_each_partition(tmp_path):
    server = start_broker(tmp_path, broker_id=0)
    services = server.services
    try:
        topic = services.controller.create("t", partitions=3)
        moves = {index: Move([7], []) for index in topic.assignment}
        moved = topic._replace(assignment={index: [0, 7] for index in topic.assignment}, moves=moves)
        wait(services.topics.reassign, topic, moved)
        asked = LIST_PARTITION_REASSIGNMENTS.Request.Topics
        with Wire(server.bootstrap_servers) as wire:
            topics = [asked(name="t", partition_indexes=[index]) for index in (0, 2)]
            (listed,) = wire.call(LIST_PARTITION_REASSIGNMENTS, 0, topics=topics).topics
        assert [(one.partition_index, one.adding_replicas) for one in listed.partitions] == [(0, [7]), (2, [7])]
    finally:
        server.stop()
