"""New certificates without a restart: what is taken, what is refused, and that a refused change changes nothing."""

import os
import ssl
from datetime import timedelta
from pathlib import Path

import pytest

from kafkapy.security.tls.certificates import Certificate, peer_name
from kafkapy.security.tls.context import client_context, client_context_of
from kafkapy.security.tls.errors import StoreError
from kafkapy.security.tls.reloading import ReloadableContext
from kafkapy.security.tls.trial import TrialError, handshake
from tests.harness.certificates import Authority, Issued, Pki, pem, trust_settings

SUBJECT = "CN=broker,O=Acme"
NAMES = ["localhost", "127.0.0.1"]


@pytest.fixture(scope="module")
def pki() -> Pki:
    return Pki()


def serial_of(context: ssl.SSLContext, client: ssl.SSLContext) -> int:
    """Return the serial number of the certificate that a server with this context shows."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = client.wrap_bio(back, there, server_hostname="localhost")
    server = context.wrap_bio(there, back, server_side=True)
    for _ in range(6):
        for one in (end, server):
            try:
                one.do_handshake()
            except ssl.SSLWantReadError:
                pass
    shown = end.getpeercert(True)
    assert shown is not None
    assert peer_name(shown)
    return int(str((end.getpeercert() or {})["serialNumber"]), 16)


def write(path: str, content: str) -> None:
    """Replace a file, with another modification time even if the clock is coarse."""
    before = os.stat(path).st_mtime_ns
    Path(path).write_text(content)
    os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


def test_a_file_that_changed_under_the_same_name_is_loaded(pki: Pki, tmp_path: Path) -> None:
    first, second = (pki.authority.issue(SUBJECT, names=NAMES) for _ in range(2))
    settings = first.settings(tmp_path)
    client = client_context(trust_settings(tmp_path / "client", [pki.authority]))
    holder = ReloadableContext(settings)
    before = holder.context
    assert serial_of(before, client) == first.certificate.serial_number
    assert not holder.reload()
    assert holder.context is before, "tickets of the clients are lost without need"
    write(settings["ssl.keystore.location"], second.pem())
    assert holder.reload()
    assert serial_of(holder.context, client) == second.certificate.serial_number
    assert serial_of(before, client) == first.certificate.serial_number


def test_another_file_is_loaded(pki: Pki, tmp_path: Path) -> None:
    first, second = (pki.authority.issue(SUBJECT, names=NAMES) for _ in range(2))
    holder = ReloadableContext(first.settings(tmp_path))
    settings = second.settings(tmp_path, name="second")
    holder.check(settings)
    client = client_context(trust_settings(tmp_path / "client", [pki.authority]))
    assert serial_of(holder.context, client) == first.certificate.serial_number
    assert holder.reload(settings)
    assert serial_of(holder.context, client) == second.certificate.serial_number


def refused(holder: ReloadableContext, settings: dict[str, str], words: str) -> None:
    """Check that the change is refused, and that nothing is different afterwards."""
    before, certificate = holder.context, holder.certificate
    with pytest.raises(StoreError, match=words):
        holder.check(settings)
    with pytest.raises(StoreError, match=words):
        holder.reload(settings)
    assert holder.context is before
    assert holder.certificate is certificate


def test_a_store_that_does_not_load_changes_nothing(pki: Pki, tmp_path: Path) -> None:
    first = pki.authority.issue(SUBJECT, names=NAMES)
    settings = first.settings(tmp_path, trusted=[pki.authority])
    holder = ReloadableContext(settings)
    refused(holder, settings | {"ssl.keystore.location": "/nowhere"}, "/nowhere")
    path = settings["ssl.keystore.location"]
    for content, words in (
        ("", "is empty"),
        (first.pem()[:300], "cut off"),
        (pki.client.key_pem() + first.chain, "does not belong"),
        (pki.authority.issue(SUBJECT, names=NAMES, until=-timedelta(minutes=1), since=-timedelta(1)).pem(), "expired"),
    ):
        write(path, content)
        refused(holder, settings, words)
    write(path, first.pem())
    assert holder.reload()


def test_stores_that_have_not_changed_refuse_nothing_when_they_have_expired(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = pki.authority.issue(SUBJECT, names=NAMES).settings(tmp_path)
    holder = ReloadableContext(settings)
    monkeypatch.setattr(Certificate, "days_left", lambda self, now=None: -1.0)
    holder.check(settings)
    assert not holder.reload(settings)


def test_another_name_in_the_certificate_has_to_be_allowed(pki: Pki, tmp_path: Path) -> None:
    holder = ReloadableContext(pki.authority.issue(SUBJECT, names=NAMES).settings(tmp_path))
    other = pki.authority.issue("CN=other,O=Acme", names=NAMES).settings(tmp_path, name="other")
    fewer = pki.authority.issue("CN=Broker,O=ACME", names=NAMES[:1]).settings(tmp_path, name="fewer")
    refused(holder, other, "CN=other,O=Acme.*ssl.allow.dn.changes")
    refused(holder, fewer, r"IP 127\.0\.0\.1.*ssl.allow.san.changes")
    more = pki.authority.issue("CN=Broker,O=ACME", names=[*NAMES, "broker"]).settings(tmp_path, name="more")
    assert holder.reload(more)
    assert holder.reload(other | {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"})


def test_stores_are_neither_added_nor_removed(pki: Pki, tmp_path: Path) -> None:
    settings = pki.server.settings(tmp_path)
    refused(ReloadableContext(settings), settings | trust_settings(tmp_path, [pki.authority]), "cannot be added")
    trusted = trust_settings(tmp_path, [pki.authority])
    refused(ReloadableContext(trusted, client_context_of), settings | trusted, "cannot be added")
    refused(ReloadableContext(settings | trusted, client_context_of), trusted, "cannot be removed")


class TestBetweenBrokers:
    def settings(self, path: Path, server: Issued, trusted: list[Issued]) -> dict[str, str]:
        return server.settings(path, trusted=trusted) | {"ssl.client.auth": "required"}

    def test_a_broker_must_trust_itself(self, pki: Pki, tmp_path: Path) -> None:
        ReloadableContext(self.settings(tmp_path / "good", pki.server, [pki.authority]), between_brokers=True)
        wrong = self.settings(tmp_path / "bad", pki.server, [pki.stranger])
        with pytest.raises(StoreError, match=r"brokers could not connect .*ssl\.truststore\.location must trust"):
            ReloadableContext(wrong, between_brokers=True)
        ReloadableContext(wrong)  # for clients it may be meant so

    def test_an_authority_is_replaced_in_steps(self, pki: Pki, tmp_path: Path) -> None:
        """First both authorities are trusted, then the key is changed, then the old authority is removed."""
        new = Authority.root("New CA")
        replaced = new.issue(SUBJECT, names=NAMES)
        old = pki.authority.issue(SUBJECT, names=NAMES)
        holder = ReloadableContext(self.settings(tmp_path / "0", old, [pki.authority]), between_brokers=True)
        at_once = self.settings(tmp_path / "1", replaced, [new])
        refused(holder, at_once, "while it changes")
        assert holder.reload(self.settings(tmp_path / "2", old, [pki.authority, new]))
        assert holder.reload(self.settings(tmp_path / "3", replaced, [pki.authority, new]))
        client = holder.client
        assert holder.reload(at_once)
        assert holder.client is not None
        assert holder.client is not client
        handshake(holder.context, holder.client, "localhost")

    def test_an_expired_certificate_can_be_replaced(
        self, pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        soon = pki.authority.issue(SUBJECT, names=NAMES, until=timedelta(seconds=1))
        settings = self.settings(tmp_path / "0", soon, [pki.authority])
        holder = ReloadableContext(settings, between_brokers=True)
        keys = holder._state.stores.keys
        assert keys is not None
        monkeypatch.setitem(keys.chain[0].__dict__, "not_after", keys.chain[0].not_before)
        renewed = self.settings(tmp_path / "1", pki.authority.issue(SUBJECT, names=NAMES), [pki.authority])
        assert holder.reload(renewed)


def test_the_days_until_expiry_are_those_of_the_certificate_in_the_chain_that_expires_first(tmp_path: Path) -> None:
    root = Authority.root()
    middle = root.intermediate()  # for a year
    server = middle.issue(SUBJECT, names=NAMES, until=timedelta(days=900))
    holder = ReloadableContext(server.settings(tmp_path))
    assert holder.days_left() == pytest.approx(365, abs=0.1)
    assert ReloadableContext({}, client_context_of).days_left() is None


def test_a_removed_authority_is_not_trusted_any_more(pki: Pki, tmp_path: Path) -> None:
    other = Authority.root("Other CA")
    settings = pki.server.settings(tmp_path, trusted=[pki.authority, other]) | {"ssl.client.auth": "required"}
    holder = ReloadableContext(settings)
    client = client_context(other.issue("CN=bob").settings(tmp_path / "bob", trusted=[pki.authority]))
    handshake(holder.context, client, "localhost")
    write(settings["ssl.truststore.location"], pem(pki.authority.certificate))
    assert holder.reload()
    with pytest.raises(TrialError, match="the server refuses the client"):
        handshake(holder.context, client, "localhost")
