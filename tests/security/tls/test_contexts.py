"""TLS contexts from Kafka's settings: stores in every form, what is offered, who is trusted, and what is refused."""

import _ssl
import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, NoEncryption, pkcs12

from kafkapy.security.tls.certificates import peer_name
from kafkapy.security.tls.context import client_context, server_context
from kafkapy.security.tls.errors import StoreError
from kafkapy.security.tls.trial import TrialError, handshake
from tests.harness.certificates import (
    Authority,
    Issued,
    Pki,
    java_trust_settings,
    pem,
    self_signed,
    trust_settings,
)

SECRET = "s3cret, with spaces ä"


@pytest.fixture(scope="module")
def pki() -> Pki:
    return Pki()


def refused(settings: dict[str, str], setting: str, *words: str) -> None:
    """Check that a server with these settings is refused with an error about `setting` that has the words in it."""
    with pytest.raises(StoreError) as caught:
        server_context(settings)
    assert caught.value.setting == setting, caught.value
    for word in words:
        assert word in caught.value.reason
    assert SECRET not in str(caught.value)
    assert "PRIVATE KEY" not in str(caught.value)


@pytest.mark.parametrize("kind", ["ec", "rsa", "ed25519"])
@pytest.mark.parametrize("password", [None, SECRET])
def test_a_pem_file_with_a_key_of_any_kind_and_a_chain(tmp_path: Path, kind: str, password: str | None) -> None:
    root = Authority.root()
    server = root.intermediate("A").intermediate("B").issue("CN=broker", names=["localhost"], kind=kind)  # type: ignore[arg-type]
    context = server_context(server.settings(tmp_path, password=password))
    end = handshake(context, client_context(trust_settings(tmp_path, [root])), "localhost")
    assert end.version() == "TLSv1.3"


def test_inline_pem_may_have_spaces_for_line_breaks(pki: Pki, tmp_path: Path) -> None:
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": pki.server.key_pem(SECRET).replace("\n", " "),
        "ssl.key.password": SECRET,
        "ssl.keystore.certificate.chain": pki.server.chain.replace("\n", " "),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": pem(pki.authority.certificate).strip(),
    }
    handshake(server_context(settings | {"ssl.client.auth": "required"}), client_context(settings), "127.0.0.1")


@pytest.mark.parametrize("kind", ["JKS", "PKCS12", "pkcs12", "PEM"])
def test_pkcs12_is_recognised_by_content(pki: Pki, tmp_path: Path, kind: str) -> None:
    settings = pki.server.java_settings(tmp_path, trusted=[pki.authority], password=SECRET)
    settings |= {"ssl.keystore.type": kind, "ssl.truststore.type": kind, "ssl.client.auth": "required"}
    end = handshake(server_context(settings), client_context(settings), "localhost")
    assert peer_name(end.getpeercert(True) or b"") == "CN=broker,OU=Test,O=Acme"


def test_a_pem_file_is_recognised_whatever_the_type_says(pki: Pki, tmp_path: Path) -> None:
    settings = pki.server.settings(tmp_path, trusted=[pki.authority])
    settings |= {"ssl.keystore.type": "JKS", "ssl.truststore.type": "PKCS12"}
    handshake(server_context(settings), client_context(settings), "localhost")


def test_the_chain_in_a_pkcs12_file_is_put_in_order(tmp_path: Path) -> None:
    root = Authority.root()
    low = root.intermediate("A").intermediate("B")
    server = low.issue("CN=broker", names=["localhost"])
    shuffled = Issued(server.certificate, server.key, [root.certificate, *reversed(server.above)])
    settings = shuffled.java_settings(tmp_path, password=SECRET)
    handshake(server_context(settings), client_context(trust_settings(tmp_path, [root])), "localhost")


