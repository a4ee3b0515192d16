"""The leader to name in a response to a client that asked the wrong broker (KIP-951), so that it need not ask for
metadata. Source: KafkaApis.getCurrentLeader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkapy.errors import Errors
from kafkapy.replica.manager import NO_EPOCH

if TYPE_CHECKING:
    from kafkapy.metadata.cache import Node
    from kafkapy.server.services import Services

# A response with one of these errors names the leader.
WRONG_LEADER = frozenset({Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH})


def current_leader(
    broker: Services, topic: str, index: int, listener: str
) -> tuple[tuple[int, int] | None, Node | None]:
    """Return ((broker id, leader epoch), the leader's address on the listener) of a partition. Both are None if they
    are not known.
    """
    followed = broker.replicas.followed(topic, index)
    if followed is not None and followed.gone is None:
        leader = followed.leader, followed.leader_epoch
    elif broker.replicas.holds(topic, index):
        leader = broker.broker_id, broker.replicas.leader_epoch(topic, index)
    else:
        known = broker.cache.leader(topic, index)
        leader = (-1, NO_EPOCH) if known is None else (known.id, known.epoch)
    if leader == (-1, NO_EPOCH):
        return None, None
    return leader, broker.cache.node(leader[0], listener)
