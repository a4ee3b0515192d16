"""Asks the controller of the cluster, another broker, for blocks of producer ids (AllocateProducerIds, KIP-730).

Source: Kafka's RPCProducerIdManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError, name_of
from kafkapy.protocol.apis import ALLOCATE_PRODUCER_IDS

if TYPE_CHECKING:
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.producer_ids")

_LAST = 2**63 - 1
# The controller does not know this registration of the broker yet, or another broker is the controller by now.
_PASSING = (Errors.STALE_BROKER_EPOCH, Errors.BROKER_ID_NOT_REGISTERED, Errors.NOT_CONTROLLER)


def ask_for_producer_ids(services: Services, done: Callable[[range | Exception], object]) -> None:
    """Ask the controller for a block of producer ids, and call `done` with the block or a KafkaError: at once or later,
    on any thread.

    The error is COORDINATOR_LOAD_IN_PROGRESS, after which clients of every version try again.
    """
    link = services.peers.controller()
    if link is None:
        done(_later("there is no controller"))
        return

    def answered(response: Any, error: Exception | None) -> None:
        done(_later(str(error)) if error is not None else _block(response))

    link.ask(
        ALLOCATE_PRODUCER_IDS,
        lambda version: ALLOCATE_PRODUCER_IDS.Request(broker_id=services.broker_id, broker_epoch=services.broker_epoch),
        answered,
        timeout_s=services.config["controller.socket.timeout.ms"] / 1000,
    )


def _block(response: Any) -> range | KafkaError:
    code, first, count = response.error_code, response.producer_id_start, response.producer_id_len
    if code in _PASSING:
        return _later(f"the controller answers {name_of(code)}")
    if code != Errors.NONE:
        log.error("the controller refuses to allocate producer ids: %s", name_of(code))
        return _later(f"the controller answers {name_of(code)}")
    if first < 0 or count <= 0 or first > _LAST - count:
        log.error("the controller allocated an invalid block of producer ids: %d from %d on", count, first)
        return _later("the controller gave an invalid block")
    return range(first, first + count)


def _later(why: str) -> KafkaError:
    return KafkaError(Errors.COORDINATOR_LOAD_IN_PROGRESS, f"there are no producer ids for now: {why}")
