"""All kinds of clients, and a set of running ones."""

from harness.clients.aiokafka_client import AioKafka
from harness.clients.base import Client
from harness.clients.confluent import Confluent
from harness.clients.kafka_python import KafkaPython
from harness.clients.kcat import Kcat
from harness.clients.remote import FranzGo, Java3, Java4, KafkaJs

KINDS: dict[str, type[Client]] = {
    kind.name: kind for kind in (Confluent, KafkaPython, AioKafka, Java3, Java4, FranzGo, KafkaJs, Kcat)
}


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
        """Ends all of them."""
        for client in self._running.values():
            client.close()
