"""Apache Kafka with a listener for each security protocol, and properties for clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.harness import brokers
from tests.harness.certificates import Pki, trust_settings
from tests.harness.kafka_tools import KafkaTools

_MODULES = "org.apache.kafka.common.security"
USERS = {"alice": 'alice\'s "secret"', "admin": "admin-secret"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
REAUTHENTICATION_MS = 2500  # Kafka refuses more than one login a second


def jaas(mechanism: str, **options: str) -> str:
    """Return a JAAS line for a mechanism."""
    module = {"PLAIN": "plain.PlainLoginModule", "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule"}.get(
        mechanism, "scram.ScramLoginModule"
    )
    escaped = {name: value.replace('"', '\\"') for name, value in options.items()}
    return f"{_MODULES}.{module} required " + " ".join(f'{n}="{v}"' for n, v in escaped.items()) + ";"


class SecuredKafka:
    """Apache Kafka 3.9.1 with the listeners PLAINTEXT, SSL (with client certificates) and SASL_SSL, SASL_PLAINTEXT.

    Sessions of the SASL listeners end after REAUTHENTICATION_MS. The users of PLAIN and SCRAM are USERS.
    """

    def __init__(self, directory: Path) -> None:
        self.pki = Pki()
        self.directory = directory
        names = ("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT")
        self.ports = {name: brokers.free_port() for name in names}
        stores = self.pki.server.settings(directory / "server", trusted=[self.pki.authority])
        users = {f"user_{name}": password for name, password in USERS.items()}
        settings = {
            "listeners": ",".join(f"{name}://0.0.0.0:{port}" for name, port in self.ports.items()),
            "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "connections.max.reauth.ms": str(REAUTHENTICATION_MS),
            "listener.name.ssl.ssl.client.auth": "required",
            **stores,
        }
        for listener in ("sasl_ssl", "sasl_plaintext"):
            prefix = f"listener.name.{listener}"
            settings[f"{prefix}.plain.sasl.jaas.config"] = jaas("PLAIN", **users).replace("\\", "\\\\")
            settings[f"{prefix}.scram-sha-256.sasl.jaas.config"] = jaas("SCRAM-SHA-256")
            settings[f"{prefix}.scram-sha-512.sasl.jaas.config"] = jaas("SCRAM-SHA-512")
            settings[f"{prefix}.oauthbearer.sasl.jaas.config"] = jaas("OAUTHBEARER", unsecuredLoginStringClaim_sub="b")
        self.broker = brokers.KafkaBroker(directory / "kafka", settings, port=self.ports["PLAINTEXT"])

    def bootstrap(self, protocol: str) -> str:
        return f"127.0.0.1:{self.ports[protocol]}"

    def client(self, protocol: str, mechanism: str = "", **more: str) -> dict[str, str]:
        """Return the properties of a client, by the names of Java's clients."""
        settings = {"security.protocol": protocol}
        if protocol.endswith("SSL"):
            settings |= trust_settings(self.directory / "trust", [self.pki.authority])
        if protocol == "SSL":
            settings |= self.pki.client.settings(self.directory / "client")
        if protocol.startswith("SASL"):
            login = {"username": "alice", "password": USERS["alice"]}
            if mechanism == "OAUTHBEARER":
                login = {"unsecuredLoginStringClaim_sub": "alice"}
            settings |= {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas(mechanism, **login)}
        return settings | {name.replace("_", "."): value for name, value in more.items()}

    def tool_file(self, settings: Mapping[str, str]) -> Path:
        """Return a properties file for --command-config."""
        path = self.directory / "command.properties"
        path.write_text("".join(f"{k}={v}\n".replace("\\", "\\\\") for k, v in settings.items()))
        return path

    def add_scram_users(self, tools: KafkaTools) -> None:
        """Store SCRAM credentials for the USERS."""
        for user, password in USERS.items():
            said = tools.run(
                "kafka.admin.ConfigCommand", "--bootstrap-server", self.bootstrap("PLAINTEXT"), "--alter",
                "--entity-type", "users", "--entity-name", user, "--add-config",
                f"SCRAM-SHA-256=[password={password}],SCRAM-SHA-512=[password={password}]",
            )  # fmt: skip
            assert said.code == 0, said

    def close(self) -> None:
        self.broker.stop()
