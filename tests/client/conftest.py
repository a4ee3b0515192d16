"""A fake broker whose responses the test chooses: real sockets and frames, no log and no state of its own."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkapy.client import cluster as cluster_module
from kafkapy.client.fetching import consumer as consumer_module
from kafkapy.client.fetching import fetcher as fetcher_module
from kafkapy.client.producing import outbox as outbox_module
from kafkapy.client.producing import record_producer as producer_module
from kafkapy.errors import Errors
from kafkapy.protocol import apis
from kafkapy.protocol.headers import read_request_header, response_frame
from tests.harness.frame_server import FrameServer

HANG_UP = object()
SILENCE = object()

Answer = Callable[[Any], Any]


class FakeBroker:
    """A broker on 127.0.0.1 with scripted responses.

    `topics` maps names to the leader's id of each partition; `nodes` holds the brokers of the cluster by id (this
    one is 1), of which `controller` is one. `answers[api key]` returns the response to a request, or HANG_UP, SILENCE
    or bytes that are sent unchanged. `seen` has every request as (api name, version, message), records copied.
    """

    def __init__(self) -> None:
        self.versions: dict[int, tuple[int, int]] = {
            api.key: (api.min_version, api.max_version) for api in apis.APIS.values()
        }
        self.answers: dict[int, Answer] = {
            apis.API_VERSIONS.key: self._api_versions,
            apis.METADATA.key: self._metadata,
            apis.INIT_PRODUCER_ID.key: lambda _: apis.INIT_PRODUCER_ID.Response(producer_id=7, producer_epoch=0),
        }
        self.topics: dict[str, list[int]] = {}
        self.seen: list[tuple[str, int, Any]] = []
        self._server = FrameServer(self._respond)
        self.port = self._server.port
        self.address = f"127.0.0.1:{self.port}"
        self.nodes: dict[int, int] = {1: self.port}
        self.controller = 1

    def requests(self, name: str) -> list[Any]:
        """Return the received messages of one API, oldest first."""
        return [message for api, _, message in self.seen if api == name]

    def drop_connections(self) -> None:
        """Close all connections, as a broker does that finds them idle."""
        self._server.drop_connections()

    def close(self) -> None:
        self._server.close()

    def _respond(self, frame: bytes) -> bytes | None:
        header, at = read_request_header(frame)
        api = apis.APIS[header.api_key]
        request = api.decode_request(frame, header.api_version, at)
        self.seen.append((api.name, header.api_version, request))
        answer = self.answers[header.api_key](request)
        if answer is HANG_UP:
            return None
        if answer is SILENCE:
            return b""
        if isinstance(answer, bytes):
            return answer
        return response_frame(api, header.api_version, header.correlation_id, answer)

    def _api_versions(self, _: Any) -> Any:
        shape = apis.API_VERSIONS.Response
        return shape(
            api_keys=[
                shape.ApiKeys(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in self.versions.items()
            ]
        )

    def _metadata(self, request: Any) -> Any:
        shape = apis.METADATA.Response
        names = list(self.topics) if request.topics is None else [topic.name for topic in request.topics]
        return shape(
            brokers=[shape.Brokers(node_id=node, host="127.0.0.1", port=port) for node, port in self.nodes.items()],
            cluster_id="fake",
            controller_id=self.controller,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> Any:
        shape = apis.METADATA.Response.Topics
        if name not in self.topics:
            return shape(name=name, error_code=Errors.UNKNOWN_TOPIC_OR_PARTITION)
        return shape(
            name=name,
            partitions=[
                shape.Partitions(
                    partition_index=index,
                    leader_id=leader,
                    error_code=Errors.NONE if leader >= 0 else Errors.LEADER_NOT_AVAILABLE,
                )
                for index, leader in enumerate(self.topics[name])
            ],
        )


@pytest.fixture
def fake_broker() -> Iterator[FakeBroker]:
    broker = FakeBroker()
    yield broker
    broker.close()


@pytest.fixture
def second_broker(fake_broker: FakeBroker) -> Iterator[FakeBroker]:
    """Start another broker of the same cluster, with the id 2. Both return the same metadata."""
    broker = FakeBroker()
    fake_broker.nodes[2] = broker.port
    broker.nodes = fake_broker.nodes
    broker.topics = fake_broker.topics
    yield broker
    broker.close()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all retries happen at once."""
    for module in (cluster_module, producer_module, outbox_module, consumer_module, fetcher_module):
        monkeypatch.setattr(module, "BACKOFF_S", 0.0)


@pytest.fixture
def hang_up() -> object:
    """Return the value with which an answer closes the connection."""
    return HANG_UP


@pytest.fixture
def silence() -> object:
    """Return the value with which an answer sends nothing."""
    return SILENCE
