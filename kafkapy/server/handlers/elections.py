"""ElectLeaders (versions 0 to 2; KIP-183, KIP-460).

Source: KafkaApis.handleElectLeaders.

Differences from Kafka:

- The response does not wait until the elected leaders are in this broker's metadata.
- An unknown election type is INVALID_REQUEST; in Kafka UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import ELECT_LEADERS
from kafkapy.server.admission import NO_MESSAGE
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call
from kafkapy.server.checks import CLUSTER_DENIED, on_cluster

if TYPE_CHECKING:
    from kafkapy.controller.partition import TopicPartition
    from kafkapy.server.services import Services

_KINDS_SINCE = 1
_PREFERRED, _UNCLEAN = 0, 1


@serves(
    ELECT_LEADERS,
    pooled=True,
    checks=on_cluster("ALTER", CLUSTER_DENIED + " and on each named partition; version 0 only there"),
)
def handle(broker: Services, call: Call, request: Any) -> Any:
    """Handle ElectLeaders on the disk pool: hold the elections, and return an error code for each partition."""
    make = ELECT_LEADERS.Response
    asked = None
    if request.topic_partitions is not None:
        asked = [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    kind = request.election_type if call.version >= _KINDS_SINCE else _PREFERRED
    code = Errors.NONE
    try:
        if call.denied:
            raise KafkaError(Errors.CLUSTER_AUTHORIZATION_FAILED, NO_MESSAGE)
        if kind not in (_PREFERRED, _UNCLEAN):
            raise KafkaError(
                Errors.INVALID_REQUEST,
                f"election type {kind} is unknown: it must be preferred ({_PREFERRED}) or unclean ({_UNCLEAN})",
            )
        results = _elect(broker, kind, asked)
    except KafkaError as error:
        code, results = error.code, dict.fromkeys(asked or (), error)
    topics: dict[str, Any] = {}
    for name, index in results if asked is None else asked:
        error_or_none = results.get((name, index))
        topic = topics.setdefault(name, make.ReplicaElectionResults(topic=name, partition_result=[]))
        topic.partition_result.append(
            make.ReplicaElectionResults.PartitionResult(
                partition_id=index,
                error_code=Errors.NONE if error_or_none is None else error_or_none.code,
                error_message=None if error_or_none is None else error_or_none.message or None,
            )
        )
    response = make(replica_election_results=list(topics.values()))
    if call.version >= _KINDS_SINCE:
        response.error_code = code
    return response


def _elect(broker: Services, kind: int, asked: list[TopicPartition] | None) -> dict[TopicPartition, KafkaError | None]:
    """Have the controller elect leaders, and return the error, or None, of each partition. As in Kafka, an error for
    the whole request, such as NOT_CONTROLLER, becomes the error of each partition."""
    try:
        return broker.controller.elect(kind, asked)
    except KafkaError as error:
        cache = broker.cache
        every = ((name, index) for name in cache.names() for index in cache.partitions(name))
        return dict.fromkeys(every if asked is None else asked, error)
