"""A leader for tests of followers: a small server that answers Fetch and ListOffsets, from logs or by a script."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kafkapy.errors import Errors
from kafkapy.log.partition_log import PartitionLog
from kafkapy.protocol.apis import API_VERSIONS, APIS, FETCH, LIST_OFFSETS, Api
from kafkapy.protocol.headers import read_request_header, response_frame
from kafkapy.replica.truncation import EpochEnd, divergence
from tests.harness.frame_server import FrameServer

# Returns the response to a request: a message, the bytes of a frame with its size, or None to close the connection.
Answer = Callable[[Api, int, Any], Any]


class StandInLeader:
    """Accepts connections on `address` and answers their requests by `answer`, each connection on a thread.

    `requests` has all requests but ApiVersions, in order: (api, version, message).
    """

    def __init__(self, answer: Answer, *, fetch_versions: tuple[int, int] = (0, 17)) -> None:
        self.answer = answer
        self.fetch_versions = fetch_versions
        self.requests: list[tuple[Api, int, Any]] = []
        self.news = threading.Condition()
        self._server = FrameServer(self._respond)
        self.address = self._server.address

    @property
    def fetches(self) -> list[Any]:
        """Return the Fetch requests so far."""
        return [message for api, _, message in list(self.requests) if api is FETCH]

    def wait(self, condition: Callable[[], object], seconds: float = 30.0) -> None:
        """Wait until the condition is true. It is checked after each request."""
        with self.news:
            assert self.news.wait_for(condition, seconds), self.requests[-5:]

    def drop_connections(self) -> None:
        """Close all connections, like a broker that dies."""
        self._server.drop_connections()

    def close(self) -> None:
        self._server.close()

    def _respond(self, frame: bytes) -> bytes | None:
        header, start = read_request_header(frame)
        api, version = APIS[header.api_key], header.api_version
        if api is API_VERSIONS:
            keys = [
                API_VERSIONS.Response.ApiKeys(api_key=one.key, min_version=low, max_version=high)
                for one, (low, high) in ((FETCH, self.fetch_versions), (LIST_OFFSETS, (0, 9)))
            ]
            response: Any = API_VERSIONS.Response(api_keys=keys)
        else:
            request = api.decode_request(frame, version, start)
            with self.news:
                self.requests.append((api, version, request))
                self.news.notify_all()
            response = self.answer(api, version, request)
        if response is None or isinstance(response, bytes):
            return response
        return response_frame(api, version, header.correlation_id, response)


class LeaderOfLogs:
    """Answers as the leader of logs, with fetch sessions: the `answer` of a StandInLeader.

    `leader_epochs` has the epoch in which each partition is led; `ids` the topic ids. High watermarks are those of the
    logs. Written for reading beside KIP-227 and KIP-595, not for speed.
    """

    def __init__(self) -> None:
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.leader_epochs: dict[tuple[str, int], int] = {}
        self.ids: dict[str, bytes] = {}
        self.changed = threading.Condition()
        self.closed = False
        self.sessions: dict[int, dict[tuple[str, int], Any]] = {}  # session id -> what was asked for last
        self._shown: dict[int, dict[tuple[str, int], tuple[int, int]]] = {}  # session id -> (high watermark, log start)
        self._epochs: dict[int, int] = {}
        self.forget_sessions = False

    def add(self, log: PartitionLog, leader_epoch: int, topic_id: bytes = bytes(16)) -> None:
        key = (log.topic, log.partition)
        self.ids[log.topic] = topic_id
        self.logs[key], self.leader_epochs[key] = log, leader_epoch

    def notify(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def __call__(self, api: Api, version: int, request: Any) -> Any:
        if api is LIST_OFFSETS:
            return self._list_offsets(request)
        return self._fetch(version, request)

    def _key(self, version: int, topic: Any, index: int) -> tuple[str, int]:
        if version < 13:
            return topic.topic, index
        names = [name for name, topic_id in self.ids.items() if topic_id == topic.topic_id]
        return (names[0] if names else "?"), index

    def _fetch(self, version: int, request: Any) -> Any:
        session_id, epoch = request.session_id, request.session_epoch
        asked = {self._key(version, topic, one.partition): one for topic in request.topics for one in topic.partitions}
        if epoch == 0:
            self.sessions.pop(session_id, None)
            session_id = 0 if self.forget_sessions else max(self.sessions, default=0) + 1
            session = dict(asked)
            if session_id:
                self.sessions[session_id], self._shown[session_id], self._epochs[session_id] = session, {}, 1
        elif session_id not in self.sessions:
            return FETCH.Response(error_code=Errors.FETCH_SESSION_ID_NOT_FOUND)
        elif self._epochs[session_id] != epoch:
            return FETCH.Response(error_code=Errors.INVALID_FETCH_SESSION_EPOCH)
        else:
            session = self.sessions[session_id]
            session.update(asked)
            self._epochs[session_id] += 1
            for topic in request.forgotten_topics_data:
                for index in topic.partitions:
                    del session[self._key(version, topic, index)]
        found: dict[tuple[str, int], Any] = {}

        def look() -> bool:
            nonlocal found
            found = {key: self.partition(key, one) for key, one in list(session.items())}
            if epoch:
                shown = self._shown[session_id]
                found = {
                    key: one
                    for key, one in found.items()
                    if one.error_code or one.records or one.diverging_epoch.epoch >= 0
                    or shown.get(key) != (one.high_watermark, one.log_start_offset)
                }  # fmt: skip
            return (
                self.closed
                or any(one.error_code or one.records or one.diverging_epoch.epoch >= 0 for one in found.values())
                or not session
            )

        with self.changed:
            self.changed.wait_for(look, request.max_wait_ms / 1000)
        topics: dict[str, list[Any]] = {}
        for key, one in found.items():
            topics.setdefault(key[0], []).append(one)
            if session_id:
                self._shown[session_id][key] = (one.high_watermark, one.log_start_offset)
        return FETCH.Response(
            session_id=session_id,
            responses=[
                FETCH.Response.Responses(topic=name, topic_id=self.ids.get(name, bytes(16)), partitions=parts)
                for name, parts in topics.items()
            ],
        )

    def partition(self, key: tuple[str, int], asked: Any) -> Any:
        """Return the response for one partition. Tests replace this method for other responses."""
        answer = FETCH.Response.Responses.Partitions(partition_index=key[1], high_watermark=-1)
        log = self.logs.get(key)
        if log is None:
            answer.error_code = Errors.UNKNOWN_TOPIC_OR_PARTITION
            return answer
        own = self.leader_epochs[key]
        if asked.current_leader_epoch != own:
            fenced = asked.current_leader_epoch < own
            answer.error_code = Errors.FENCED_LEADER_EPOCH if fenced else Errors.UNKNOWN_LEADER_EPOCH
            return answer
        if not log.log_start_offset <= asked.fetch_offset:
            answer.error_code = Errors.OFFSET_OUT_OF_RANGE
            return answer
        if asked.last_fetched_epoch >= 0:
            end = EpochEnd(*log.end_offset_for_epoch(asked.last_fetched_epoch))
            if end.end_offset < 0:
                answer.error_code = Errors.OFFSET_OUT_OF_RANGE
                return answer
            if divergence(end, asked.last_fetched_epoch, asked.fetch_offset) is not None:
                answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset = end
        answer.high_watermark, answer.log_start_offset = log.high_watermark, log.log_start_offset
        if answer.diverging_epoch.epoch < 0:
            if asked.fetch_offset > log.log_end_offset:
                answer.error_code = Errors.OFFSET_OUT_OF_RANGE
                return answer
            read = log.read(asked.fetch_offset, asked.partition_max_bytes, min_one=True, max_offset=log.log_end_offset)
            answer.records = read.region.read() if read.region is not None else b""  # type: ignore[union-attr]
        else:
            answer.records = b""
        return answer

    def _list_offsets(self, request: Any) -> Any:
        make = LIST_OFFSETS.Response.Topics
        topics = []
        for topic in request.topics:
            parts = []
            for one in topic.partitions:
                log = self.logs[topic.name, one.partition_index]
                offset = log.log_start_offset if one.timestamp == -2 else log.log_end_offset
                parts.append(make.Partitions(partition_index=one.partition_index, offset=offset))
            topics.append(make(name=topic.name, partitions=parts))
        return LIST_OFFSETS.Response(topics=topics)
