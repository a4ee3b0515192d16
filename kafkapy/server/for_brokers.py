"""What the controller does for other brokers: changes of ISRs, controlled shutdowns, blocks of producer ids.

The functions take and return messages of the protocol. They block, and are called by handlers, and by `OwnController`
for this broker itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkapy.controller.isr_changes import IsrRequest
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.protocol.apis import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, CONTROLLED_SHUTDOWN, Api
from kafkapy.replica.links import LinkError
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.threads import NoThread

if TYPE_CHECKING:
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.controller_requests")

_BY_ID_SINCE = 2
_WITH_EPOCHS_SINCE = 3
_RECOVERY_SINCE = 1


def alter_partition(services: Services, request: Any, version: int) -> Any:
    """Change ISRs as a leader asks (AlterPartition). Return the response."""
    make = ALTER_PARTITION.Response
    asked: list[IsrRequest] = []
    unknown: list[Any] = []
    for topic in request.topics:
        topic_id = topic.topic_id if version >= _BY_ID_SINCE else None
        name = topic.topic_name if topic_id is None else services.topics.name_of(topic_id)
        if name is None:
            unknown.append(topic)
            continue
        for one in topic.partitions:
            isr = [each.broker_id for each in one.new_isr_with_epochs] if version >= _WITH_EPOCHS_SINCE else one.new_isr
            recovery = one.leader_recovery_state if version >= _RECOVERY_SINCE else 0
            epochs = one.leader_epoch, one.partition_epoch
            asked.append(IsrRequest(name, one.partition_index, *epochs, list(isr), recovery, topic_id))
    try:
        outcomes = services.controller.alter_partitions(request.broker_id, request.broker_epoch, asked)
    except KafkaError as error:
        return make(error_code=error.code)
    topics: dict[str, Any] = {}
    for (name, index), outcome in outcomes.items():
        if name not in topics:
            known = services.topics.get(name)
            topics[name] = make.Topics(topic_name=name, topic_id=ZERO_ID if known is None else known.id, partitions=[])
        topics[name].partitions.append(_outcome(index, outcome, version))
    responses = list(topics.values())
    for topic in unknown:
        refused = [
            make.Topics.Partitions(partition_index=one.partition_index, error_code=Errors.UNKNOWN_TOPIC_ID)
            for one in topic.partitions
        ]
        responses.append(make.Topics(topic_id=topic.topic_id, partitions=refused))
    return make(topics=responses)


def _outcome(index: int, outcome: Any, version: int) -> Any:
    make = ALTER_PARTITION.Response.Topics.Partitions
    if isinstance(outcome, KafkaError):
        code = outcome.code
        if code == Errors.INELIGIBLE_REPLICA and version < _BY_ID_SINCE:  # older brokers do not know the code
            code = Errors.OPERATION_NOT_ATTEMPTED
        return make(partition_index=index, error_code=code)
    state = outcome.state
    one = make(
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=outcome.version,
    )
    if version >= _RECOVERY_SINCE:
        one.leader_recovery_state = state.recovery
    return one


def controlled_shutdown(services: Services, request: Any, version: int) -> Any:
    """Move leadership away from a broker that wants to stop (ControlledShutdown). Return the response."""
    make = CONTROLLED_SHUTDOWN.Response
    try:
        left = services.controller.controlled_shutdown(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        log.warning("the controlled shutdown of broker %d is refused: %s", request.broker_id, error.message)
        return make(error_code=error.code)
    shape = make.RemainingPartitions
    return make(remaining_partitions=[shape(topic_name=topic, partition_index=index) for topic, index in left])


def allocate_producer_ids(services: Services, request: Any, reply: Callable[[Any], None]) -> None:
    """Reserve a block of producer ids for a broker (AllocateProducerIds), and call `reply` with the response, on any
    thread.
    """
    make = ALLOCATE_PRODUCER_IDS.Response
    try:
        services.controller.check_registration(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        reply(make(error_code=error.code))
        return

    def done(outcome: range | Exception) -> None:
        if isinstance(outcome, range):
            reply(make(producer_id_start=outcome[0], producer_id_len=len(outcome)))
        else:
            log.error("broker %d gets no block of producer ids: %s", request.broker_id, outcome)
            reply(make(error_code=Errors.UNKNOWN_SERVER_ERROR))

    services.controller.allocate_producer_ids(request.broker_id, done)


_SERVED: dict[Api, Callable[[Services, Any, int], Any]] = {
    ALTER_PARTITION: alter_partition,
    CONTROLLED_SHUTDOWN: controlled_shutdown,
}


class OwnController:
    """Used like a link to the controller while this broker is the controller: calls the controller directly."""

    connect_timeout_s = 0.0

    def __init__(self, services: Services) -> None:
        self._services = services

    def ask(
        self,
        api: Api,
        message: Any,
        done: Callable[[Any, LinkError | None], object],
        *,
        timeout_s: float,
        versions: tuple[int, int] | None = None,
        decode: Any = None,
    ) -> None:
        """Carry out a request on a pool, and call `done` as `Link.ask` does."""
        serve = _SERVED.get(api)
        if serve is None:  # AllocateProducerIds, which only gets here at the moment when the controller changes
            done(None, LinkError("this broker is just becoming the controller, or ceasing to be the controller"))
            return
        version = versions[1] if versions is not None else api.max_version
        request = message(version) if callable(message) else message
        try:
            self._services.controller_pool.submit(partial(self._serve, serve, request, version, done))
        except (PoolStopped, NoThread) as error:
            done(None, LinkError(str(error)))

    def _serve(self, serve: Callable[..., Any], request: Any, version: int, done: Callable[..., object]) -> None:
        try:
            response = serve(self._services, request, version)
        except Exception as error:
            log.exception("this broker's request to itself as controller failed")
            done(None, LinkError(str(error)))
        else:
            done(response, None)
