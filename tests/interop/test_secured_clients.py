"""Real clients use a transaction and a group over each security protocol, with each SASL mechanism that they support.

The key and trust stores are made by openssl and keytool. The clients reach the broker through proxies that record all
bytes: those of the TLS listeners have nothing in clear.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkapy.security.sasl.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE
from tests.harness import toolchain
from tests.harness.brokers import QUICK, KafkapyBroker, add_user_offline, free_port
from tests.harness.clients import rounds
from tests.harness.clients.rounds import Rounds, Way
from tests.harness.openid import SECRET, OpenIdProvider
from tests.harness.tcp_proxy import TcpProxy
from tests.harness.tls_records import check_records

pytestmark = pytest.mark.other_runtime

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
WAYS = [
    *(("SSL", ""), ("MUTUAL", "")),
    *((listener, mechanism) for listener in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS),
]
TLS = ("SSL", "MUTUAL", "SASL_SSL")
LISTENERS = ("PLAINTEXT", *TLS, "SASL_PLAINTEXT")
CLIENTS: dict[str, Callable[[str], Rounds]] = {
    "java-3.9.1": rounds.Java3Rounds,
    "java-4.4.0": rounds.Java4Rounds,
    "confluent-kafka": lambda token_url: rounds.ConfluentRounds(),
    "kafka-python": lambda token_url: rounds.KafkaPythonRounds(),
    "aiokafka": lambda token_url: rounds.AioKafkaRounds(),
    "franz-go": lambda token_url: rounds.FranzGoRounds(),
    "kafkajs": lambda token_url: rounds.KafkaJsRounds(),
}
PASSWORD = 'pass,=word"'
STORE_PASSWORD = "store-password"
LOGIN_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


class Stores:
    """Key and trust stores of an authority, a broker and the client alice, made by openssl and keytool."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.ca = directory / "ca.pem"
        self._new("ca", "/CN=Test CA", "-days", "30")
        self._new("broker", "/OU=Test/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1", *self._signed)
        # The broker has a PKCS12 store by openssl, and a trust store by keytool.
        password = f"pass:{STORE_PASSWORD}"
        made_of = ("-in", "broker.pem", "-inkey", "broker-key.pem")
        self._openssl("pkcs12", "-export", *made_of, "-passout", password, "-out", "broker.p12")
        self._keytool("trusted.p12", "-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem")
        # The client has a key by keytool, signed by the authority, in a store that also trusts the authority.
        key = ("-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-dname", "CN=alice,OU=Test,O=Acme")
        self._keytool("alice.p12", *key, "-alias", "alice")
        self._keytool("alice.p12", "-certreq", "-alias", "alice", "-file", "alice.csr")
        self._openssl("x509", "-req", "-in", "alice.csr", "-days", "30", "-out", "alice.pem", *self._signed)
        self._keytool("alice.p12", "-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem")
        self._keytool("alice.p12", "-importcert", "-noprompt", "-alias", "alice", "-file", "alice.pem")
        self.keystore = directory / "alice-key-and-certificate.pem"
        taken = ("-in", "alice.p12", "-nodes", "-clcerts")
        self._openssl("pkcs12", *taken, "-passin", password, "-out", self.keystore.name)

    @property
    def _signed(self) -> tuple[str, ...]:
        return ("-CA", "ca.pem", "-CAkey", "ca-key.pem")

    def _new(self, name: str, subject: str, *more: str) -> None:
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        files = ("-keyout", f"{name}-key.pem", "-out", f"{name}.pem")
        self._openssl("req", "-x509", *curve, "-subj", subject, *files, *more)

    def _openssl(self, *words: str) -> None:
        self._run(toolchain.find("openssl"), *words)

    def _keytool(self, store: str, *words: str) -> None:
        where = ("-keystore", store, "-storetype", "PKCS12", "-storepass", STORE_PASSWORD)
        self._run(toolchain.find("keytool"), "-J-XX:TieredStopAtLevel=1", *words, *where)

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, cwd=self._directory, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done

    def of_broker(self) -> dict[str, str]:
        return {
            "ssl.keystore.location": str(self._directory / "broker.p12"),
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.truststore.location": str(self._directory / "trusted.p12"),
            "ssl.truststore.password": STORE_PASSWORD,
        }

    def of_java(self, listener: str) -> dict[str, str]:
        found = {
            "ssl.truststore.location": str(self._directory / "trusted.p12"),
            "ssl.truststore.password": STORE_PASSWORD,
        }
        if listener == "MUTUAL":
            found |= {
                "ssl.keystore.location": str(self._directory / "alice.p12"),
                "ssl.keystore.password": STORE_PASSWORD,
            }
        return found


