"""Large requests of the controller are encoded before a network thread sends them, once for all brokers."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.controller.requests import MetadataRequest, RolesRequest
from kafkapy.metadata.cache import LiveBroker
from kafkapy.metadata.roles import PartitionRole
from kafkapy.protocol.apis import LEADER_AND_ISR, UPDATE_METADATA, Api
from kafkapy.replica.links import Encoded
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.request_encoding import RequestEncoding

BROKERS = [LiveBroker(one, {"PLAINTEXT": ("localhost", 9092 + one)}) for one in (1, 2)]


@pytest.fixture
def encoding() -> RequestEncoding:
    config = BrokerConfig({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:SSL"})
    services: Any = SimpleNamespace(broker_id=0, config=config)
    return RequestEncoding(services)


def roles(count: int) -> list[PartitionRole]:
    return [PartitionRole("t", index, bytes(16), 1, 3, 4, (1, 2), (1, 2)) for index in range(count)]


def test_an_update_is_encoded_once_for_all_brokers_with_the_epoch_of_each(
    encoding: RequestEncoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = roles(1000)
    calls: list[int] = []
    encode = Api.encode_request

    def noted(api: Api, message: Any, version: int) -> bytes:
        calls.append(sum(len(topic.partition_states) for topic in message.topic_states))
        return encode(api, message, version)

    monkeypatch.setattr(Api, "encode_request", noted)
    for broker_epoch in (1, 2**40, -1):
        message = encoding.of(MetadataRequest(7, broker_epoch, BROKERS, partitions))
        encoded = message(8)
        assert isinstance(encoded, Encoded)
        request = UPDATE_METADATA.decode_request(b"".join(encoded.pieces), 8)
        assert (request.controller_epoch, request.broker_epoch) == (7, broker_epoch)
        assert len(request.topic_states[0].partition_states) == 1000
        assert message(7).broker_epoch == broker_epoch, "an older broker gets a message, which is encoded for it"
    assert calls.count(1000) == 1
    later = encoding.of(MetadataRequest(8, 1, BROKERS, partitions))(8)
    assert UPDATE_METADATA.decode_request(b"".join(later.pieces), 8).controller_epoch == 8


def test_large_roles_are_encoded_and_small_requests_are_not(encoding: RequestEncoding) -> None:
    large = encoding.of(RolesRequest(7, 11, roles(1000), BROKERS))(7)
    request = LEADER_AND_ISR.decode_request(b"".join(large.pieces), 7)
    assert [one.partition_index for one in request.topic_states[0].partition_states] == list(range(1000))
    for small in (RolesRequest(7, 11, roles(1), BROKERS), MetadataRequest(7, 11, BROKERS, roles(1))):
        assert not isinstance(encoding.of(small)(7), Encoded)


def test_the_endpoints_of_an_update_have_the_protocols_of_their_listeners(encoding: RequestEncoding) -> None:
    broker = LiveBroker(1, {"PLAINTEXT": ("inside", 9092), "EXTERNAL": ("outside", 9093)})
    message = encoding.of(MetadataRequest(7, 1, [broker], roles(1)))(7)
    endpoints = [(one.listener, one.security_protocol) for one in message.live_brokers[0].endpoints]
    assert endpoints == [("PLAINTEXT", 0), ("EXTERNAL", 1)]
