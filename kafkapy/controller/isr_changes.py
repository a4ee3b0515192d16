"""Decides on the ISR changes that leaders ask for. Source: KafkaController.tryProcessAlterPartition; KIP-497, KIP-841
and KIP-704.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kafkapy.controller.partition import Partition
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.topic_nodes import RECOVERED, RECOVERING


class IsrRequest(NamedTuple):
    """A leader's request for another ISR. `partition_epoch` is the version of the state that the leader knows.

    `topic_id` is None if the leader does not send it.
    """

    topic: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[int]
    recovery: int = RECOVERED
    topic_id: bytes | None = None


def decide(asked: IsrRequest, broker_id: int, present: Partition | None, live: Collection[int]) -> Partition:
    """Return the partition with the state to write, or `present` itself if it already has the requested state. Raise
    the KafkaError for the leader if the change is refused.

    `broker_id` is the leader that asks, `live` are the brokers that may join an ISR.
    """
    where = f"{asked.topic}-{asked.partition}"
    if present is None or asked.topic_id not in (None, present.topic.id):  # or another topic of that name
        raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {where}")
    state, version = present.state, present.version
    if asked.leader_epoch > state.leader_epoch or asked.partition_epoch > version:
        raise KafkaError(
            Errors.NOT_CONTROLLER, f"the leader of {where} knows a later state: there is another controller"
        )
    if asked.leader_epoch < state.leader_epoch or broker_id != state.leader:
        raise KafkaError(
            Errors.FENCED_LEADER_EPOCH, f"broker {broker_id} does not lead {where} in {asked.leader_epoch}"
        )
    if (list(asked.isr), asked.recovery) == (state.isr, state.recovery):
        return present
    if asked.partition_epoch < version:
        raise KafkaError(Errors.INVALID_UPDATE_VERSION, f"the state of {where} has version {version} by now")
    if asked.recovery == RECOVERING and (len(asked.isr) > 1 or state.recovery == RECOVERED):
        raise KafkaError(Errors.INVALID_REQUEST, f"{where} cannot be recovering with the ISR {list(asked.isr)}")
    absent = sorted(set(asked.isr) - set(live))
    if absent:
        raise KafkaError(
            Errors.INELIGIBLE_REPLICA, f"brokers {absent} cannot join the ISR of {where}: they are not live"
        )
    return present.in_state(state._replace(isr=list(asked.isr), recovery=asked.recovery))
