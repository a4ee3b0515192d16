"""Real clients on a SASL listener: Kafka's own tools, users made by clients, refused logins, sessions under load.

test_secured_clients.py has the other clients with each mechanism. Here an OAuth provider also changes its keys, and
sessions are extended every two seconds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from kafkapy.security.sasl.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE
from tests.harness.brokers import QUICK, KafkapyBroker, add_user_offline, free_port
from tests.harness.kafka_tools import KafkaTools
from tests.harness.openid import SECRET, OpenIdProvider

pytestmark = pytest.mark.other_runtime

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
PASSWORD = 'pass,=word"'
USERS = f'{PLAIN_MODULE} required user_alice="pass,=word\\"";'
LOGIN_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@pytest.fixture(scope="module")
def provider() -> Iterator[OpenIdProvider]:
    running = OpenIdProvider()
    yield running
    running.close()


class Sasl:
    """A broker with a SASL listener, started by the command. The user alice exists before the first start."""

    def __init__(self, directory: Path, provider: OpenIdProvider, **settings: str) -> None:
        add_user_offline(directory, "alice", PASSWORD)
        self.metrics = free_port()
        self.broker = KafkapyBroker(
            directory,
            {
                **QUICK,
                "listeners": "CLIENT://127.0.0.1:0",
                "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT",
                "inter.broker.listener.name": "CLIENT",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "listener.name.client.plain.sasl.jaas.config": USERS,
                "listener.name.client.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
                "kafkapy.metrics.listen": f"127.0.0.1:{self.metrics}",
                **settings,
            },
        )
        self.bootstrap = self.broker.bootstrap

    def count(self, metric: str) -> float:
        """Return the sum of a counter's values over all labels."""
        with urlopen(f"http://127.0.0.1:{self.metrics}/metrics") as page:
            text = page.read().decode()
        return sum(float(value) for value in re.findall(rf"^kafkapy_{metric}_total\S* (\S+)$", text, re.M))


@pytest.fixture(scope="module")
def sasl(tmp_path_factory: pytest.TempPathFactory, provider: OpenIdProvider) -> Iterator[Sasl]:
    running = Sasl(tmp_path_factory.mktemp("sasl"), provider)
    yield running
    running.broker.stop()


def confluent(sasl: Sasl, provider: OpenIdProvider, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": sasl.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        lifetime = provider.lifetime_s
        return {**settings, "oauth_cb": lambda config: (provider.token("alice"), time.time() + lifetime)}
    return {**settings, "sasl.username": "alice", "sasl.password": password}


def java_file(directory: Path, provider: OpenIdProvider, mechanism: str, user: str = "alice") -> Path:
    """Write the properties file of a Java client. Return its path."""
    lines = ["security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}"]
    if mechanism == "OAUTHBEARER":
        lines += [
            f'sasl.jaas.config={OAUTH_MODULE} required clientId="{user}" clientSecret="{SECRET}";',
            f"sasl.oauthbearer.token.endpoint.url={provider.token_url}",
            f"sasl.login.callback.handler.class={LOGIN_HANDLER}",
        ]
    else:
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        lines.append(f'sasl.jaas.config={module} required username="{user}" password="pass,=word\\\\"";')
    file = directory / "client.properties"
    file.write_text("\n".join(lines))
    return file


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkas_tools_log_in_with_a_transaction_and_a_group(
    sasl: Sasl, provider: OpenIdProvider, tools: KafkaTools, tmp_path: Path, mechanism: str
) -> None:
    file, topic = java_file(tmp_path, provider, mechanism), f"java-{mechanism}"
    at = ("--bootstrap-server", sasl.bootstrap)
    said = tools.run("org.apache.kafka.tools.TopicCommand", *at, "--command-config", file, "--create", "--topic", topic)
    assert said.code == 0, said
    producer = ("--topic", topic, "--num-records", 100, "--record-size", 10, "--throughput", -1)
    transaction = ("--transactional-id", topic, "--transaction-duration-ms", 1000)
    said = tools.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *producer,
        "--producer.config",
        file,
        "--producer-props",
        f"bootstrap.servers={sasl.bootstrap}",
        *transaction,
    )
    assert "100 records sent" in said.out, said
    said = tools.run(
        "org.apache.kafka.tools.ConsumerPerformance", *at, "--consumer.config", file, "--topic", topic,
        "--messages", 100, "--group", topic, "--timeout", 60000,
    )  # fmt: skip
    assert ", 100, " in said.out, said
    said = tools.run(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *at, "--command-config", file, "--list"
    )
    assert topic in said.out, said


