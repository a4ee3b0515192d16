"""Connections: versions, correlation, time limits, and errors that name the broker."""

import socket
import struct

import pytest

from kafkapy.client.addresses import parse_addresses
from kafkapy.client.connection import Connection
from kafkapy.client.errors import BrokerTimedOut, ConnectionFailed, UnsupportedByBroker
from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.protocol.headers import response_frame


def connect(broker, **more):
    return Connection("127.0.0.1", broker.port, **more)


def test_the_newest_version_that_both_sides_know_is_used(fake_broker):
    fake_broker.versions[apis.METADATA.key] = (0, 7)
    connect(fake_broker).call(apis.METADATA, apis.METADATA.Request(topics=[]))
    assert fake_broker.seen[-1][:2] == ("Metadata", 7)


def test_a_broker_that_does_not_know_our_api_versions_request_is_asked_in_the_oldest_form(fake_broker):
    ask = fake_broker.answers[apis.API_VERSIONS.key]

    def old_broker(request):
        if len(fake_broker.seen) > 1:
            return ask(request)
        refusal = apis.API_VERSIONS.Response(error_code=Errors.UNSUPPORTED_VERSION)
        return response_frame(apis.API_VERSIONS, 0, 1, refusal)  # encoded as version 0, for a request of any version

    fake_broker.answers[apis.API_VERSIONS.key] = old_broker
    connection = connect(fake_broker)
    assert [version for _, version, _ in fake_broker.seen] == [apis.API_VERSIONS.max_version, 0]
    assert connection.version_of(apis.FETCH) == apis.FETCH.max_version


def test_an_api_that_the_broker_does_not_have_is_refused_before_it_is_sent(fake_broker):
    del fake_broker.versions[apis.DESCRIBE_LOG_DIRS.key]
    connection = connect(fake_broker)
    with pytest.raises(UnsupportedByBroker, match=f"127.0.0.1:{fake_broker.port} cannot do DescribeLogDirs.*no such"):
        connection.call(apis.DESCRIBE_LOG_DIRS, apis.DESCRIBE_LOG_DIRS.Request(topics=None))


def test_the_error_for_a_refused_connection_has_address_and_reason():
    with socket.socket() as bound:  # the port is taken, but nothing listens
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with pytest.raises(ConnectionFailed, match=f"No connection to 127.0.0.1:{port}: connection refused"):
            Connection("127.0.0.1", port)


def test_a_server_that_is_no_kafka_broker_is_recognized_by_its_answer(fake_broker):
    fake_broker.answers[apis.API_VERSIONS.key] = lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with pytest.raises(ConnectionFailed, match=r"not a Kafka response: a frame of 1213486160 bytes"):
        connect(fake_broker)


@pytest.mark.parametrize("size", [-1, 0, 3])
def test_a_frame_too_short_for_an_answer_is_refused(fake_broker, size):
    fake_broker.answers[apis.API_VERSIONS.key] = lambda _: struct.pack(">i", size)
    with pytest.raises(ConnectionFailed, match=f"a frame of {size} bytes"):
        connect(fake_broker)


def test_an_answer_with_another_correlation_id_closes_the_connection(fake_broker):
    fake_broker.answers[apis.METADATA.key] = lambda _: response_frame(
        apis.METADATA, apis.METADATA.max_version, 999, apis.METADATA.Response()
    )
    connection = connect(fake_broker)
    with pytest.raises(ConnectionFailed, match="correlation id 999"):
        connection.call(apis.METADATA, apis.METADATA.Request(topics=[]))
    assert connection.closed


def test_a_cut_answer_closes_the_connection(fake_broker):
    whole = response_frame(apis.METADATA, apis.METADATA.max_version, 2, apis.METADATA.Response(cluster_id="abc"))
    cut = struct.pack(">i", len(whole) - 6) + whole[4:-2]
    fake_broker.answers[apis.METADATA.key] = lambda _: cut
    connection = connect(fake_broker)
    with pytest.raises(ConnectionFailed, match="is not a Kafka response"):
        connection.call(apis.METADATA, apis.METADATA.Request(topics=[]))
    assert connection.closed


def test_a_broker_that_hangs_up_is_a_failed_connection(fake_broker, hang_up):
    fake_broker.answers[apis.METADATA.key] = lambda _: hang_up
    connection = connect(fake_broker)
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{fake_broker.port}"):
        connection.call(apis.METADATA, apis.METADATA.Request(topics=[]))
    assert connection.closed


def test_silence_ends_at_the_time_limit(fake_broker, silence):
    fake_broker.answers[apis.METADATA.key] = lambda _: silence
    connection = connect(fake_broker)
    with pytest.raises(BrokerTimedOut, match=r"did not answer Metadata within 0\.05 s"):
        connection.call(apis.METADATA, apis.METADATA.Request(topics=[]), timeout_s=0.05)
    assert connection.closed


class Interrupted(socket.socket):
    """A socket on which Ctrl-C comes when half of a request is sent."""

    def sendall(self, data):
        super().sendall(data[: len(data) // 2])
        raise KeyboardInterrupt


def test_an_interrupted_request_closes_the_connection(fake_broker):
    connection = connect(fake_broker)
    connection._socket = Interrupted(fileno=connection._socket.detach())
    with pytest.raises(KeyboardInterrupt):
        connection.send(apis.METADATA, apis.METADATA.Request(topics=[]))
    assert connection.closed


def test_requests_sent_ahead_are_answered_in_order(fake_broker):
    fake_broker.topics = {"a": [1], "b": [1]}
    connection = connect(fake_broker)
    sent = [
        connection.send(apis.METADATA, apis.METADATA.Request(topics=[apis.METADATA.Request.Topics(name=name)]))
        for name in ("a", "b")
    ]
    got = [connection.receive() for _ in sent]
    assert [waiting for waiting, _ in got] == sent
    assert [response.topics[0].name for _, response in got] == ["a", "b"]


def test_a_broker_that_hangs_up_when_it_is_asked_is_taken_for_kafka_0_8_where_that_is_allowed(fake_broker, hang_up):
    fake_broker.answers[apis.API_VERSIONS.key] = lambda _: hang_up
    connection = connect(fake_broker, old_brokers=True)
    connection.call(apis.METADATA, apis.METADATA.Request(topics=[]))
    assert fake_broker.seen[-1][:2] == ("Metadata", 0)
    assert connection.version_of(apis.PRODUCE) == 0
    with pytest.raises(UnsupportedByBroker):
        connection.version_of(apis.INIT_PRODUCER_ID)
    with pytest.raises(ConnectionFailed, match="closed the connection"):
        connect(fake_broker)


def test_addresses_are_read_with_ipv6_and_several_at_once():
    assert parse_addresses("a:1, [::1]:2,b.example:65535") == [("a", 1), ("::1", 2), ("b.example", 65535)]


@pytest.mark.parametrize("text", ["a", "a:", ":1", "a:x", "a:0", "a:65536", "a:-1", "a:1²"])
def test_text_that_is_no_address_is_named_in_the_error(text):
    with pytest.raises(ValueError, match="is not HOST:PORT") as error:
        parse_addresses(f"ok:1,{text}")
    assert repr(text) in str(error.value)


def test_no_address_at_all_is_an_error():
    with pytest.raises(ValueError, match="no address"):
        parse_addresses(" , ")


@pytest.mark.parametrize(("host", "port"), [("x" * 300, 9092), ("a..b", 9092), ("127.0.0.1", 70000), ("127.0.0.1", -1)])
def test_connecting_to_an_invalid_address_fails(host, port):
    with pytest.raises(ConnectionFailed, match="No connection to "):
        Connection(host, port)
