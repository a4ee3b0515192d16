"""ElectLeaders (versions 0 to 2; KIP-183, KIP-460).

Source: KafkaApis.handleElectLeaders.

Differences from Kafka:

- Every partition has one replica, so no election is held: the error of a partition is ELECTION_NOT_NEEDED, or the
  reason why the partition has no leader.
- A request for all partitions (null) has an empty response. Kafka's response has the partitions without a leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import ELECT_LEADERS
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call

if TYPE_CHECKING:
    from kafkapy.server.services import Services


@serves(ELECT_LEADERS)
def handle(broker: Services, call: Call, request: Any) -> Any:
    """Handle ElectLeaders: return an error code for each partition, as the controller reports it."""
    make = ELECT_LEADERS.Response
    results = []
    # A null list asks for all partitions. Kafka then returns only partitions that needed an election; none does here.
    for topic in request.topic_partitions or []:
        answers = []
        for index in topic.partitions:
            code, message = int(Errors.NONE), None
            try:
                broker.controller.elect_leader(topic.topic, index)
            except KafkaError as error:
                code, message = error.code, error.message
            answers.append(
                make.ReplicaElectionResults.PartitionResult(partition_id=index, error_code=code, error_message=message)
            )
        results.append(make.ReplicaElectionResults(topic=topic.topic, partition_result=answers))
    return make(replica_election_results=results)
