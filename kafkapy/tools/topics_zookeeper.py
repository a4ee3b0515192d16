"""`kafkapy topics ... --zookeeper`: the same commands through ZooKeeper alone, as Kafka's tool had them up to 2.8."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafkapy.controller.through_zookeeper import TopicNodes
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.ids import ZERO_ID, encode_id
from kafkapy.metadata.topic_rules import NOT_GIVEN, is_internal
from kafkapy.runtime.config_def import ConfigError
from kafkapy.tools.errors import CallError, ToolError
from kafkapy.tools.output import counted, print_json, print_table
from kafkapy.tools.topic_creation import create_each
from kafkapy.tools.zk_places import opened


class ZooKeeperTopics:
    """The commands on the cluster in the ZooKeeper that --zookeeper names; `file` is --command-config.

    Each raises CallError, ToolError, KafkaError, and as `zk_places.opened`.
    """

    def __init__(self, zookeeper: str, file: Path | None) -> None:
        self._zookeeper = zookeeper
        self._file = file

    def show_list(self, *, as_json: bool) -> None:
        with self._opened() as topics:
            found = _readable(_summary, topics, topics.names())
        if as_json:
            print_json(found)
        elif found:
            with_marks = any(one["markedForDeletion"] for one in found)
            columns = ["topic", "partitions>", "replicas>", "id", *(["state"] if with_marks else [])]
            print_table(columns, [_row(one)[: len(columns)] for one in found])
        else:
            print("There are no topics.")

    def create(
        self,
        names: Sequence[str],
        partitions: int,
        replicas: int,
        settings: Mapping[str, str],
        *,
        if_not_exists: bool,
        validate_only: bool,
    ) -> None:
        if NOT_GIVEN in (partitions, replicas):
            raise CallError(
                "topics create --zookeeper needs --partitions and --replication-factor: it asks no broker how it is set"
            )
        with self._opened() as topics:

            def make(name: str) -> str:
                assignment = topics.plan(name, partitions, replicas, settings)
                if not validate_only:
                    topics.create(name, assignment, settings)
                return counted(partitions, "partition")

            create_each(names, make, if_not_exists=if_not_exists, validate_only=validate_only)

    def describe(self, names: Sequence[str], *, as_json: bool) -> None:
        with self._opened() as topics:
            if names:
                found = [_described(topics, name) for name in names]
            else:
                found = _readable(_described, topics, topics.names())
        if as_json:
            print_json(found)
            return
        for topic in found:
            settings = ", ".join(f"{key}={value}" for key, value in topic["configs"].items()) or "as the broker is set"
            marked = ", marked for deletion" if topic["markedForDeletion"] else ""
            print(f"Topic {topic['name']}, id {topic['id'] or 'none yet'}, settings: {settings}{marked}")
            print_table(
                ["partition>", "leader>", "epoch>", "replicas", "in sync"],
                [
                    (one["partition"], one["leader"], one["leaderEpoch"], _ids(one["replicas"]), _ids(one["isr"]))
                    for one in topic["partitions"]
                ],
            )

    def alter(self, name: str, partitions: int | None, changes: Mapping[str, str], removed: Sequence[str]) -> None:
        with self._opened() as topics:
            if changes or removed:
                topics.change_settings(name, changes, removed)
                print(f"Changed {counted(len(changes) + len(removed), 'setting')} of topic {name}.")
            if partitions is not None:
                topics.add_partitions(name, partitions)
                print(f"Topic {name} has {counted(partitions, 'partition')} now.")

    def delete(self, names: Sequence[str], *, if_exists: bool) -> None:
        with self._opened() as topics:
            when = "the controller deletes it" if topics.brokers() else "it is deleted once a broker runs"
            for name in names:
                try:
                    is_new = topics.mark_deleted(name)
                except KafkaError as error:
                    if error.code == Errors.UNKNOWN_TOPIC_OR_PARTITION and if_exists:
                        print(f"Topic {name} is not there.")
                        continue
                    raise
                print(f"Topic {name} is marked for deletion{'' if is_new else ' already'}: {when}.")

    @contextmanager
    def _opened(self) -> Iterator[TopicNodes]:
        with opened(self._zookeeper, None, self._file, paths.TOP_LEVEL) as tree:
            if not tree.exists(paths.TOPICS) or not tree.exists(paths.BROKER_IDS):
                raise ToolError(
                    f"ZooKeeper at {self._zookeeper} has no {paths.TOPICS}: is the chroot of the cluster missing, as "
                    "in HOST:2181/kafka?"
                )
            try:
                yield TopicNodes(tree)
            except ConfigError as error:
                raise CallError(f"--config {error}") from error
            except ValueError as error:  # of a node; its path is in it
                raise ToolError(str(error)) from error


def _readable(
    show: Callable[[TopicNodes, str], dict[str, Any]], topics: TopicNodes, names: Sequence[str]
) -> list[dict[str, Any]]:
    """What is shown of each; a topic whose nodes cannot be read is named on standard error, and left out."""
    found = []
    for name in names:
        try:
            found.append(show(topics, name))
        except ValueError as error:
            print(f"kafkapy: topic {name} is left out: {error}.", file=sys.stderr)
    return found


def _summary(topics: TopicNodes, name: str) -> dict[str, Any]:
    topic = topics.get(name)
    return {
        "name": name,
        "id": "" if topic.id == ZERO_ID else encode_id(topic.id),
        "internal": is_internal(name),
        "partitionCount": len(topic.assignment),
        "replicationFactor": max(map(len, topic.assignment.values()), default=0),
        "markedForDeletion": topics.is_marked(name),
    }


def _described(topics: TopicNodes, name: str) -> dict[str, Any]:
    return {**_summary(topics, name), "configs": topics.settings(name), "partitions": topics.described(name)}


def _row(topic: Mapping[str, Any]) -> list[object]:
    state = "marked for deletion" if topic["markedForDeletion"] else ""
    return [topic["name"], topic["partitionCount"], topic["replicationFactor"], topic["id"], state]


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))
