"""Clients wait while a broker is still recovering their logs, and continue when it is ready."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.broker_config import BrokerConfig
from tests.harness.clients.aiokafka_client import AioKafka
from tests.harness.clients.base import Client, Record
from tests.harness.clients.confluent import Confluent
from tests.harness.clients.kafka_python import KafkaPython
from tests.harness.clients.kcat import Kcat
from tests.harness.clients.remote import Java3, Java4
from tests.harness.gated_files import GatedFiles

pytestmark = pytest.mark.other_runtime

WAIT_S = 90.0
# Clients that retry until a time-out of a minute or more. kafkajs, and franz-go with the settings of these tests, also
# retry, but only a number of times, which is not enough on a slow machine.
PATIENT: list[type[Client]] = [Confluent, Kcat, Java3, Java4, KafkaPython, AioKafka]


def started(directory: Path, files: GatedFiles | None = None) -> BrokerServer:
    config = BrokerConfig({"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"})
    server = BrokerServer(config, files=files)
    server.start()
    return server


@pytest.fixture
def recovering(tmp_path: Path) -> Iterator[tuple[BrokerServer, GatedFiles]]:
    """Start a killed broker with one topic for each kind of client. Return (broker that recovers the first topic, files
    with the gate)."""
    server = started(tmp_path)
    for kind in PATIENT:
        server.services.controller.create(topic_of(kind), partitions=2)
    server.stop()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    files = GatedFiles("slow-")
    server = started(tmp_path, files)
    yield server, files
    files.open_gate()
    server.stop()


def topic_of(kind: type[Client]) -> str:
    return f"slow-{kind.name}"


def note_refusals(server: BrokerServer) -> dict[str, threading.Semaphore]:
    """Return a semaphore by topic, released when a client gets the error that partition 0 has no leader."""
    refusals = {topic_of(kind): threading.Semaphore(0) for kind in PATIENT}
    loading = server.services.log_manager.loading
    hasten = loading.hasten

    def noted(key: tuple[str, int]) -> None:
        if key[0] in refusals and key[1] == 0:
            refusals[key[0]].release()
        hasten(key)

    loading.hasten = noted  # type: ignore[method-assign]
    return refusals


class Attempt(threading.Thread):
    """A thread in which a client writes and reads as usual."""

    def __init__(self, kind: type[Client], bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.kind = kind
        self.bootstrap = bootstrap
        self.values: list[bytes | None] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            client = self.kind(self.bootstrap)
            try:
                topic = topic_of(self.kind)
                client.produce(topic, [Record(b"first", partition=0), Record(b"second", partition=0)])
                got = client.fetch(topic, {0: 0, 1: 0}, {0: 2, 1: 0})
                self.values = [record.value for record in got[0]]
            finally:
                client.close()
        except BaseException as error:
            self.error = error


def test_every_client_waits_until_its_log_is_recovered(recovering: tuple[BrokerServer, GatedFiles]) -> None:
    server, files = recovering
    refusals = note_refusals(server)
    attempts = [Attempt(kind, server.bootstrap_servers) for kind in PATIENT]
    for attempt in attempts:
        attempt.start()
    for kind in PATIENT:
        for _ in range(2):  # the second time shows that the client has retried
            assert refusals[topic_of(kind)].acquire(timeout=WAIT_S), f"{kind.name} does not ask for its topic"
    assert [attempt.error for attempt in attempts if not attempt.is_alive()] == []
    files.open_gate()
    for attempt in attempts:
        attempt.join(WAIT_S)
    assert {attempt.kind.name: attempt.error for attempt in attempts if attempt.error is not None} == {}
    assert {attempt.kind.name: attempt.values for attempt in attempts} == {
        kind.name: [b"first", b"second"] for kind in PATIENT
    }