class Secured:
    """A broker with a listener for each protocol, started by the command, and a proxy before each listener."""

    def __init__(self, directory: Path, provider: OpenIdProvider) -> None:
        self._provider = provider
        self.stores = Stores(directory)
        add_user_offline(directory, "alice", PASSWORD)
        ports = {name: free_port() for name in LISTENERS}
        self.proxies = {name: TcpProxy(port, record=True) for name, port in ports.items()}
        protocols = {name: "SSL" if name == "MUTUAL" else name for name in LISTENERS}
        settings = {
            **QUICK,
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
            "advertised.listeners": ",".join(f"{name}://{proxy.address}" for name, proxy in self.proxies.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "listener.name.mutual.ssl.client.auth": "required",
            # Without DEFAULT, a certificate with another name is refused.
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]+),OU=Test,O=Acme$/$1/",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            **self.stores.of_broker(),
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            prefix = f"listener.name.{listener}"
            settings[f"{prefix}.plain.sasl.jaas.config"] = f'{PLAIN_MODULE} required user_alice="pass,=word\\"";'
            settings[f"{prefix}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"] = provider.keys_url
        self.broker = KafkapyBroker(directory, settings)
        self.topics: dict[str, list[str]] = {name: [] for name in LISTENERS}
        self.tokens: list[str] = []

    def way(self, listener: str, mechanism: str) -> Way:
        token = self._provider.token("alice") if mechanism == "OAUTHBEARER" else ""
        self.tokens.append(token)
        java = self.stores.of_java(listener) if listener in TLS else {}
        if mechanism:
            java["sasl.mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            java["sasl.oauthbearer.token.endpoint.url"] = self._provider.token_url
            java["sasl.login.callback.handler.class"] = LOGIN_HANDLER
            java["sasl.jaas.config"] = f'{OAUTH_MODULE} required clientId="alice" clientSecret="{SECRET}";'
        elif mechanism:
            module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
            java["sasl.jaas.config"] = f'{module} required username="alice" password="pass,=word\\"";'
        return Way(
            self.proxies[listener].address,
            "SSL" if listener == "MUTUAL" else listener,
            ca=str(self.stores.ca) if listener in TLS else "",
            keystore=str(self.stores.keystore) if listener == "MUTUAL" else "",
            mechanism=mechanism,
            user="alice",
            password=PASSWORD,
            token=token,
            java=tuple(java.items()),
        )

    def round(self, client: Rounds, kind: str, listener: str, mechanism: str) -> None:
        """Write values with the client and read them."""
        topic = "-".join(filter(None, (kind, listener, mechanism)))
        values = [f"in clear nowhere: {topic} {number}" for number in range(20)]
        assert client.run(self.way(listener, mechanism), topic, values) == values
        self.topics[listener].append(topic)

    def stop(self) -> None:
        self.broker.stop()
        for proxy in self.proxies.values():
            proxy.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    provider = OpenIdProvider()
    running = Secured(tmp_path_factory.mktemp("secured"), provider)
    yield running
    running.stop()
    provider.close()


@pytest.fixture(scope="module", params=CLIENTS)
def runner(request: pytest.FixtureRequest, secured: Secured) -> Iterator[tuple[str, Rounds]]:
    running = CLIENTS[request.param](secured._provider.token_url)
    yield request.param, running
    running.close()


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_a_transaction_and_a_group(secured: Secured, runner: tuple[str, Rounds], listener: str, mechanism: str) -> None:
    kind, running = runner
    secured.round(running, kind, listener, mechanism)


def test_the_listeners_with_tls_have_nothing_in_clear(secured: Secured) -> None:
    """This holds for all rounds of this module. On other listeners, the proxies find the values and the password."""
    for listener, mechanism in (("PLAINTEXT", ""), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "PLAIN"), ("SSL", "")):
        secured.round(rounds.ConfluentRounds(), "another", listener, mechanism)
    texts = [b"in clear nowhere", PASSWORD.encode(), *(token.encode() for token in secured.tokens if token)]
    for listener, proxy in secured.proxies.items():
        everything = b"\0".join(proxy.streams)
        topics = [topic.encode() for topic in secured.topics[listener]]
        assert len(everything) > 5_000 * len(topics), listener
        if listener in TLS:
            for stream in proxy.streams:
                check_records(stream)
            assert not [text for text in (*texts, *topics) if text in everything], listener
        else:  # each value was written and read
            assert not [topic for topic in topics if everything.count(b"in clear nowhere: " + topic) < 40], listener
    assert PASSWORD.encode() in b"\0".join(secured.proxies["SASL_PLAINTEXT"].streams)
