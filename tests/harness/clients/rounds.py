"""Rounds: a client writes values in transactions and reads them as a member of a group.

A round shows that a client works over a security protocol and with a SASL mechanism. The clients of other languages are
child processes that run one round after another, each with settings of its own, so that one process is enough for all
protocols and mechanisms. The topic's name is also the group's and the transactional id. Before the values, a record is
written in a transaction that is aborted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
from aiokafka.helpers import create_ssl_context
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.harness import toolchain
from tests.harness.clients.remote import INTEROP, Java3, Java4, Remote, java_command

PATIENCE_S = 60


@dataclass(frozen=True)
class Way:
    """How to reach a broker: its address, and what TLS and the login need ("" for what is not used).

    Attributes:
        ca: The file with the authority's certificate, in PEM; "" without TLS.
        keystore: The file with the client's key and certificate, in PEM.
        token: An OAUTHBEARER token.
        java: The properties for a Java client that say all this.
    """

    bootstrap: str
    protocol: str
    ca: str = ""
    keystore: str = ""
    mechanism: str = ""
    user: str = ""
    password: str = ""
    token: str = ""
    java: tuple[tuple[str, str], ...] = ()


class Rounds:
    """One kind of client."""

    def run(self, way: Way, topic: str, values: Sequence[str]) -> list[str]:
        """Write the values and return what was read."""
        raise NotImplementedError

    def close(self) -> None:
        pass


class ConfluentRounds(Rounds):
    def run(self, way: Way, topic: str, values: Sequence[str]) -> list[str]:
        settings: dict[str, Any] = {"bootstrap.servers": way.bootstrap, "security.protocol": way.protocol}
        if way.ca:
            settings["ssl.ca.location"] = way.ca
        if way.keystore:
            settings |= {"ssl.certificate.location": way.keystore, "ssl.key.location": way.keystore}
        if way.token:
            settings["oauth_cb"] = lambda config: (way.token, time.time() + 3600)
        elif way.mechanism:
            settings |= {"sasl.username": way.user, "sasl.password": way.password}
        if way.mechanism:
            settings["sasl.mechanism"] = way.mechanism
        producer = confluent_kafka.Producer({**settings, "transactional.id": topic})
        producer.poll(0.5 if way.token else 0)  # a token is asked for in poll
        producer.init_transactions(PATIENCE_S)
        for committed in (False, True):
            producer.begin_transaction()
            for value in values if committed else ("aborted",):
                producer.produce(topic, value)
            producer.flush(PATIENCE_S)
            (producer.commit_transaction if committed else producer.abort_transaction)(PATIENCE_S)
        member = {"group.id": topic, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        consumer = confluent_kafka.Consumer({**settings, **member, "fetch.wait.max.ms": 50})
        consumer.subscribe([topic])
        found: list[str] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < len(values) and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append((message.value() or b"").decode())
        consumer.commit(asynchronous=False)
        consumer.close()
        return found


class _Token(AbstractTokenProvider):  # type: ignore[misc,unused-ignore]
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token

    def extensions(self) -> dict[str, str]:
        return {}


class KafkaPythonRounds(Rounds):
    def run(self, way: Way, topic: str, values: Sequence[str]) -> list[str]:
        settings: dict[str, Any] = {"bootstrap_servers": way.bootstrap, "security_protocol": way.protocol}
        if way.ca:
            settings["ssl_cafile"] = way.ca
        if way.keystore:
            settings |= {"ssl_certfile": way.keystore, "ssl_keyfile": way.keystore}
        if way.token:
            settings["sasl_oauth_token_provider"] = _Token(way.token)
        elif way.mechanism:
            settings |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}
        if way.mechanism:
            settings["sasl_mechanism"] = way.mechanism
        with kafka.KafkaProducer(transactional_id=topic, **settings) as producer:
            producer.init_transactions()
            for committed in (False, True):
                producer.begin_transaction()
                for value in values if committed else ("aborted",):
                    producer.send(topic, value.encode())
                producer.flush(PATIENCE_S)
                (producer.commit_transaction if committed else producer.abort_transaction)()
        reading = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "fetch_max_wait_ms": 50}
        found: list[str] = []
        deadline = time.monotonic() + PATIENCE_S
        with kafka.KafkaConsumer(topic, group_id=topic, **reading, **settings) as consumer:
            while len(found) < len(values) and time.monotonic() < deadline:
                found += [one.value.decode() for records in consumer.poll(1000).values() for one in records]
            consumer.commit()
        return found


class _AsyncToken(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc,unused-ignore]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


class AioKafkaRounds(Rounds):
    def run(self, way: Way, topic: str, values: Sequence[str]) -> list[str]:
        settings: dict[str, Any] = {"bootstrap_servers": way.bootstrap, "security_protocol": way.protocol}
        if way.ca:
            keystore = {"certfile": way.keystore} if way.keystore else {}
            settings["ssl_context"] = create_ssl_context(cafile=way.ca, **keystore)
        if way.mechanism:
            settings["sasl_mechanism"] = way.mechanism
            settings |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}

        async def run() -> list[str]:
            if way.token:
                settings["sasl_oauth_token_provider"] = _AsyncToken(way.token)
            async with aiokafka.AIOKafkaProducer(transactional_id=topic, **settings) as producer:
                for committed in (False, True):
                    await producer.begin_transaction()
                    for value in values if committed else ("aborted",):
                        await producer.send(topic, value.encode())
                    await (producer.commit_transaction() if committed else producer.abort_transaction())
            member = {"group_id": topic, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
            found: list[str] = []
            async with aiokafka.AIOKafkaConsumer(topic, fetch_max_wait_ms=50, **member, **settings) as consumer:
                while len(found) < len(values):
                    found.append((await consumer.getone()).value.decode())
                await consumer.commit()
            return found

        return asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


class RemoteRounds(Remote, Rounds):
    """Clients of another language, in a child process."""

    def __init__(self) -> None:
        super().__init__("")

    def run(self, way: Way, topic: str, values: Sequence[str]) -> list[str]:
        found: list[str] = self._ask(
            "round",
            bootstrap=way.bootstrap,
            ca=way.ca,
            keystore=way.keystore,
            mechanism=way.mechanism,
            user=way.user,
            password=way.password,
            token=way.token,
            topic=topic,
            values=list(values),
            properties={"bootstrap.servers": way.bootstrap, "security.protocol": way.protocol, **dict(way.java)},
        )
        return found


class _JavaRounds(RemoteRounds):
    """A Java client that may get tokens from the provider at `token_url`."""

    version: str

    def __init__(self, token_url: str) -> None:
        self._token_url = token_url
        super().__init__()

    def command(self, bootstrap: str) -> list[str]:
        java, *more = java_command(self.version, "kafkapy.interop.Rounds")
        # Kafka 4 asks no OAuth provider that is not listed here.
        return [java, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._token_url}", *more]


class Java3Rounds(_JavaRounds):
    name, version = Java3.name, Java3.version


class Java4Rounds(_JavaRounds):
    name, version = Java4.name, Java4.version


class FranzGoRounds(RemoteRounds):
    name = "franz-go"

    def command(self, bootstrap: str) -> list[str]:
        return [str(toolchain.go_program(INTEROP / "go")), "rounds"]


class KafkaJsRounds(RemoteRounds):
    name = "kafkajs"

    def command(self, bootstrap: str) -> list[str]:
        return [toolchain.find("node"), str(toolchain.node_modules(INTEROP / "node") / "rounds.js")]
