"""The dispatcher decodes each frame of a turn once, joins requests where the API allows it, and stops at a request
that waits."""

from collections import Counter

import pytest

from kafkapy.protocol import apis
from kafkapy.protocol.headers import read_response_header
from kafkapy.server import dispatcher
from kafkapy.server.api_table import TABLE, Joins
from kafkapy.server.dispatcher import SMALL
from tests.server.lab import Lab, busy, fetch_of, produce_of, receive
from tests.server.lab import send as send_request
from tests.server.test_commit_together import commit_of

COMMIT = (apis.OFFSET_COMMIT, 8, commit_of("group", {("a", 0): 1}))
METADATA = (apis.METADATA, 12, {"topics": []})


def produce(acks=1, topic="a", data=None):
    return apis.PRODUCE, 9, produce_of(topic, data, acks)


@pytest.fixture
def lab(tmp_path):
    new_lab = Lab(tmp_path)
    new_lab.wire.create_topic("a", 1)
    yield new_lab
    new_lab.stop()


@pytest.fixture
def decoded(monkeypatch):
    """Return a counter of the decoded frames, by API."""
    counts = Counter()

    def decode(connection, served, frame, others):
        counts[served.api.name] += 1
        return plain(connection, served, frame, others)

    plain = dispatcher.decode
    monkeypatch.setattr(dispatcher, "decode", decode)
    return counts


@pytest.fixture
def handled(monkeypatch):
    """Return a list that gets the calls of handlers that join requests: (API, number of requests by connection)."""
    seen = []

    def watch(served, plain):
        def handler(broker, lists):
            seen.append((served.api.name, [len(calls) for calls in lists]))
            return plain(broker, lists)

        monkeypatch.setattr(served, "handler", handler)

    for key in TABLE.versions():
        served = TABLE.find(key)
        if served.joins is not None:
            watch(served, served.handler)
    return seen


def send(lab, requests, wire=None):
    """Send the requests so that all of them are handled in one turn."""
    with lab.held():
        for api, version, fields in requests:
            send_request(wire or lab.wire, api, version, **fields)


def answered(lab, requests):
    """Receive the responses in the order of the requests, and decode each to its last byte."""
    for api, version, _ in requests:
        frame = receive(lab.wire)
        _, body = read_response_header(frame, api, version)
        api.decode_response(frame, version, body)


@pytest.mark.parametrize(
    "requests",
    [
        [produce(), produce(), METADATA, produce()],
        [COMMIT, COMMIT, COMMIT],
        [produce(), COMMIT, produce()],
        [METADATA, COMMIT, METADATA, produce(), METADATA],
        [(apis.FETCH, 11, fetch_of("a", wait=1, offset=0)), METADATA, produce()],
    ],
    ids=lambda requests: " ".join(api.name for api, _, _ in requests),
)
@pytest.mark.parametrize("waits", [False, True], ids=["at once", "appends wait"])
def test_a_frame_is_decoded_once_and_the_answers_keep_their_order(lab, monkeypatch, decoded, requests, waits):
    if waits:
        busy(monkeypatch, "append")  # so that each Produce is answered later, in the middle of the turn
    decoded.clear()
    send(lab, requests)
    answered(lab, requests)
    assert decoded == Counter(api.name for api, _, _ in requests)


def test_nothing_behind_a_pending_request_is_handled_before_its_answer(lab, monkeypatch, handled):
    seen = []
    served = TABLE.find(apis.METADATA.key)
    plain = served.handler
    monkeypatch.setattr(served, "handler", lambda *args: (seen.append("metadata"), plain(*args))[1])
    wait = (apis.FETCH, 11, fetch_of("a", offset=1, wait=3_600_000))
    send(lab, [produce(), wait, METADATA, produce()])
    answered(lab, [produce()])
    lab.until_waiting()
    assert seen == []
    assert handled == [("Produce", [1])]
    other = lab.connect()
    send(lab, [produce()], other)  # ends the fetch
    receive(other)
    other.socket.close()
    answered(lab, [wait, METADATA, produce()])
    assert seen == ["metadata"]


def test_only_neighbours_of_one_api_are_joined_and_only_if_its_joins_allows_it(lab, handled):
    requests = [produce(), produce(-1), METADATA, produce(), produce(0), produce(0), produce(), COMMIT, COMMIT]
    send(lab, requests)
    answered(lab, [one for one in requests if one[2].get("acks") != 0])
    assert handled == [
        ("Produce", [2]),
        ("Produce", [1]),
        ("Produce", [2]),
        ("Produce", [1]),
        ("OffsetCommit", [1]),
        ("OffsetCommit", [1]),
    ]
    assert lab.wire.end_offset("a", 0) == 6


def test_joins_is_called_for_calls_of_its_api_and_for_all_calls_of_a_connection(lab, monkeypatch, handled):
    asked = []
    monkeypatch.setattr(
        TABLE.find(apis.PRODUCE.key),
        "joins",
        Joins(
            lambda first, call: asked.append(("same", first.served.api.name, call.served.api.name)) or True,
            lambda calls: asked.append(("others", [call.served.api.name for call in calls])) or True,
        ),
    )
    second = lab.connect()
    second.end_offset("a", 0)
    with lab.held():
        for wire, count in ((lab.wire, 2), (second, 1)):
            for _ in range(count):
                send_request(wire, apis.PRODUCE, 9, **produce_of("a"))
    for wire in (lab.wire, lab.wire, second):
        receive(wire)
    assert sorted(asked) == [("others", ["Produce"]), ("others", ["Produce"] * 2), ("same", "Produce", "Produce")]
    assert [(name, sorted(sizes)) for name, sizes in handled] == [("Produce", [1, 2])]
    second.socket.close()


@pytest.mark.parametrize("extra", ["another API", "large", "alone"])
def test_a_connection_is_not_joined_with_others_if_it_has_something_else_or_much_or_is_alone(lab, handled, extra):
    second = lab.connect()
    second.end_offset("a", 0)
    requests = [produce()]
    if extra == "another API":
        requests.append(METADATA)
    elif extra == "large":
        requests = [produce(topic="a" * (SMALL // 2)), produce(topic="b" * (SMALL // 2))]
    with lab.held():
        for api, version, fields in requests:
            send_request(lab.wire, api, version, **fields)
        if extra != "alone":
            send_request(second, apis.PRODUCE, 9, **produce_of("a"))
    answered(lab, requests)
    if extra != "alone":
        receive(second)
    assert all(len(sizes) == 1 for _, sizes in handled)
    second.socket.close()


def test_an_invalid_frame_behind_a_run_that_waits_closes_after_the_answers(lab, monkeypatch):
    busy(monkeypatch, "append")
    with lab.held():
        send_request(lab.wire, apis.PRODUCE, 9, **produce_of("a"))
        lab.wire.socket.sendall(b"\0\0\0\1x")
    answered(lab, [produce()])
    assert lab.wire.socket.recv(1) == b""
