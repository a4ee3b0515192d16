"""The actions of clients, leaders, operators and old tools in the cluster in which the story happens.

The methods return the responses, with names for values that differ between the two clusters (see story_names.py).
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kazoo.exceptions import NoNodeError

from kafkapy.protocol import apis
from tests.cluster.story_cluster import StoryCluster

Assignment = Sequence[Sequence[int]]


class Stage(StoryCluster):
    """The cluster of the story, with all actions of its steps."""

    # --- requests of clients and brokers to the controller

    def topic_id(self, topic: str) -> bytes:
        """Return the topic id in the tree."""
        text = json.loads(self.tree.get(f"/brokers/topics/{topic}")[0])["topic_id"]
        return base64.urlsafe_b64decode(text + "==")

    def create(
        self,
        name: str,
        assignment: Assignment = (),
        *,
        counts: tuple[int, int] = (-1, -1),
        check: bool = False,
        **configs: str,
    ) -> Any:
        """Create a topic by request. `settings` have underscores for dots."""
        make = apis.CREATE_TOPICS.Request.Topics
        topic = make(
            name=name,
            num_partitions=counts[0],
            replication_factor=counts[1],
            assignments=[
                make.Assignments(partition_index=at, broker_ids=list(ids)) for at, ids in enumerate(assignment)
            ],
            configs=[make.Configs(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        answer = self.call(apis.CREATE_TOPICS, 7, topics=[topic], timeout_ms=30_000, validate_only=check)
        for one in answer["topics"]:  # compared by DescribeConfigs elsewhere
            del one["configs"]
        return answer

    def extend(self, name: str, count: int, added: Assignment | None = None) -> Any:
        make = apis.CREATE_PARTITIONS.Request.Topics
        assignments = None if added is None else [make.Assignments(broker_ids=list(ids)) for ids in added]
        topic = make(name=name, count=count, assignments=assignments)
        return self.call(apis.CREATE_PARTITIONS, 3, topics=[topic], timeout_ms=30_000, validate_only=False)

    def delete(self, *names: str, wait: bool = True) -> Any:
        """Delete topics by request."""
        answer = self.call(apis.DELETE_TOPICS, 5, topic_names=list(names), timeout_ms=30_000 if wait else 100)
        if wait:
            self.until(lambda: not any(self.tree.exists(f"/brokers/topics/{one}") for one in names))
        return answer

    def delete_with_failure(self, name: str, broker: int) -> Any:
        """Request the deletion of a topic whose replicas on a recording broker cannot be deleted."""
        self.recording[broker].failed.update((name, index) for index in range(10))
        return self.delete(name, wait=False)

    def create_while_held(self, name: str, assignment: Assignment, broker: int) -> Any:
        """Create a topic while a recording broker answers nothing."""
        self.recording[broker].hold()
        return self.create(name, assignment)

    def elect_all(self, kind: int) -> Any:
        """Request elections for all partitions."""
        return self.call(apis.ELECT_LEADERS, 2, election_type=kind, topic_partitions=None, timeout_ms=30_000)

    def elect(self, kind: int, **partitions: Sequence[int]) -> Any:
        """Request elections of kind 0 (preferred) or 1 (unclean) for topic=[partition, ...]."""
        make = apis.ELECT_LEADERS.Request.TopicPartitions
        asked = [make(topic=topic, partitions=list(ids)) for topic, ids in partitions.items()]
        return self.call(apis.ELECT_LEADERS, 2, election_type=kind, topic_partitions=asked, timeout_ms=30_000)

    def reassign(self, topic: str, targets: Mapping[int, Sequence[int] | None]) -> Any:
        """Request reassignments of partitions to these replicas; None cancels a reassignment."""
        make = apis.ALTER_PARTITION_REASSIGNMENTS.Request.Topics
        partitions = [
            make.Partitions(partition_index=index, replicas=None if ids is None else list(ids))
            for index, ids in targets.items()
        ]
        asked = [make(name=topic, partitions=partitions)]
        return self.call(apis.ALTER_PARTITION_REASSIGNMENTS, 0, topics=asked, timeout_ms=30_000)

    def configure(self, kind: int, name: str, **values: str | None) -> Any:
        """Set settings of a topic (kind 2) or a broker (4). None deletes a setting."""
        make = apis.INCREMENTAL_ALTER_CONFIGS.Request.Resources
        configs = [
            make.Configs(name=key.replace("_", "."), config_operation=0 if value is not None else 1, value=value)
            for key, value in values.items()
        ]
        asked = [make(resource_type=kind, resource_name=name, configs=configs)]
        return self.call(apis.INCREMENTAL_ALTER_CONFIGS, 1, resources=asked, validate_only=False)

    def make_unclean(self, kind: int, name: str, *topics: str) -> Any:
        """Allow unclean elections, and wait until all partitions of the topics have leaders."""
        answer = self.configure(kind, name, unclean_leader_election_enable="true")
        for topic in topics or [name]:
            for partition in json.loads(self.tree.get(f"/brokers/topics/{topic}")[0])["partitions"]:
                self.until(lambda topic=topic, at=int(partition): self.state(topic, at)[0]["leader"] >= 0)
        return answer

    def update_feature(self, name: str, level: int, upgrade_type: int) -> Any:
        make = apis.UPDATE_FEATURES.Request.FeatureUpdates
        one = make(feature=name, max_version_level=level, upgrade_type=upgrade_type)
        return self.call(apis.UPDATE_FEATURES, 1, feature_updates=[one])

    def alter_isr(
        self,
        topic: str,
        partition: int,
        isr: Sequence[int],
        *,
        leader: int | None = None,
        older: int = 0,
        older_epoch: int = 0,
        recovery: int = 0,
        broker_epoch: int | None = None,
        topic_id: bytes | None = None,
    ) -> Any:
        """Request an ISR change (AlterPartition) as the leader does, with the current partition epoch less `older`."""
        state, version = self.state(topic, partition)
        leader = state["leader"] if leader is None else leader
        assert leader is not None
        make = apis.ALTER_PARTITION.Request.Topics
        one = make.Partitions(
            partition_index=partition,
            leader_epoch=state["leader_epoch"] - older_epoch,
            new_isr_with_epochs=[make.Partitions.NewIsrWithEpochs(broker_id=each) for each in isr],
            leader_recovery_state=recovery,
            partition_epoch=version - older,
        )
        answer = self.call(
            apis.ALTER_PARTITION,
            3,
            broker_id=leader,
            broker_epoch=self.recording[leader].epoch if broker_epoch is None else broker_epoch,
            topics=[make(topic_id=topic_id or self.topic_id(topic), partitions=[one])],
        )
        for each in answer["topics"]:
            for part in each["partitions"]:  # the leader epoch is that of the request, the partition epoch may differ
                del part["leader_epoch"], part["partition_epoch"]
        return answer

    def catch_up(self, *topics: str) -> list[Any]:
        """As recording brokers that lead partitions, add all live replicas to the ISRs. Return the responses."""
        answers = []
        for topic in topics:
            assignment = json.loads(self.tree.get(f"/brokers/topics/{topic}")[0])["partitions"]
            for partition, replicas in sorted(assignment.items()):
                state, _ = self.state(topic, int(partition))
                live = [one for one in replicas if self.tree.exists(f"/brokers/ids/{one}")]
                missing = [one for one in live if one not in state["isr"]]
                if missing and state["leader"] in self.recording:
                    answers.append(self.alter_isr(topic, int(partition), [*state["isr"], *missing]))
        return answers

    def move_twice(self, topic: str, partition: int, by_tool: Sequence[int], by_request: Sequence[int]) -> Any:
        """Begin to move a partition as an old tool does, and before the move ends, request other replicas."""
        asked = {"topic": topic, "partition": partition, "replicas": list(by_tool)}
        self.ask("/admin/reassign_partitions", {"version": 1, "partitions": [asked]}, wait=False)
        self.settle()
        return self.reassign(topic, {partition: by_request})

    def move_and_wait(self, topic: str, partition: int, target: Sequence[int]) -> Any:
        """Move a partition, and wait until the move is complete."""
        answer = self.reassign(topic, {partition: target})
        path = f"/brokers/topics/{topic}"
        self.until(lambda: json.loads(self.tree.get(path)[0])["partitions"][str(partition)] == list(target))
        return answer

    def until_in_sync(self, topic: str, partition: int, *isr: int) -> None:
        self.until(lambda: set(self.state(topic, partition)[0]["isr"]) >= set(isr))

    # --- nodes that operators and old tools write

    def ask(self, path: str, value: Any, *, wait: bool = True) -> None:
        """Write a node in `/admin` to make the controller act, and wait until the controller has removed the node."""
        self.write(path, value)
        if wait:
            self.until(lambda: not self.tree.exists(path), f"{path} is not removed")

    def ask_in_vain(self, path: str, value: Any) -> bool:
        """Write a node with an invalid request. Return True if the controller has removed the node."""
        self.write(path, value)
        self.settle()
        is_removed = not self.tree.exists(path)
        if not is_removed:
            self.tree.delete(path)
        return is_removed

    def note(self, path: str, value: Any) -> None:
        """Write a notification for the controller, and wait until the controller has removed it."""
        made = self.tree.create(path, _content(value), sequence=True)
        self.until(lambda: not self.tree.exists(made), f"{made} is not removed")

    def note_directory(self, broker: int) -> None:
        self.note("/log_dir_event_notification/log_dir_event_", {"version": 1, "broker": broker, "event": 1})

    def fail_directory(self, broker: int, *partitions: tuple[str, int]) -> None:
        """Take replicas of a recording broker offline, and notify the controller."""
        self.recording[broker].failed.update(partitions)
        self.note_directory(broker)

    def note_isr(self, topic: str, partition: int) -> None:
        what = {"version": 1, "partitions": [{"topic": topic, "partition": partition}]}
        self.note("/isr_change_notification/isr_change_", what)

    def write_isr(self, topic: str, partition: int, isr: Sequence[int]) -> None:
        """Write a partition's ISR as leaders before Kafka 2.7 do, with a notification for the controller."""
        path = f"/brokers/topics/{topic}/partitions/{partition}/state"
        self.change(path, lambda state: state.update(isr=list(isr)))
        self.note_isr(topic, partition)

    def remove(self, path: str) -> None:
        """Remove a node and all below it, if it exists."""
        with contextlib.suppress(NoNodeError):
            self.tree.delete(path, recursive=True)

    def write(self, path: str, value: Any) -> None:
        """Write a node, or create it."""
        try:
            self.tree.set(path, _content(value))
        except NoNodeError:
            self.tree.create(path, _content(value))

    def change(self, path: str, edit: Callable[[Any], Any]) -> None:
        """Edit a node with JSON in place."""
        value = json.loads(self.tree.get(path)[0])
        edit(value)
        self.tree.set(path, json.dumps(value).encode())

    def write_topic(self, name: str, assignment: Mapping[int, Sequence[int]]) -> None:
        """Write a topic's node as tools before Kafka 2.4 do, and wait until its partitions have leaders."""
        self.write_topic_node(name, assignment)
        self.until_elected(name)

    def write_topic_node(self, name: str, assignment: Mapping[int, Sequence[int]]) -> None:
        partitions = {str(index): list(ids) for index, ids in assignment.items()}
        self.write(f"/brokers/topics/{name}", {"version": 1, "partitions": partitions})

    def change_broker(self, broker: int, edit: Callable[[Any], Any]) -> None:
        """Edit the registration of a recording broker, and wait until that broker gets a request about it."""
        count = self.recording[broker].count
        self.change(self.recording[broker].path, edit)
        self.until(lambda: self.recording[broker].count > count)

    def until_elected(self, name: str) -> None:
        """Wait until each partition of the topic with a live replica has a state node."""
        assignment = json.loads(self.tree.get(f"/brokers/topics/{name}")[0])["partitions"]
        for partition, replicas in assignment.items():
            path = f"/brokers/topics/{name}/partitions/{partition}/state"
            if any(self.tree.exists(f"/brokers/ids/{one}") for one in replicas):
                self.until(lambda path=path: self.tree.exists(path), f"no {path}")

    def until_gone(self, *paths: str) -> None:
        self.until(lambda: not any(self.tree.exists(path) for path in paths), f"{paths} are not gone")

    def extend_by_hand(self, name: str, *added: Sequence[int]) -> None:
        """Add partitions with these replicas to a topic's node only, and wait until they have leaders."""

        def add(topic: Any) -> None:
            for replicas in added:
                topic["partitions"][str(len(topic["partitions"]))] = list(replicas)

        self.change(f"/brokers/topics/{name}", add)
        self.until_elected(name)

    def set_by_hand(self, topic: str, **values: str) -> None:
        """Change a topic's settings as old tools do: write the node of the settings, then a notification."""
        config = {key.replace("_", "."): value for key, value in values.items()}
        self.write(f"/config/topics/{topic}", {"version": 1, "config": config})
        note = {"version": 2, "entity_path": f"topics/{topic}"}
        self.tree.create("/config/changes/config_change_", _content(note), sequence=True)


def _content(value: Any) -> bytes:
    """Return the content of a node: bytes unchanged, everything else as JSON."""
    return value if isinstance(value, bytes) else json.dumps(value).encode()
