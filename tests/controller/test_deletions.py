"""Topics that are deleted across terms of the same controller."""

import pytest

from kafkapy.controller.requests import StopRequest
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.tree import Delete
from tests.controller.lab import ME, Lab


def test_a_response_to_a_request_of_the_last_term_does_not_end_a_deletion(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker's requests to itself may wait for its disk until it has been elected again. Then they are refused."""
    stops = []  # requests, each with the function that gets its response
    send = lab.brokers.send

    def hold_stops(broker, requests):
        stops.extend(one for one in requests if isinstance(one[0], StopRequest))
        send(broker, [one for one in requests if not isinstance(one[0], StopRequest)])

    lab.controller.create("t", by_hand={0: [ME]})
    monkeypatch.setattr(lab.brokers, "send", hold_stops)
    lab.controller.begin_deletion("t")
    lab.controller.end()
    lab.tree.commit([Delete(paths.CONTROLLER)])
    lab.fence.set_term(lab.registry.become_controller(ME, 0))
    assert lab.controller.start(lab.topics.all(), lambda: False)
    (_, answered_before), (_, answered) = stops
    answered_before({("t", 0): KafkaError(Errors.STALE_CONTROLLER_EPOCH)})
    answered({})
    lab.finish()
    assert not lab.tree.exists(paths.topic("t"))
