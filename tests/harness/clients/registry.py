"""All kinds of clients, and a set of running clients."""

from tests.harness.clients.aiokafka_client import AioKafka
from tests.harness.clients.base import Client
from tests.harness.clients.confluent import Confluent
from tests.harness.clients.kafka_python import KafkaPython
from tests.harness.clients.kcat import Kcat
from tests.harness.clients.remote import FranzGo, Java3, Java4, KafkaJs, Remote

KINDS: dict[str, type[Client]] = {
    kind.name: kind for kind in (Confluent, KafkaPython, AioKafka, Java3, Java4, FranzGo, KafkaJs, Kcat)
}
# The clients that are not Python packages: they need Java, Go, Node.js or kcat.
OTHER_RUNTIMES = frozenset(kind.name for kind in KINDS.values() if issubclass(kind, (Remote, Kcat)))


class Clients:
    """Clients by name, each started at its first use."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._running: dict[str, Client] = {}

    def __getitem__(self, name: str) -> Client:
        if name not in self._running:
            self._running[name] = KINDS[name](self._bootstrap)
        return self._running[name]

    def close(self) -> None:
        """Close all clients."""
        for client in self._running.values():
            client.close()