def test_users_made_by_clients_log_in_at_once(
    sasl: Sasl, provider: OpenIdProvider, tools: KafkaTools, tmp_path: Path
) -> None:
    file = java_file(tmp_path, provider, "SCRAM-SHA-512")
    said = tools.run(
        "kafka.admin.ConfigCommand", "--bootstrap-server", sasl.bootstrap, "--command-config", file, "--alter",
        "--entity-type", "users", "--entity-name", "bob", "--add-config", "SCRAM-SHA-512=[password=one]",
    )  # fmt: skip
    assert said.code == 0, said
    settings = {**confluent(sasl, provider, "SCRAM-SHA-512"), "sasl.username": "bob", "sasl.password": "one"}
    admin = AdminClient(settings)
    assert admin.list_topics(timeout=60).brokers
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("carol", info, b"two")
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(60)
    described = admin.describe_user_scram_credentials(["bob", "carol"])
    found = {name: one.result(60).scram_credential_infos[0].mechanism for name, one in described.items()}
    assert found == {"bob": ScramMechanism.SCRAM_SHA_512, "carol": ScramMechanism.SCRAM_SHA_256}
    carol = {**confluent(sasl, provider, "SCRAM-SHA-256"), "sasl.username": "carol", "sasl.password": "two"}
    assert AdminClient(carol).list_topics(timeout=60).brokers


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_client_with_a_wrong_password_gets_an_authentication_error(
    sasl: Sasl, provider: OpenIdProvider, mechanism: str
) -> None:
    errors: list[Any] = []
    settings = {**confluent(sasl, provider, mechanism, "wrong"), "error_cb": errors.append}
    producer = confluent_kafka.Producer(settings)
    deadline = time.monotonic() + 60
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert "wrong" not in errors[0].str().replace("SCRAM", "")


def test_tokens_of_a_new_key_are_accepted(
    sasl: Sasl, provider: OpenIdProvider, tools: KafkaTools, tmp_path: Path
) -> None:
    file = java_file(tmp_path, provider, "OAUTHBEARER", "dave")
    list_topics = (
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server",
        sasl.bootstrap,
        "--command-config",
        file,
    )
    assert tools.run(*list_topics, "--list").code == 0
    time_of_read = time.monotonic()
    provider.rotate()
    before = provider.reads

    def works() -> bool:
        return tools.run(*list_topics, "--list").code == 0

    wait_for(works, 30)
    assert provider.reads > before
    assert time.monotonic() - time_of_read < 60


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sasl, OpenIdProvider]]:
    provider = OpenIdProvider(lifetime_s=6)
    running = Sasl(tmp_path_factory.mktemp("short"), provider, **{"connections.max.reauth.ms": "2500"})
    yield running, provider
    running.broker.stop()
    provider.close()


def test_sessions_are_extended_under_load_and_nothing_is_lost(
    short: tuple[Sasl, OpenIdProvider], tools: KafkaTools, tmp_path: Path
) -> None:
    sasl, provider = short
    settings = confluent(sasl, provider, "SCRAM-SHA-256")
    delivered: list[int] = []
    failures: list[Any] = []

    def on_delivery(error: Any, message: Any) -> None:
        failures.append(error) if error is not None else delivered.append(message.offset())

    producer = confluent_kafka.Producer({**settings, "enable.idempotence": True, "linger.ms": 0})
    sent = 0
    end = time.monotonic() + 12
    while time.monotonic() < end:
        producer.produce("reauth", b"%d" % sent, partition=0, on_delivery=on_delivery)
        sent += 1
        producer.poll(0.002)
    assert producer.flush(60) == 0
    assert failures == []
    assert delivered == list(range(sent))
    for mechanism in ("PLAIN", "OAUTHBEARER"):
        file = java_file(tmp_path, provider, mechanism)
        said = tools.run(
            "org.apache.kafka.tools.ProducerPerformance", "--topic", f"reauth-{mechanism}", "--num-records", 800,
            "--record-size", 10, "--throughput", 100, "--producer.config", file, "--producer-props",
            f"bootstrap.servers={sasl.bootstrap}", "acks=all",
        )  # fmt: skip
        assert "800 records sent" in said.out, said
        assert "Exception" not in said.out + said.err, said
    assert sasl.count("network_reauthentications") >= 8
    assert sasl.count("network_reauthentication_failures") == 0
