"""The terms of a broker as controller."""

from pathlib import Path

from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.server.controllership import Controllership
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
