"""Opens the backend, Kafka or ZooKeeper, that the options of a `kafkapy groups` command name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kafkapy.tools.common.options import cluster_of, through_zookeeper
from kafkapy.tools.groups.interface import GroupBackend

ThroughZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        "-z",
        metavar="HOST:PORT/CHROOT",
        help="Groups that are in ZooKeeper, as those of Kafka's consumers of 0.7 to 0.10.",
    ),
]


@contextmanager
def group_backend(
    context: typer.Context, servers: str, zookeeper: str | None, file: Path | None, *, with_kafka: bool = True
) -> Iterator[GroupBackend]:
    """Context manager that yields the backend that the command's options name: group coordinators, or with --zookeeper
    groups in ZooKeeper. Raises CallError for options that exclude each other.

    With `with_kafka`, the backend for ZooKeeper also handles the offsets that such groups keep in Kafka, which it
    fetches from the brokers.
    """
    if through_zookeeper(context, zookeeper):
        from kafkapy.tools.groups.zookeeper import open_groups

        with open_groups(str(zookeeper), file, with_kafka=with_kafka) as groups:
            yield groups
    else:
        from kafkapy.tools.groups.kafka import KafkaGroups

        with cluster_of(servers, file) as cluster:
            yield KafkaGroups(cluster)
