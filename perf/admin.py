"""Requests with which administrators and leaders change a cluster. The connection must lead to the controller."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkapy.errors import Errors
from kafkapy.protocol.apis import (
    ALTER_PARTITION,
    DELETE_TOPICS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_PARTITION_REASSIGNMENTS,
)
from perf.raw_client import TIMEOUT, RawClient, check

PREFERRED = 0
TOPIC, BROKER = 2, 4  # resource types
SET = 0
ISR_VERSION = 1


class IsrChange(NamedTuple):
    """A change of a partition's ISR that its leader requests. `epoch` is the partition epoch."""

    partition: int
    leader_epoch: int
    epoch: int
    isr: Sequence[int]


def delete_topic(client: RawClient, topic: str) -> None:
    request = DELETE_TOPICS.Request(topic_names=[topic], timeout_ms=int(TIMEOUT * 1000))
    check(client.ask(DELETE_TOPICS, 4, request).responses[0].error_code, f"deleting topic {topic}")


def elect_preferred_leaders(client: RawClient, topic: str, partitions: int) -> None:
    """Make the first replica of each partition its leader."""
    request = ELECT_LEADERS.Request
    asked = request.TopicPartitions(topic=topic, partitions=list(range(partitions)))
    message = request(election_type=PREFERRED, topic_partitions=[asked], timeout_ms=int(TIMEOUT * 1000))
    answer = client.ask(ELECT_LEADERS, 1, message)
    check(answer.error_code, f"electing leaders of {topic}")
    for result in answer.replica_election_results[0].partition_result:
        if result.error_code != Errors.ELECTION_NOT_NEEDED:
            check(result.error_code, f"electing the leader of {topic}-{result.partition_id}")


def isr_request(broker_id: int, broker_epoch: int, topic: str, changes: Sequence[IsrChange]) -> object:
    """Return an AlterPartition request (ISR_VERSION) in the name of a broker."""
    request = ALTER_PARTITION.Request
    topics = request.Topics
    partitions = [
        topics.Partitions(
            partition_index=change.partition,
            leader_epoch=change.leader_epoch,
            new_isr=[*change.isr],
            partition_epoch=change.epoch,
        )
        for change in changes
    ]
    return request(
        broker_id=broker_id, broker_epoch=broker_epoch, topics=[topics(topic_name=topic, partitions=partitions)]
    )


def configure(client: RawClient, kind: int, name: str, settings: Mapping[str, str]) -> None:
    """Set settings of a topic or broker. For settings of a broker, the connection must lead to that broker."""
    request = INCREMENTAL_ALTER_CONFIGS.Request
    configs = [
        request.Resources.Configs(name=key, config_operation=SET, value=value) for key, value in settings.items()
    ]
    resource = request.Resources(resource_type=kind, resource_name=name, configs=configs)
    answer = client.ask(INCREMENTAL_ALTER_CONFIGS, 0, request(resources=[resource], validate_only=False))
    check(answer.responses[0].error_code, f"setting {', '.join(settings)} of {name}")


def wait_for_reassignments(client: RawClient, every: float = 0.02) -> None:
    """Wait until no partition is being moved. Raise RuntimeError after ten time-outs."""
    deadline = time.monotonic() + 10 * TIMEOUT
    while True:
        answer = client.ask(LIST_PARTITION_REASSIGNMENTS, 0, LIST_PARTITION_REASSIGNMENTS.Request(topics=None))
        check(answer.error_code, "listing reassignments")
        if not answer.topics:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"partitions are still being moved after {10 * TIMEOUT:.0f} s")
        time.sleep(every)
