"""A broker becomes and ceases to be the controller."""

import socket
from pathlib import Path

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.cache import LiveBroker, MetadataCache
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.tree import Create
from kafkapy.replica.isr_changes import IsrChange
from kafkapy.server.controllership import Controllership
from kafkapy.server.for_brokers import OwnController
from kafkapy.server.producer_id_requests import ask_for_producer_ids
from tests.server.requests import start_broker


def test_clients_that_wait_for_brokers_find_the_topics_when_a_term_begins(tmp_path: Path) -> None:
    server = start_broker(tmp_path)
    services, tree = server.services, server._tree
    try:
        services.controller.create("t", partitions=1)
        controller, fence = services.controller, services.topics._fence
        term = fence._term
        controllership = Controllership(services, tree, ClusterRegistry(tree), fence)  # type: ignore[arg-type]
        fence.set_term(term)
        services.cache = MetadataCache()  # as on a broker that has heard of no controller yet
        found: list[list[str]] = []
        services.cache.when_brokers_are_known(lambda: found.append(services.cache.names()))
        controllership.connect(controller, controller)  # type: ignore[arg-type]
        assert services.is_controller
        assert found == [["t"]]
    finally:
        server.stop()


def test_a_topic_that_was_marked_before_the_term_is_kept_if_topics_may_not_be_deleted(tmp_path: Path) -> None:
    """A broker that is elected while it runs keeps a topic that was marked for deletion, and shows it to clients."""
    server = start_broker(tmp_path, delete_topic_enable="false")
    services, tree = server.services, server._tree
    assert tree is not None
    try:
        topic = services.controller.create("t", partitions=1)
        controller, fence = services.controller, services.topics._fence
        term = fence._term
        controllership = Controllership(services, tree, ClusterRegistry(tree), fence)
        tree.commit([Create(paths.deletion_mark("t"))])
        fence.set_term(term)
        services.topics.reload()
        controllership.connect(controller, controller)  # type: ignore[arg-type]
        assert (services.topics.all(), services.topics.marked()) == ([topic], [])
        assert "t" in services.cache  # otherwise the topic's committed offsets would be deleted
        assert not tree.exists(paths.deletion_mark("t"))
    finally:
        server.stop()


def test_a_request_that_comes_while_the_controller_changes_is_not_taken_for_another(tmp_path: Path) -> None:
    """A controller takes producer ids without a request, except while it becomes the controller. That request must not
    be taken for one that moves leaderships, and must be answered.
    """
    server = start_broker(tmp_path)
    services = server.services
    answers: list[range | Exception] = []
    try:
        services.controller.create("t", partitions=1)
        assert isinstance(services.peers.controller(), OwnController)
        ask_for_producer_ids(services, answers.append)
        (error,) = answers
        assert isinstance(error, KafkaError)
        assert error.code == Errors.COORDINATOR_LOAD_IN_PROGRESS
        partition = services.replicas.get("t", 0)
        assert (partition.leader_epoch, partition.gone) == (0, None)
    finally:
        server.stop()


def test_a_request_that_the_former_controller_does_not_answer_is_sent_to_the_next_one(tmp_path: Path) -> None:
    """The former controller may be frozen or cut off from ZooKeeper. Until the time-out of a request to it, here
    ApiVersions, the ISR of a partition could not change.
    """
    server = start_broker(tmp_path, broker_id=0, socket_connection_setup_timeout_ms="60000")
    cache = server.services.cache
    with socket.create_server(("127.0.0.1", 0)) as former, socket.create_server(("127.0.0.1", 0)) as successor:
        addresses = {7: former.getsockname()[:2], 8: successor.getsockname()[:2]}
        brokers = [LiveBroker(one, {"PLAINTEXT": address}) for one, address in addresses.items()]
        try:
            cache.set_brokers(7, [*cache.live_brokers(), *brokers])
            change = IsrChange("t", bytes(range(16)), 0, 0, 0, [0])
            former.settimeout(30)
            assert server._isr_changes.submit(change, print)
            with former.accept()[0] as connection:
                assert connection.recv(1)
                cache.set_brokers(8, cache.live_brokers())
                successor.settimeout(20)  # less than the time-outs of the link
                with successor.accept()[0] as another:
                    assert another.recv(1)
                connection.settimeout(20)
                while connection.recv(1000):
                    pass  # until the broker closes the connection
        finally:
            server.stop()
