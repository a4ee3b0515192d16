"""`kafkapy tls check`: stores, properties files and listeners, and what clients would reject about them."""

import contextlib
import io
import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kafkapy.security.tls.context import server_context
from kafkapy.testing.broker import Broker
from kafkapy.tools.main import main
from tests.harness.certificates import Authority, Issued, Pki, pem, self_signed, trust_settings
from tests.harness.kafka_tools import Said

DATA = Path(__file__).parents[1] / "data" / "tls"
PASSWORD = "changeit"


@pytest.fixture(scope="module")
def pki() -> Pki:
    return Pki()


def check(*words: object) -> Said:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["tls", "check", *map(str, words)])
    return Said(code, out.getvalue(), err.getvalue())


def properties(path: Path, settings: dict[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def findings(*words: object) -> list[tuple[str, str]]:
    """Return the findings of all documents. Check that the exit code is 1 exactly if one of them is an error."""
    said = check(*words, "--json")
    assert said.err == ""
    found = [(one["level"], one["message"]) for document in json.loads(said.out) for one in document["findings"]]
    assert said.code == int(any(level == "error" for level, _ in found))
    return found


@contextmanager
def listener(context: ssl.SSLContext) -> Iterator[str]:
    """Listen with TLS until the block ends, and answer the first request on each connection. Yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    plain, _ = server.accept()
                except OSError:
                    return
                same = plain.dup()
                with same, contextlib.suppress(OSError):
                    try:
                        with context.wrap_socket(plain, server_side=True) as connection:
                            if connection.recv(100):
                                connection.sendall(b"\0\0\0\4abcd")
                    except ssl.SSLError:  # a close with unread bytes would discard the alert
                        same.shutdown(socket.SHUT_WR)
                        while same.recv(1000):
                            pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield str(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_store_is_shown_with_its_chain_and_the_password_comes_from_a_file(tmp_path: Path) -> None:
    config = properties(tmp_path / "passwords", {"ssl.keystore.password": PASSWORD})
    said = check(DATA / "keystore.p12", "--command-config", config)
    assert (said.code, said.err) == (0, "")
    for words in (
        "CN=broker,OU=Test,O=Acme        CN=Keytool Intermediate,O=Acme  localhost 127.0.0.1  RSA 2048",
        "CN=Keytool CA,O=Acme            itself",
        "The other side must trust: CN=Keytool CA,O=Acme",
        "No problems found.",
    ):
        assert words in said.out
    said = check(DATA / "keystore.p12")
    assert said.code == 1
    assert "ssl.keystore.password=... into a file, and give it with --command-config" in said.err


def test_each_form_of_a_store_is_recognised(pki: Pki, tmp_path: Path) -> None:
    config = properties(tmp_path / "passwords", {"ssl.keystore.password": PASSWORD, "ssl.key.password": PASSWORD})
    trusted = tmp_path / "ca.pem"
    trusted.write_text(pem(pki.authority.certificate))
    for path, kind in (
        (DATA / "openssl.pem", "key store"),
        (DATA / "openssl-encrypted.pem", "key store"),
        (DATA / "openssl-legacy.p12", "key store"),
        (DATA / "truststore.p12", "trust store"),
        (trusted, "trust store"),
    ):
        said = check(path, "--command-config", config, "--json")
        assert [document["kind"] for document in json.loads(said.out)] == [kind], path
    said = check(DATA / "keystore.jks")
    assert said.code == 1
    assert "keytool -importkeystore" in said.err
    assert check(tmp_path / "missing").code == 1
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        assert check(path) == Said(1, "", f"kafkapy: {path} is not a regular file.\n")
    assert check().code == 2


def stored(path: Path, issued: Issued) -> Path:
    path.write_text(issued.pem())
    return path


def test_what_clients_reject_about_a_certificate_is_found(pki: Pki, tmp_path: Path) -> None:
    ca, path = pki.authority, tmp_path / "store.pem"
    names = ["localhost"]
    for issued, level, words in (
        (ca.expired("CN=old"), "error", "CN=old expired on"),
        (ca.issue("CN=soon", names=names, until=timedelta(days=9, hours=1)), "warning", "CN=soon expires in 9 days"),
        (ca.issue("CN=next", names=names, until=timedelta(days=1, hours=1)), "warning", "CN=next expires in 1 day"),
        (ca.issue("CN=later", names=names, since=timedelta(days=1)), "error", "CN=later is valid only from"),
        (ca.issue("CN=broker.example.com"), "warning", "clients in Go refuse it"),
        (ca.issue("O=Acme"), "error", "no host name"),
        (ca.issue("CN=client", names=names, use="client"), "error", "does not allow it to be a server"),
    ):
        found = findings(stored(path, issued))
        assert [one for one in found if one[0] == level and words in one[1]], found
    assert findings(stored(path, ca.issue("CN=good", names=names, use="server"))) == []
    assert findings(stored(path, self_signed("CN=alone", names=names))) == []
    assert [level for level, _ in findings(stored(path, pki.server), "--days", 400)] == ["warning"]


def test_a_chain_that_does_not_hold_together_is_found(pki: Pki, tmp_path: Path) -> None:
    root = Authority.root("Root")
    low = root.intermediate("Upper").intermediate("Lower")
    issued = low.issue("CN=broker", names=["localhost"])
    path = tmp_path / "store.pem"
    lower, upper = issued.above
    path.write_text(issued.key_pem() + "".join(map(pem, (issued.certificate, upper, lower))))
    assert ("error", "after CN=broker comes CN=Upper, not its issuer CN=Lower") in findings(path)
    path.write_text(pki.client.key_pem() + issued.chain)
    assert [words for _, words in findings(path) if "does not belong to the certificate" in words]


def test_a_brokers_file_is_checked_with_the_stores_of_each_listener(pki: Pki, tmp_path: Path) -> None:
    inside = pki.server.settings(tmp_path / "inside", trusted=[pki.stranger])
    outside = pki.authority.expired("CN=old").settings(tmp_path / "outside")
    settings = {"log.dirs": "/data", "ssl.keystore.type": "PEM"}
    settings |= {f"listener.name.inside.{key}": value for key, value in inside.items()}
    settings |= {f"listener.name.outside.{key}": value for key, value in outside.items()}
    settings["listener.name.broken.ssl.keystore.location"] = "/nowhere"
    path = properties(tmp_path / "server.properties", settings)
    said = check(path, "--json")
    found = {
        (document["target"].rpartition(" ")[2], document["kind"]): [one["message"] for one in document["findings"]]
        for document in json.loads(said.out)
    }
    assert said.code == 1
    assert found.keys() == {
        ("inside", "key store"),
        ("inside", "trust store"),
        ("outside", "key store"),
        ("broken", "settings"),
    }
    assert "brokers cannot connect to each other" in found["inside", "key store"][0]
    assert "CN=old expired on" in found["outside", "key store"][0]
    assert "/nowhere" in found["broken", "settings"][0]
    assert check("--command-config", path, "--json").out == said.out


def test_a_clients_file_may_have_the_names_of_librdkafka(pki: Pki, tmp_path: Path) -> None:
    (tmp_path / "ca").write_text(pem(pki.authority.certificate))
    (tmp_path / "key").write_text(pki.client.key_pem())
    (tmp_path / "mine").write_text(pki.client.chain)
    names = {"ssl.ca.location": "ca", "ssl.key.location": "key", "ssl.certificate.location": "mine"}
    path = properties(tmp_path / "client", {name: str(tmp_path / file) for name, file in names.items()})
    said = check(path, "--json")
    assert [document["kind"] for document in json.loads(said.out)] == ["key store", "trust store"]
    assert said.code == 0
    (tmp_path / "mine").unlink()
    assert str(tmp_path / "mine") in check(path).err


class TestListener:
    def trusting(self, pki: Pki, tmp_path: Path, **more: str) -> Path:
        return properties(tmp_path / "client", trust_settings(tmp_path, [pki.authority]) | more)

    def document(self, *words: object) -> Any:
        return json.loads(check(*words, "--json").out)[0]

    def test_one_that_clients_accept(self, pki: Pki, tmp_path: Path) -> None:
        with listener(server_context(pki.server.settings(tmp_path))) as port:
            said = check(f"127.0.0.1:{port}", "--command-config", self.trusting(pki, tmp_path))
        assert (said.code, said.err) == (0, "")
        for words in ("CN=broker", "TLSv1.2: ECDHE-ECDSA-AES256", "TLSv1.3: TLS_AES_256_GCM", "No problems found."):
            assert words in said.out

    def test_the_settings_may_have_the_names_of_librdkafka(self, pki: Pki, tmp_path: Path) -> None:
        (tmp_path / "ca").write_text(pem(pki.authority.certificate))
        (tmp_path / "key").write_text(pki.client.key_pem("secret"))
        (tmp_path / "mine").write_text(pki.client.chain)
        names = {"ssl.ca.location": "ca", "ssl.key.location": "key", "ssl.certificate.location": "mine"}
        client = {name: str(tmp_path / file) for name, file in names.items()} | {"ssl.key.password": "secret"}
        settings = pki.server.settings(tmp_path, trusted=[pki.authority]) | {"ssl.client.auth": "required"}
        with listener(server_context(settings)) as port:
            assert findings(f"127.0.0.1:{port}", "--command-config", properties(tmp_path / "client", client)) == []

    def test_the_chain_and_the_versions_are_shown(self, tmp_path: Path) -> None:
        root = Authority.root()
        issued = root.intermediate("Middle").issue("CN=broker", names=["127.0.0.1"])
        settings = issued.settings(tmp_path) | {"ssl.enabled.protocols": "TLSv1.2"}
        with listener(server_context(settings)) as port:
            found = self.document(f"127.0.0.1:{port}")
        assert [one["subject"] for one in found["certificates"]] == ["CN=broker", "CN=Middle"]
        assert [one["accepted"] for one in found["protocols"]] == [True, False]
        assert found["trustNeeded"] == "CN=Test CA"

    def test_one_that_is_not_trusted_or_has_another_name(self, pki: Pki, tmp_path: Path) -> None:
        config = self.trusting(pki, tmp_path)
        with listener(server_context(pki.server.settings(tmp_path))) as port:
            words = findings(f"127.0.0.1:{port}", "--command-config", config, "--host", "example.com")
            assert "Hostname mismatch" in words[0][1]
            assert "unable to get local issuer" in findings(f"127.0.0.1:{port}")[0][1]

    def test_one_that_requires_a_certificate(self, pki: Pki, tmp_path: Path) -> None:
        settings = pki.server.settings(tmp_path, trusted=[pki.authority]) | {"ssl.client.auth": "required"}
        with listener(server_context(settings)) as port:
            words = findings(f"127.0.0.1:{port}", "--command-config", self.trusting(pki, tmp_path))
            assert "refuses a client without a certificate" in words[-1][1]
            mine = pki.client.settings(tmp_path / "mine")
            assert findings(f"127.0.0.1:{port}", "--command-config", self.trusting(pki, tmp_path, **mine)) == []

    def test_a_host_name_that_cannot_exist_is_one_sentence(self, pki: Pki, tmp_path: Path) -> None:
        said = check("a..b:9093")
        assert (said.code, said.err) == (1, "kafkapy: 'a..b' cannot be a host name.\n")
        with listener(server_context(pki.server.settings(tmp_path))) as port:
            said = check(f"127.0.0.1:{port}", "--host", ".example.com")
        assert (said.code, said.err) == (1, "kafkapy: no certificate can have the host name '.example.com'.\n")

    def test_one_without_tls(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=self.close_all, args=(server,))
            thread.start()
            said = check(f"127.0.0.1:{server.getsockname()[1]}")
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
        assert said.code == 1
        assert "is it a listener without TLS?" in said.err

    def close_all(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                connection.close()


def test_a_certificate_of_a_listener_that_has_expired_is_found(pki: Pki, tmp_path: Path) -> None:
    """A broker of kafkapy refuses to start with one; it may expire later, and other brokers may have one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(stored(tmp_path / "old.pem", pki.authority.expired("CN=old")))
    with listener(context) as port:
        config = properties(tmp_path / "client", trust_settings(tmp_path, [pki.authority]))
        found = findings(f"127.0.0.1:{port}", "--command-config", config)
    assert "CN=old expired on" in found[0][1]
    assert ("error", "a client refuses the listener: certificate has expired") in found


def test_a_broker_is_checked(pki: Pki, tmp_path: Path) -> None:
    settings = pki.server.settings(tmp_path, trusted=[pki.authority]) | {"ssl.client.auth": "required"}
    settings |= {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"}
    client = trust_settings(tmp_path, [pki.authority]) | pki.client.settings(tmp_path, name="client")
    config = properties(tmp_path / "client.properties", client)
    with Broker(config=settings) as broker:
        plain, secured = (one.partition("://")[2] for one in sorted(broker.listeners))
        assert findings(secured, "--command-config", config) == []
        assert "is it a listener without TLS?" in check(plain, "--command-config", config).err
