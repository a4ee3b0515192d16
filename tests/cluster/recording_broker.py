"""A stand-in for a broker: it registers in ZooKeeper, obeys every controller, records the requests and has no logs.

It answers LeaderAndIsr, UpdateMetadata and StopReplica without errors, except for the partitions in `failed`, which
count as being in an offline log directory. Followers that fetch from it find empty logs.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from kazoo.client import KazooClient

from kafkapy.errors import Errors
from kafkapy.protocol.api_versions import versions_response
from kafkapy.protocol.apis import API_VERSIONS, APIS, FETCH, LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Api
from kafkapy.protocol.headers import read_request_header, response_frame
from tests.harness.frame_server import FrameServer

_CONTROL = (LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA)
_SERVED = {
    FETCH.key: (12, 17),
    LEADER_AND_ISR.key: (0, 7),
    STOP_REPLICA.key: (0, 4),
    UPDATE_METADATA.key: (0, 8),
    API_VERSIONS.key: (0, 4),
}
_FETCH_S = 0.5  # how long a fetch waits for records that never come


class RecordingBroker:
    """A broker that records requests. `start` registers the broker, `stop` removes its node and closes connections."""

    def __init__(self, tree: KazooClient, broker_id: int) -> None:
        self.broker_id = broker_id
        self.epoch = -1  # the broker epoch, while the broker is registered
        self.failed: set[tuple[str, int]] = set()
        self._taken: list[tuple[Api, Any]] = []  # requests since the last `take`, in order
        self.count = 0  # number of requests so far, with those that were refused
        self._tree = tree
        self._lock = threading.Lock()
        self._answers = threading.Event()  # cleared while the broker does not answer
        self._answers.set()
        self._ended = threading.Event()
        self._server = FrameServer(self._respond)
        self.port = self._server.port

    @property
    def path(self) -> str:
        return f"/brokers/ids/{self.broker_id}"

    def _registration(self, rack: str = "") -> bytes:
        """Return the content of the broker's node in `/brokers/ids`."""
        value = {
            "features": {},
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "endpoints": [f"PLAINTEXT://127.0.0.1:{self.port}"],
            "jmx_port": -1,
            "host": "127.0.0.1",
            "port": self.port,
            "version": 5,
            "timestamp": "0",
            **({"rack": rack} if rack else {}),
        }
        return json.dumps(value).encode()

    def start(self, rack: str = "") -> None:
        """Register the broker."""
        with self._lock:  # hold back requests that come before the epoch is known
            self._tree.create(self.path, self._registration(rack), ephemeral=True)
            self.epoch = self._tree.exists(self.path).czxid

    def bounce(self) -> None:
        """Register the broker again before the other brokers notice that it was gone."""
        with self._lock:
            change = self._tree.transaction()
            change.delete(self.path)
            change.create(self.path, self._registration(), ephemeral=True)
            results = change.commit()
            assert not any(isinstance(one, Exception) for one in results), results
            self.epoch = self._tree.exists(self.path).czxid

    def stop(self) -> None:
        """Remove the registration, as a session expiry does, and drop all connections."""
        self._tree.delete(self.path)
        self.epoch = -1
        self._server.drop_connections()

    def hold(self) -> None:
        """Answer nothing until `release`."""
        self._answers.clear()

    def release(self) -> None:
        self._answers.set()

    def take(self) -> list[tuple[Api, Any]]:
        """Return the requests of controllers that this broker has obeyed since the last call, in order."""
        with self._lock:
            taken, self._taken = self._taken, []
        return taken

    def close(self) -> None:
        self._ended.set()
        self._answers.set()
        self._server.close()

    def _respond(self, frame: bytes) -> bytes:
        header, start = read_request_header(frame)
        api, version = APIS[header.api_key], header.api_version
        if api is API_VERSIONS:
            response = versions_response(_SERVED)
        else:
            response = self._answer(api, api.decode_request(frame, version, start))
        return response_frame(api, version, header.correlation_id, response)

    def _answer(self, api: Api, request: Any) -> Any:
        if api is FETCH:
            self._ended.wait(_FETCH_S)
            return _no_records(request)
        assert api in _CONTROL, f"{api.name} is not for this broker"
        self._answers.wait()
        with self._lock:
            self.count += 1
            if request.broker_epoch < self.epoch or self.epoch < 0:
                return api.Response(error_code=Errors.STALE_BROKER_EPOCH)
            self._taken.append((api, request))
            return self._obey(api, request)

    def _obey(self, api: Api, request: Any) -> Any:
        if api is UPDATE_METADATA:
            return api.Response()
        if api is LEADER_AND_ISR:
            topics = []
            for topic in request.topic_states:
                errors = [
                    api.Response.Topics.PartitionErrors(
                        partition_index=one.partition_index,
                        error_code=self._error(topic.topic_name, one.partition_index),
                    )
                    for one in topic.partition_states
                ]
                topics.append(api.Response.Topics(topic_id=topic.topic_id, partition_errors=errors))
            return api.Response(topics=topics)
        return api.Response(
            partition_errors=[
                api.Response.PartitionErrors(
                    topic_name=topic.topic_name,
                    partition_index=one.partition_index,
                    error_code=self._error(topic.topic_name, one.partition_index),
                )
                for topic in request.topic_states
                for one in topic.partition_states
            ]
        )

    def _error(self, topic: str, partition: int) -> int:
        return Errors.KAFKA_STORAGE_ERROR if (topic, partition) in self.failed else Errors.NONE


def _no_records(request: Any) -> Any:
    make = FETCH.Response.Responses
    return FETCH.Response(
        responses=[
            make(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    make.Partitions(
                        partition_index=one.partition,
                        high_watermark=0,
                        last_stable_offset=0,
                        log_start_offset=0,
                        records=b"",
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