def test_no_key_is_written_to_a_disk_and_no_descriptor_stays_open(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = pki.server.java_settings(tmp_path / "stores", trusted=[pki.authority], password=SECRET)
    opened = []
    real = ssl.SSLContext.load_cert_chain

    def watched(self: ssl.SSLContext, chain: str, key: str, password: object) -> None:
        opened.extend(os.readlink(path) for path in (chain, key))
        real(self, chain, key, password)  # type: ignore[arg-type]

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    server_context(settings)
    assert len(opened) == 2
    assert all(target.startswith("/memfd:") for target in opened), opened
    assert not [path for path in Path("/proc/self/fd").iterdir() if "memfd:kafkapy-tls" in os.path.realpath(path)]


def test_a_jks_file_is_refused_with_the_command_that_converts_it(pki: Pki, tmp_path: Path) -> None:
    path = tmp_path / "my keystore.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    command = (
        f"keytool -importkeystore -srckeystore '{path}' -srcstoretype JKS "
        f"-destkeystore '{tmp_path / 'my keystore.p12'}' -deststoretype PKCS12"
    )
    refused({"ssl.keystore.location": str(path), "ssl.keystore.password": SECRET}, "ssl.keystore.location", command)
    settings = pki.server.settings(tmp_path) | {"ssl.truststore.location": str(path), "ssl.client.auth": "required"}
    refused(settings, "ssl.truststore.location", command)


