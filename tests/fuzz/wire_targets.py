"""Fuzz targets of the wire: frames, headers, the codec of every API and version, the hot paths compared with it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kafkapy._ext import commit_requests, fetched, frames, hotpath
from kafkapy.errors import KafkaError, ProtocolError
from kafkapy.protocol.apis import APIS, FETCH, OFFSET_COMMIT, PRODUCE, Api
from kafkapy.protocol.headers import read_request_header, request_frame
from tests.fuzz.mutation import mutate
from tests.fuzz.target import Target
from tests.protocol.random_messages import layout_of, random_message

REFUSALS = (ProtocolError, KafkaError)


def encoded(api: Api, side: str, version: int, seed: int) -> bytes:
    message = random_message(layout_of(api, side, version), random.Random(seed))
    if side == "request":
        return request_frame(api, version, seed, "fuzz", message)[4:]
    return api.encode_response(message, version)


def requests() -> list[bytes]:
    """Return a frame (without its size) of every API and version."""
    return [
        encoded(api, "request", version, seed)
        for api in APIS.values()
        for version in range(api.min_version, api.max_version + 1)
        for seed in range(2)
    ]


def fuzz_request(view: memoryview, rng: random.Random) -> None:
    header, at = read_request_header(view)
    APIS[header.api_key].decode_request(view, header.api_version, at)


def fuzz_hotpath(view: memoryview, rng: random.Random) -> None:
    produce = hotpath.decode_produce_frame(view)
    if produce is not None:
        for _, partitions in produce.topics:
            for _, records in partitions:
                assert records is None or len(records) <= len(view)
    fetch = hotpath.decode_fetch_frame(view)
    if fetch is not None:
        repr(fetch.topics)
    commit = commit_requests.decode_commit_frame(view)
    if commit is not None:
        repr(commit.offsets)


def fuzz_split(view: memoryview, rng: random.Random) -> None:
    found, _, _ = frames.split(view, rng.randint(0, min(4, len(view))), len(view), rng.choice((1, 64)), 10_000)
    assert sum(map(len, found)) <= len(view)


def fuzz_fetched(view: memoryview, rng: random.Random) -> None:
    """The first byte chooses the version, which is a follower's."""
    version = 12 + (view[0] if view else 0) % 6
    _, _, partitions = fetched.decode_fetch_response(view, version, min(1, len(view)))
    for *_, records in partitions:
        assert records is None or len(records) <= len(view)


class Responses:
    """A target for responses. They carry no API and version: the first two bytes of the input choose them."""

    def __init__(self) -> None:
        self.kinds = [
            (api, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)
        ]

    def make(self, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
        data = rng.choice(corpus)
        return data[:2] + mutate(rng, data[2:], corpus)

    def run(self, view: memoryview, rng: random.Random) -> None:
        api, version = self.kinds[int.from_bytes(view[:2], "big")]
        api.decode_response(view, version, 2)

    def corpus(self) -> list[bytes]:
        return [
            index.to_bytes(2, "big") + encoded(api, "response", version, seed)
            for index, (api, version) in enumerate(self.kinds)
            for seed in range(2)
        ]


def targets() -> list[Target]:
    """Return all targets of the wire."""
    sent = requests()
    hot = [
        encoded(api, "request", version, seed)
        for api, versions in ((PRODUCE, 12), (FETCH, 12), (OFFSET_COMMIT, 10))
        for version in range(versions)
        for seed in range(4)
    ]
    sized = [b"".join(len(one).to_bytes(4, "big") + one for one in sent[i : i + 3]) for i in range(0, 60, 3)]
    responses = Responses()
    to_followers = [
        bytes([version - 12]) + encoded(FETCH, "response", version, seed)
        for version in range(12, 18)
        for seed in range(8)
    ]
    return [
        Target("requests", sent, fuzz_request, REFUSALS),
        Target("responses", responses.corpus(), responses.run, REFUSALS, responses.make),
        Target("hotpath", hot, fuzz_hotpath, REFUSALS),
        Target("fetched", to_followers, fuzz_fetched, REFUSALS),
        Target("frames", sized, fuzz_split, (frames.BadFrameSize,)),
    ]
