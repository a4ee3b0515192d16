"""Opens the backend, Kafka or ZooKeeper, that the options of a `kafkapy topics` command name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from kafkapy.client.administration.admin import Admin
from kafkapy.tools.common.options import cluster_of, through_zookeeper
from kafkapy.tools.topics.interface import TopicBackend


@contextmanager
def topic_backend(
    context: typer.Context, servers: str, zookeeper: str | None, file: Path | None
) -> Iterator[TopicBackend]:
    """Context manager that yields the backend that the command's options name: brokers, or with --zookeeper the nodes
    in ZooKeeper. Raises CallError for options that exclude each other."""
    if through_zookeeper(context, zookeeper):
        from kafkapy.tools.topics.zookeeper import open_topics

        with open_topics(str(zookeeper), file) as topics:
            yield topics
    else:
        from kafkapy.tools.topics.kafka import KafkaTopics

        with Admin(cluster_of(servers, file)) as admin, admin.cluster:
            yield KafkaTopics(admin)