def test_pem_needs_no_library_and_pkcs12_says_which_one_it_needs(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = pki.server.settings(tmp_path, trusted=[pki.authority], password=SECRET) | {"ssl.client.auth": "required"}
    script = (
        "import sys; from kafkapy.security.tls.context import server_context, client_context\n"
        f"server_context({settings!r}); client_context({settings!r})\n"
        "sys.exit('cryptography' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    refused(pki.server.java_settings(tmp_path, password=SECRET), "ssl.keystore.location", "pip install", "[security]")


def test_a_wrong_password_is_named_but_not_shown(pki: Pki, tmp_path: Path) -> None:
    settings = pki.server.settings(tmp_path, password="right")
    path = settings["ssl.keystore.location"]
    refused(settings | {"ssl.key.password": SECRET}, "ssl.key.password", "wrong", path)
    refused(settings | {"ssl.key.password": ""}, "ssl.key.password", "encrypted", path)
    refused(settings | {"ssl.key.password": "x" * 1025}, "ssl.key.password", "1024")
    settings = pki.server.java_settings(tmp_path, trusted=[pki.authority], password="right")
    path = settings["ssl.keystore.location"]
    wrong = {"ssl.keystore.password": SECRET, "ssl.key.password": SECRET}
    refused(settings | wrong, "ssl.keystore.password", "wrong", path)
    refused(settings | {"ssl.key.password": SECRET}, "ssl.key.password", "differs", path)
    refused(settings | {"ssl.truststore.password": SECRET}, "ssl.truststore.password", "wrong", "truststore.p12")


def test_an_encrypted_key_without_a_password_never_asks_on_the_terminal(pki: Pki, tmp_path: Path) -> None:
    """OpenSSL would ask for the password there, and a broker would wait forever."""
    old = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n"
    store = tmp_path / "key.pem"
    store.write_text(f"{old}-----END EC PRIVATE KEY-----\n{pki.server.chain}")
    refused({"ssl.keystore.location": str(store)}, "ssl.key.password", "encrypted")


def test_a_key_that_does_not_belong_to_the_certificate(pki: Pki, tmp_path: Path) -> None:
    for name, key in (("ec", pki.client.key_pem()), ("rsa", Authority.root(kind="rsa").key_pem())):
        path = tmp_path / f"{name}.pem"
        path.write_text(key + pki.server.chain)
        refused({"ssl.keystore.location": str(path)}, "ssl.keystore.location", "does not belong", "CN=broker")


def test_a_certificate_that_is_not_the_first(tmp_path: Path) -> None:
    root = Authority.root(kind="rsa")
    server = root.issue("CN=broker")
    path = tmp_path / "reversed.pem"
    path.write_text(server.key_pem() + pem(root.certificate) + server.chain)
    refused({"ssl.keystore.location": str(path)}, "ssl.keystore.location", "must come first", "CN=broker")


def test_an_expired_certificate(pki: Pki, tmp_path: Path) -> None:
    refused(pki.authority.expired("CN=old").settings(tmp_path), "ssl.keystore.location", "CN=old", "expired on")


def test_a_key_that_is_too_short(pki: Pki, tmp_path: Path) -> None:
    weak = pki.authority.issue("CN=weak", key=rsa.generate_private_key(public_exponent=65537, key_size=1024))
    refused(weak.settings(tmp_path), "ssl.keystore.location", "2048")


def test_files_that_are_no_stores(pki: Pki, tmp_path: Path) -> None:
    key, chain = pki.server.key_pem(), pki.server.chain
    cut = chain[: len(chain) // 2]
    for content, words in {
        "": ["empty"],
        "hello": ["neither PEM nor PKCS12"],
        chain: ["no private key"],
        key: ["no certificate"],
        key + key + chain: ["2 private keys"],
        key + cut: ["cut off"],
        key + chain.replace("M", "!"): ["not base64"],
        key + chain.replace("MII", "AAA"): ["damaged"],
        key.replace("MIGH", "AAAA") + chain: ["private key", "damaged"],
    }.items():
        path = tmp_path / "store"
        path.write_text(content)
        refused({"ssl.keystore.location": str(path)}, "ssl.keystore.location", str(path), *words)
    path.write_bytes(pki.server.der)
    refused({"ssl.keystore.location": str(path)}, "ssl.keystore.location", "openssl x509 -inform DER")
    store = {"ssl.keystore.location": str(path), "ssl.keystore.password": SECRET}
    path.write_bytes(b"0\x82garbage")
    refused(store, "ssl.keystore.password", "damaged")
    path.write_bytes(pki.server.pkcs12(SECRET)[:-20])
    refused(store, "ssl.keystore.password", "damaged")
    path.write_bytes(
        Path(java_trust_settings(tmp_path, [pki.authority], SECRET)["ssl.truststore.location"]).read_bytes()
    )
    refused(store, "ssl.keystore.location", "no private key")
    refused({"ssl.keystore.location": str(tmp_path)}, "ssl.keystore.location", "Is a directory")
    refused({"ssl.keystore.location": "/nowhere/store"}, "ssl.keystore.location", "/nowhere/store", "No such file")


@pytest.mark.parametrize("setting", ["ssl.keystore.location", "ssl.truststore.location"])
def test_a_pipe_or_a_device_is_refused_at_once(pki: Pki, tmp_path: Path, setting: str) -> None:
    """A named pipe that nobody writes to would be waited for."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    link = tmp_path / "link"
    link.symlink_to(pipe)
    for path in (pipe, link, Path("/dev/zero")):
        with pytest.raises(StoreError, match=f"{path} is a pipe or a device: use a file, or a link to one"):
            server_context({**pki.server.settings(tmp_path), setting: str(path)})


def test_a_store_behind_links_as_kubernetes_makes_them(pki: Pki, tmp_path: Path) -> None:
    data = tmp_path / "..2026_11_27_00_00_00.1"
    data.mkdir()
    (data / "keystore.pem").write_text(pki.server.pem())
    (tmp_path / "..data").symlink_to(data.name)
    (tmp_path / "keystore.pem").symlink_to("..data/keystore.pem")
    server_context({"ssl.keystore.location": str(tmp_path / "keystore.pem")})


def test_settings_that_exclude_each_other(pki: Pki, tmp_path: Path) -> None:
    file = pki.server.settings(tmp_path, trusted=[pki.authority])
    inline = {"ssl.keystore.key": pki.server.key_pem(), "ssl.keystore.certificate.chain": pki.server.chain}
    for settings, setting in (
        ({}, "ssl.keystore.location"),
        ({"ssl.keystore.password": SECRET}, "ssl.keystore.password"),
        (file | {"ssl.keystore.password": SECRET}, "ssl.keystore.password"),
        (file | {"ssl.truststore.password": SECRET}, "ssl.truststore.password"),
        (inline | {"ssl.truststore.password": SECRET}, "ssl.truststore.password"),
        (inline | file, "ssl.keystore.location"),
        (inline | {"ssl.keystore.password": SECRET}, "ssl.keystore.password"),
        (inline | {"ssl.keystore.key": ""}, "ssl.keystore.key"),
        (inline | {"ssl.keystore.certificate.chain": ""}, "ssl.keystore.certificate.chain"),
        (file | {"ssl.truststore.certificates": pki.server.chain}, "ssl.truststore.location"),
        (pki.server.java_settings(tmp_path, password="x") | {"ssl.keystore.password": ""}, "ssl.keystore.password"),
    ):
        refused(settings, setting)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("ssl.protocol", "SSL"),
        ("ssl.enabled.protocols", "TLSv1.2,TLSv1.1"),
        ("ssl.enabled.protocols", "TLSv1.4"),
        ("ssl.cipher.suites", "TLS_RSA_WITH_NULL_SHA256"),
        ("ssl.cipher.suites", "SSL_RSA_WITH_RC4_128_MD5"),
        ("ssl.client.auth", "sometimes"),
        ("ssl.provider", "BouncyCastle"),
        ("ssl.engine.factory.class", "com.acme.Engines"),
        ("ssl.keymanager.algorithm", "Acme"),
        ("ssl.trustmanager.algorithm", "Acme"),
        ("ssl.secure.random.implementation", "Dice"),
        ("security.providers", "com.acme.Provider"),
        ("ssl.keystore.type", "BCFKS"),
        ("ssl.truststore.type", "Windows-ROOT"),
    ],
)
def test_a_value_that_python_cannot_honour_is_refused(pki: Pki, tmp_path: Path, setting: str, value: str) -> None:
    refused(pki.server.settings(tmp_path) | {setting: value}, setting)


def test_javas_defaults_are_accepted(pki: Pki, tmp_path: Path) -> None:
    settings = pki.server.settings(tmp_path) | {
        "ssl.protocol": "TLSv1.3",
        "ssl.enabled.protocols": ["TLSv1.2", "TLSv1.3"],
        "ssl.keymanager.algorithm": "SunX509",
        "ssl.trustmanager.algorithm": "PKIX",
        "ssl.secure.random.implementation": "SHA1PRNG",
        "ssl.engine.factory.class": "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
        "ssl.cipher.suites": [],
        "ssl.provider": None,
        "ssl.truststore.password": None,
    }
    context = server_context(settings)
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert context.options & ssl.OP_NO_RENEGOTIATION


ALL_1_3 = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"
GCM = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


@pytest.mark.parametrize(
    ("protocols", "suites", "agreed"),
    [
        ("TLSv1.2,TLSv1.3", "", ("TLSv1.3", "TLS_AES_256_GCM_SHA384")),
        ("TLSv1.2", "", ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384")),
        ("TLSv1.2,TLSv1.3", ALL_1_3, ("TLSv1.3", "TLS_AES_256_GCM_SHA384")),
        ("TLSv1.2,TLSv1.3", f"{GCM},{ALL_1_3}", ("TLSv1.3", "TLS_AES_256_GCM_SHA384")),
        ("TLSv1.2,TLSv1.3", GCM, ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256")),
        ("TLSv1.2", f"TLS_AES_128_GCM_SHA256,{GCM}", ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256")),
        ("TLSv1.3", f"{GCM},{ALL_1_3}", ("TLSv1.3", "TLS_AES_256_GCM_SHA384")),
        ("TLSv1.2", "ECDHE-RSA-AES128-SHA256:ECDHE-ECDSA-AES128-SHA256", ("TLSv1.2", "ECDHE-ECDSA-AES128-SHA256")),
    ],
)
def test_only_the_versions_and_suites_of_the_settings_are_offered(
    pki: Pki, tmp_path: Path, protocols: str, suites: str, agreed: tuple[str, str]
) -> None:
    settings = pki.server.settings(tmp_path, trusted=[pki.authority])
    server = server_context(settings | {"ssl.enabled.protocols": protocols, "ssl.cipher.suites": suites})
    end = handshake(server, client_context(settings), "localhost")
    assert (end.version(), (end.cipher() or [""])[0]) == agreed


@pytest.mark.parametrize(
    ("protocols", "suites"),
    [
        ("TLSv1.2,TLSv1.3", "TLS_AES_128_GCM_SHA256"),
        ("TLSv1.3", "TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256"),
        ("TLSv1.3", GCM),
        ("TLSv1.2", ALL_1_3),
    ],
)
def test_suites_that_cannot_be_had_exactly_are_refused(pki: Pki, tmp_path: Path, protocols: str, suites: str) -> None:
    settings = pki.server.settings(tmp_path) | {"ssl.enabled.protocols": protocols, "ssl.cipher.suites": suites}
    refused(settings, "ssl.cipher.suites")


def test_a_suite_with_finite_field_diffie_hellman_works(tmp_path: Path) -> None:
    authority = Authority.root()
    settings = authority.issue("CN=broker", names=["localhost"], kind="rsa").settings(tmp_path, trusted=[authority])
    settings |= {"ssl.cipher.suites": "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256"}
    end = handshake(server_context(settings), client_context(settings), "localhost")
    assert (end.cipher() or [""])[0] == "DHE-RSA-AES128-GCM-SHA256"


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
class TestClientCertificates:
    def connect(self, pki: Pki, path: Path, version: str, auth: str, client: Issued | None) -> ssl.SSLObject:
        server = pki.server.settings(path / "server", trusted=[pki.authority])
        server |= {"ssl.client.auth": auth, "ssl.enabled.protocols": version}
        context = client_context(trust_settings(path / "client", [pki.authority]))
        if client is not None:
            (path / "client.pem").write_text(client.pem())
            context.load_cert_chain(path / "client.pem")  # client_context would refuse an expired certificate
        return handshake(server_context(server), context, "localhost")

    @pytest.mark.parametrize(("auth", "seen"), [("none", False), ("requested", True), ("required", True)])
    def test_a_trusted_one(self, pki: Pki, tmp_path: Path, version: str, auth: str, seen: bool) -> None:
        end = self.connect(pki, tmp_path, version, auth, pki.client)
        assert bool(end.getpeercert(True)) is seen

    def test_none(self, pki: Pki, tmp_path: Path, version: str) -> None:
        assert self.connect(pki, tmp_path, version, "requested", None).getpeercert(True) is None
        with pytest.raises(TrialError, match="the server refuses the client"):
            self.connect(pki, tmp_path, version, "required", None)

    @pytest.mark.parametrize("auth", ["requested", "required"])
    def test_one_that_is_not_trusted(self, pki: Pki, tmp_path: Path, version: str, auth: str) -> None:
        server_only = pki.authority.issue("CN=server only", use="server")
        for client in (pki.stranger, pki.authority.expired("CN=old"), self_signed("CN=alice"), server_only):
            with pytest.raises(TrialError, match="the server refuses the client"):
                self.connect(pki, tmp_path, version, auth, client)


def test_the_chain_that_is_sent_has_the_issuers_that_the_trust_store_has(tmp_path: Path) -> None:
    """A context with a trust store and a single certificate would verify the chain in each handshake to find them."""
    root = Authority.root("Root")
    middle = root.intermediate("Middle")
    low, high = (authority.issue("CN=broker", names=["localhost"]) for authority in (middle, root))
    alone = Issued(low.certificate, low.key)
    for number, (issued, trusted, auth, expected) in enumerate(
        [
            (high, [root], "none", ["CN=broker"]),
            (high, [root], "requested", ["CN=broker", "CN=Root"]),
            (high, [middle], "requested", ["CN=broker"]),
            (low, [root], "requested", ["CN=broker", "CN=Middle"]),
            (alone, [root, middle], "requested", ["CN=broker", "CN=Middle"]),
            (alone, [root, middle], "none", ["CN=broker"]),
        ]
    ):
        settings = issued.settings(tmp_path / str(number), trusted=trusted) | {"ssl.client.auth": auth}
        client = client_context(trust_settings(tmp_path, [root, middle]))
        end = _client_end(server_context(settings), client, None)
        sent = end._sslobj.get_unverified_chain()  # type: ignore[attr-defined]
        assert [peer_name(one.public_bytes(_ssl.ENCODING_DER)) for one in sent] == expected, number


def test_a_client_verifies_the_server(pki: Pki, tmp_path: Path) -> None:
    server = server_context(pki.server.settings(tmp_path))
    stranger = server_context(pki.stranger.settings(tmp_path, name="stranger"))
    trusted = trust_settings(tmp_path, [pki.authority])
    strict, lax = client_context(trusted), client_context(trusted | {"ssl.endpoint.identification.algorithm": ""})
    handshake(server, strict, "127.0.0.1")
    with pytest.raises(TrialError, match="Hostname mismatch"):
        handshake(server, strict, "example.com")
    with pytest.raises(TrialError, match="IP address mismatch"):
        handshake(server, strict, "127.0.0.2")
    handshake(server, lax, "example.com")
    for client in (strict, lax):
        with pytest.raises(TrialError, match="the client refuses the server"):
            handshake(stranger, client, "localhost")
    with pytest.raises(StoreError, match="endpoint"):
        client_context(trusted | {"ssl.endpoint.identification.algorithm": "LDAPS"})


def test_host_names_are_verified_unless_the_setting_is_empty() -> None:
    for settings in ({}, {"ssl.endpoint.identification.algorithm": None}, {"ssl.protocol": "TLS"}):
        assert client_context(settings).check_hostname
        assert client_context(settings).verify_mode == ssl.CERT_REQUIRED


def test_a_trust_store_trusts_what_it_holds_also_an_intermediate_authority_or_a_single_certificate(
    tmp_path: Path,
) -> None:
    middle = Authority.root().intermediate()
    server = middle.issue("CN=broker", names=["localhost"])
    context = server_context(server.settings(tmp_path))
    for number, trusted in enumerate((middle, server)):
        handshake(context, client_context(trust_settings(tmp_path / str(number), [trusted])), "localhost")


def test_a_trusted_certificate_of_a_server_cannot_vouch_for_others(tmp_path: Path) -> None:
    server = Authority.root().issue("CN=broker", names=["localhost"])
    forged = Authority(server.certificate, server.key).issue("CN=forged", names=["localhost"])
    client = client_context(trust_settings(tmp_path, [server]))
    with pytest.raises(TrialError, match="the client refuses the server"):
        handshake(server_context(forged.settings(tmp_path)), client, "localhost")


def test_a_key_store_as_trust_store_trusts_its_certificate_but_not_the_authorities_above(tmp_path: Path) -> None:
    """As in Java: whoever uses the key store as trust store would otherwise trust all that its authority signed."""
    root = Authority.root()
    middle = root.intermediate()
    server = middle.issue("CN=broker", names=["localhost"])
    named = [
        pkcs12.PKCS12Certificate(one, name)
        for one, name in ((middle.certificate, b"CN=Test intermediate CA"), (root.certificate, None))
    ]
    path = tmp_path / "both.p12"
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"broker",
            server.key,  # type: ignore[arg-type]
            server.certificate,
            named,  # type: ignore[arg-type]
            BestAvailableEncryption(b"secret"),
        )
    )
    client = client_context({"ssl.truststore.location": str(path), "ssl.truststore.password": "secret"})
    handshake(server_context(server.settings(tmp_path)), client, "localhost")
    other = middle.issue("CN=other", names=["localhost"])
    with pytest.raises(TrialError):
        handshake(server_context(other.settings(tmp_path, name="other")), client, "localhost")


def test_a_trust_store_without_encryption_needs_no_password(pki: Pki, tmp_path: Path) -> None:
    path = tmp_path / "open.p12"
    entry = pkcs12.PKCS12Certificate(pki.authority.certificate, b"ca")
    path.write_bytes(pkcs12.serialize_java_truststore([entry], NoEncryption()))
    client = client_context({"ssl.truststore.location": str(path)})
    handshake(server_context(pki.server.settings(tmp_path)), client, "localhost")


def test_sessions_are_resumed_by_tickets_of_the_same_context_only(pki: Pki, tmp_path: Path) -> None:
    settings = pki.server.settings(tmp_path, trusted=[pki.authority]) | {"ssl.enabled.protocols": "TLSv1.2"}
    client, server, another = client_context(settings), server_context(settings), server_context(settings)
    session = _session(server, client, None)
    assert _session(server, client, session) is not None
    for context, resumed in ((server, True), (another, False)):
        end = _client_end(context, client, session)
        assert end.session_reused is resumed


def _session(server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None) -> ssl.SSLSession | None:
    return _client_end(server, client, session).session


def _client_end(server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None) -> ssl.SSLObject:
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname="localhost", session=session),
        server.wrap_bio(there, back, server_side=True),
    ]
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return ends[0]
