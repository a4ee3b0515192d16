"""docs/metrics.md compared with the pages that brokers and mirrors serve."""

import socket
import ssl
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from kafkapy.metadata.quotas import Entity
from kafkapy.metadata.tree import wait
from kafkapy.mirror.counts import Counts
from kafkapy.mirror.metrics import metrics_page
from kafkapy.protocol.apis import API_VERSIONS, FETCH
from kafkapy.security.sasl.jaas import PLAIN_MODULE
from kafkapy.tools.metrics_docs import BROKER_TABLES, MIRROR_TABLE, page
from tests.harness.certificates import Pki, pem
from tests.harness.wire import Wire
from tests.harness.zookeeper import eventually
from tests.server.kafka07 import bench as bench_07
from tests.server.kafka07.bench import Raw
from tests.server.requests import batch, fetch_request, make_topic, metrics_address, produce, start_broker
from tests.server.test_sasl_logins import log_in

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
BROKER = {name: metric for table in BROKER_TABLES.values() for name, metric in table.items()}
FROM_PROMETHEUS = {"le"}  # the label of a histogram's buckets


def test_the_committed_page_matches_the_tables():
    assert DOCS.read_text() == page(), "run: python -m kafkapy.tools.metrics_docs > docs/metrics.md"


def test_no_metric_is_in_two_tables():
    tables = [*BROKER_TABLES.values(), MIRROR_TABLE]
    assert sum(map(len, tables)) == len(BROKER | MIRROR_TABLE)


def test_a_broker_serves_the_metrics_of_its_tables_and_no_others(tmp_path):
    pki = Pki()
    stores = {name.replace(".", "_"): value for name, value in pki.server.settings(tmp_path / "stores").items()}
    kafka_07 = tmp_path / "server-07.properties"
    kafka_07.write_text(f"brokerid=0\nport=0\nlog.dir={tmp_path / 'native'}\nenable.zookeeper=false\n")
    server = start_broker(
        tmp_path / "data",
        listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,CLIENT://127.0.0.1:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SSL:SSL,CLIENT:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN",
        connections_max_reauth_ms="1",
        kafkapy_metrics_listen="127.0.0.1:0",
        kafkapy_kafka07_properties=kafka_07,
        **{"listener.name.client.plain.sasl.jaas.config": f"{PLAIN_MODULE} required user_alice=secret;"},
        **stores,
    )
    try:
        server.services.connection_rates.set_address_limits(1000, {})
        server.services.meters.slow.longest_s = 0.0
        plain, secured, with_login = server.bootstrap_servers.split(",")
        end_sessions(with_login)
        for sent in (b"", b"no TLS", None):
            connect(secured, pki, sent)
        wire = Wire(plain)
        make_topic(wire, "t")
        produce(wire, "t", batch(b"value"))
        produce(wire, "unknown", batch(b"value"))
        wire.call(FETCH, 12, fetch_request("t"))
        limits = {"producer_byte_rate": 1.0, "consumer_byte_rate": 1e9, "request_percentage": 1e9}
        wait(
            server.services.quota_registry.alter, Entity(user="ANONYMOUS"), {**limits, "controller_mutation_rate": 1e9}
        )
        produce(wire, "t", batch(b"value"))  # this request is throttled
        wire.close()
        with Raw(server._network._sockets[-1][1].getsockname()[1]) as client_07:
            client_07.send(bench_07.produce(bench_07.messages(b"x")))
            client_07.offsets()
        shown = scrape(metrics_address(server))
    finally:
        server.stop()
    assert shown == defined(BROKER)


def end_sessions(address):
    """Extend a session, fail to extend another one, and let a third one expire."""
    for then in (lambda one: log_in(one), lambda one: log_in(one, "PLAIN", 2, "alice", "wrong"), lambda one: None):
        with Wire(address) as wire:
            assert not log_in(wire).error_code
            then(wire)
            eventually(lambda wire=wire: is_over(wire))


def is_over(wire):
    try:
        wire.call(API_VERSIONS, 0)
    except (AssertionError, OSError):
        return True
    return False


def connect(address, pki, sent):
    """Connect to a TLS listener and send some bytes, or do the handshake if `sent` is None. Return when the broker has
    closed the connection, or has finished the handshake."""
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port))) as plain:
        if sent is None:
            context = ssl.create_default_context(cadata=pem(pki.authority.certificate))
            with context.wrap_socket(plain, server_hostname=host) as tls:
                tls.sendall(b"\xff\xff\xff\xff")  # not a frame
                assert tls.recv(1) == b""
        else:
            plain.sendall(sent)
            plain.shutdown(socket.SHUT_WR)
            assert plain.recv(1) == b""


def test_a_mirror_serves_the_metrics_of_its_table_and_no_others():
    counts = Counts(records=1)
    counts.lags = {("t", 0): 7}
    served = metrics_page(("127.0.0.1", 0), lambda: [("a.properties", counts)])
    try:
        shown = scrape(served.address)
    finally:
        served.stop()
    assert shown == defined(MIRROR_TABLE)


def defined(table):
    """Return the kind and the label names of each metric of a table, by its name."""
    return {name: (metric.kind, {frozenset(metric.labels)}) for name, metric in table.items()}


def scrape(address):
    """Return the kind and the label names of each metric on a page, by its name in the tables."""
    with urllib.request.urlopen(f"http://{address}/metrics") as answer:
        text = answer.read().decode()
    return {
        family.name.removeprefix("kafkapy_"): (
            family.type,
            {frozenset(sample.labels) - FROM_PROMETHEUS for sample in family.samples},
        )
        for family in text_string_to_metric_families(text)
    }
