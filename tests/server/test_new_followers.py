"""Waiting fetches of followers are answered when the broker leads new partitions, so that they can name these."""

from types import SimpleNamespace

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol.apis import FETCH
from kafkapy.server.new_followers import DELAYS_S, NewFollowers
from tests.harness.waiting import eventually
from tests.server.requests import FETCH_VERSION, fetch_request, lead_with, make_topic

ME, OTHER = 0, 1
FOLLOWER, CONSUMER = SimpleNamespace(is_follower=True), SimpleNamespace(is_follower=False)
LED, ALONE = SimpleNamespace(in_sync=object()), SimpleNamespace(in_sync=None)


class Scene:
    """`NewFollowers` with a timer and a purgatory that only record their calls."""

    def __init__(self):
        self.due, self.delays, self.answered = [], [], []
        timer = SimpleNamespace(schedule=self._schedule)
        purgatory = SimpleNamespace(complete_all=self.answered.append)
        self.followers = NewFollowers([FOLLOWER, CONSUMER], purgatory, timer)

    def _schedule(self, delay_s, work):
        self.delays.append(delay_s)
        self.due.append(work)

    def pass_time(self):
        """Run all scheduled work. Return True if there was any."""
        due, self.due = self.due, []
        for work in due:
            work()
        return bool(due)


def test_only_followers_are_answered_several_times_after_the_last_partition():
    scene = Scene()
    for _ in range(1000):
        scene.followers.became_leader(LED)
    while scene.pass_time():
        pass
    assert scene.answered == [FOLLOWER] * 2 * len(DELAYS_S)  # twice, as partitions were added after the first round
    assert tuple(scene.delays) == 2 * DELAYS_S
    scene.followers.became_leader(LED)
    while scene.pass_time():
        pass
    assert len(scene.answered) == 3 * len(DELAYS_S)


def test_no_session_is_answered_for_a_partition_without_other_replicas():
    scene = Scene()
    scene.followers.became_leader(ALONE)
    assert not scene.pass_time()


def test_a_waiting_session_of_a_follower_is_answered_when_the_broker_leads_more_partitions(broker, wire):
    with pytest.MonkeyPatch.context() as without_answers:
        without_answers.setattr(NewFollowers, "became_leader", lambda self, partition: None)
        topic, another = make_topic(wire, "first"), make_topic(wire, "another")
        lead_with(broker, topic, [ME, OTHER], [ME, OTHER])
    session = wire.call(FETCH, FETCH_VERSION, fetch_request(topic, 0, replica=OTHER, session=(0, 0))).session_id
    asked = fetch_request(topic, 0, replica=OTHER, session=(session, 1), wait=60_000)
    wire.send(FETCH, FETCH_VERSION, asked)
    eventually(lambda: broker.services.replicas.fetch_purgatory.delayed == 1)
    lead_with(broker, another, [ME, OTHER], [ME, OTHER])
    response = wire.receive(FETCH, FETCH_VERSION)[1]
    assert (response.error_code, response.session_id) == (Errors.NONE, session)
    again = fetch_request(topic, 0, replica=OTHER, session=(session, 2))
    assert wire.call(FETCH, FETCH_VERSION, again).error_code == Errors.NONE
