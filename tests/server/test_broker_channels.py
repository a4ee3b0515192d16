"""The controller's requests to brokers that do not respond to them or refuse them."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.controller.requests import MetadataRequest, RolesRequest, StopRequest
from kafkapy.errors import Errors
from kafkapy.metadata.cache import LiveBroker
from kafkapy.metadata.roles import PartitionRole, StopPartition
from kafkapy.protocol.apis import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Api
from kafkapy.replica.links import LinkError
from kafkapy.server.broker_channels import BrokerChannels
from kafkapy.server.config.broker_config import BrokerConfig

ME, SILENT, OTHER = 0, 1, 2
HOUR_S = 3600
TOPIC_ID = bytes(range(16))
ROLE = PartitionRole("t", 0, TOPIC_ID, SILENT, 3, 4, (SILENT,), (SILENT, OTHER))
REQUESTS = (
    RolesRequest(7, 11, [ROLE], []),
    MetadataRequest(7, 11, [], [ROLE]),
    StopRequest(7, 11, [StopPartition("t", 0, 3, delete=False)]),
)


class Link:
    """A link to a broker; the test gives the responses."""

    def __init__(self) -> None:
        self.asked: list[tuple[Api, Any]] = []
        self.pending: Any = None

    def ask(self, api: Api, encode: Any, done: Any, *, timeout_s: float, versions: tuple[int, int]) -> None:
        assert self.pending is None, "one request at a time"
        self.asked.append((api, encode(versions[1])))
        self.pending = done
        self.timeout_s = timeout_s

    def end(self, response: Any, error: LinkError | None = None) -> None:
        done, self.pending = self.pending, None
        done(response, error)

    def close(self) -> None:
        pass


class Lab:
    """Channels to brokers 1 and 2, and a clock that moves when the test says so."""

    def __init__(self) -> None:
        self.links = {SILENT: Link(), OTHER: Link()}
        self.now = 0.0
        self._due: list[tuple[float, Any]] = []
        peers = SimpleNamespace(make=lambda broker_id, name, address: self.links[broker_id])
        services: Any = SimpleNamespace(broker_id=ME, config=BrokerConfig({"log.dirs": "unused"}), peers=peers)
        timer: Any = SimpleNamespace(schedule=lambda delay_s, work: self._due.append((self.now + delay_s, work)))
        self.channels = BrokerChannels(services, timer)
        self.answered: list[tuple[int, Any, dict[tuple[str, int], int]]] = []

    def send(self, broker_id: int) -> None:
        def noting(request: Any) -> Any:
            return lambda failures: self.answered.append(
                (broker_id, type(request), {key: error.code for key, error in failures.items()})
            )

        self.channels.send(LiveBroker(broker_id, {}), [(request, noting(request)) for request in REQUESTS])

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [work for at, work in self._due if at <= self.now]
        self._due = [one for one in self._due if one[0] > self.now]
        for work in due:
            work()


def responses() -> list[Any]:
    return [
        LEADER_AND_ISR.Response(error_code=0, topics=[]),
        UPDATE_METADATA.Response(error_code=0),
        STOP_REPLICA.Response(error_code=0, partition_errors=[]),
    ]


def test_a_broker_that_does_not_respond_for_an_hour_gets_everything_afterwards(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = Lab()
    lab.send(SILENT)
    lab.send(SILENT)
    silent, other = lab.links[SILENT], lab.links[OTHER]
    while lab.now < HOUR_S:
        lab.advance(silent.timeout_s)
        silent.end(None, LinkError("broker 1 has not responded for 30 s"))
        lab.advance(0.1)
    assert {api for api, _ in silent.asked} == {LEADER_AND_ISR}  # only the first request, again and again
    assert len(silent.asked) > 100
    assert caplog.text.count("requests cannot be sent to broker 1:") == 1
    lab.send(OTHER)  # requests to other brokers do not wait
    for response in responses():
        other.end(response)
    assert [one[0] for one in lab.answered] == [OTHER] * 3
    before = len(silent.asked) - 1
    for response in (*responses(), *responses()):
        silent.end(response)
    assert [api for api, _ in silent.asked[before:]] == [LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA] * 2
    assert [one[:2] for one in lab.answered[3:]] == [(SILENT, type(request)) for request in REQUESTS * 2]


def test_requests_that_a_broker_refuses_fail_for_all_their_partitions_and_are_not_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab = Lab()
    lab.send(OTHER)
    link = lab.links[OTHER]
    stale, unknown = Errors.STALE_CONTROLLER_EPOCH, Errors.UNKNOWN_SERVER_ERROR
    link.end(LEADER_AND_ISR.Response(error_code=stale, topics=[]))
    link.end(UPDATE_METADATA.Response(error_code=unknown))
    link.end(STOP_REPLICA.Response(error_code=stale, partition_errors=[]))
    assert link.pending is None
    assert lab.answered == [
        (OTHER, RolesRequest, {("t", 0): stale}),
        (OTHER, MetadataRequest, {}),
        (OTHER, StopRequest, {("t", 0): stale}),
    ]
    assert "broker 2 refuses a RolesRequest of controller epoch 7: STALE_CONTROLLER_EPOCH" in caplog.text
    assert "broker 2 refuses a MetadataRequest of controller epoch 7: UNKNOWN_SERVER_ERROR" in caplog.text
    lab.send(OTHER)
    assert [api for api, _ in link.asked[3:]] == [LEADER_AND_ISR]
