"""A fetcher that is closed hands its partitions over when its last request ends."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.errors import Errors
from kafkapy.replica.fetch_session import FetchSettings
from kafkapy.replica.fetch_state import FetchState
from kafkapy.replica.fetched import Fetched
from kafkapy.replica.fetcher import Fetcher, Following
from kafkapy.replica.links import LinkError


class OneRequest:
    """A link with one request in flight."""

    name = "broker 1"

    def __init__(self) -> None:
        self.answer: Any = None

    def ask(self, api: Any, message: Any, done: Any, **_: Any) -> None:
        assert self.answer is None
        self.answer = done

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("fetched", "error"),
    [
        (Fetched(Errors.FETCH_SESSION_ID_NOT_FOUND, 0, []), None),
        (Fetched(Errors.NONE, 0, []), None),
        (None, LinkError("the connection was lost")),
    ],
    ids=["the session is refused", "a response", "the connection is lost"],
)
def test_a_fetcher_that_is_closed_hands_its_partitions_over_when_its_request_ends(
    fetched: Fetched | None, error: LinkError | None
) -> None:
    link = OneRequest()
    timer: Any = SimpleNamespace(schedule=lambda seconds, fn: None)
    following = Following(
        7, lambda: 1, Any, Any, timer, FetchSettings, lambda state: False, lambda *_: None, lambda _: None
    )
    fetcher = Fetcher(link, following)  # type: ignore[arg-type]
    partition: Any = SimpleNamespace(topic="t", index=0, leader_epoch=0, topic_id=b"1" * 16)
    state = FetchState(partition)
    handed_over: list[list[FetchState]] = []
    fetcher.add(state)
    fetcher.close(handed_over.append)
    assert handed_over == []  # the response may still bring records
    link.answer(fetched, error)
    assert handed_over == [[state]]
