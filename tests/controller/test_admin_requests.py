"""Requests in `/admin`, of which each is carried out once in the term of a controller."""

import json

import pytest

from kafkapy.controller.admin_requests import AdminRequests
from kafkapy.controller.reassignment import with_target
from kafkapy.metadata import paths
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.controller_fence import ControllerFence
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.tree import Create, Delete, wait

ME = 0


class Reassigning:
    """A controller that only begins reassignments, and records them in `calls`."""

    def __init__(self, topics):
        self.topics = topics
        self.calls = []

    def reassign(self, name, index, target):
        self.calls.append((name, index, target))
        topic = self.topics.get(name)
        wait(self.topics.reassign, topic, with_target(topic, index, target))


@pytest.fixture
def tree(tmp_path):
    tree = LocalTree(tmp_path / FILE_NAME)
    ClusterRegistry(tree)  # creates the nodes that always exist
    yield tree
    tree.close()


def test_a_reassignment_is_begun_once_in_a_term_and_again_in_the_next_one(tree):
    """The next term may be one of this broker again, with another controller's in between."""
    registry, fence = ClusterRegistry(tree), ControllerFence(tree)
    fence.set_term(registry.become_controller(ME, 0))
    topics = TopicRegistry(tree, fence=fence)
    wait(topics.create, "t", {0: [0, 1]}, {})
    controller = Reassigning(topics)
    requests = AdminRequests(tree, fence, topics, controller)
    asked = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}
    tree.commit([Create(paths.REASSIGNMENT, json.dumps(asked).encode())])
    for path in (paths.REASSIGNMENT, paths.PREFERRED_ELECTION, paths.REASSIGNMENT):
        requests.look(path)
    assert controller.calls == [("t", 0, [1, 2])]
    assert tree.exists(paths.REASSIGNMENT)

    wait(topics.reassign, topics.get("t"), topics.get("t")._replace(assignment={0: [0, 1]}, moves={}))
    tree.commit([Delete(paths.CONTROLLER)])
    fence.set_term(registry.become_controller(ME, 0))
    requests.look(paths.REASSIGNMENT)
    assert controller.calls == [("t", 0, [1, 2])] * 2
    assert tree.exists(paths.REASSIGNMENT)


def test_a_reassignment_that_another_controller_has_begun_is_not_begun_again(tree):
    """A target broker may be gone by now: the reassignment waits for it, and a new request would be refused."""
    topics = TopicRegistry(tree)
    wait(topics.create, "t", {0: [0, 1]}, {})
    wait(topics.reassign, topics.get("t"), with_target(topics.get("t"), 0, [1, 2]))
    controller = Reassigning(topics)
    asked = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}
    tree.commit([Create(paths.REASSIGNMENT, json.dumps(asked).encode())])
    AdminRequests(tree, ControllerFence(tree), topics, controller).look(paths.REASSIGNMENT)
    assert controller.calls == []
    assert tree.exists(paths.REASSIGNMENT)


def test_a_partition_that_is_named_twice_is_reassigned_once_to_the_last_replicas(tree):
    topics = TopicRegistry(tree)
    wait(topics.create, "t", {0: [0, 1]}, {})
    controller = Reassigning(topics)
    requests = AdminRequests(tree, ControllerFence(tree), topics, controller)
    asked = [{"topic": "t", "partition": 0, "replicas": replicas} for replicas in ([1, 2], [2])]
    tree.commit([Create(paths.REASSIGNMENT, json.dumps({"version": 1, "partitions": asked}).encode())])
    for _ in range(2):
        requests.look(paths.REASSIGNMENT)
    assert controller.calls == [("t", 0, [2])]
    assert tree.exists(paths.REASSIGNMENT)
