"""ElectLeaders (KIP-183, KIP-460), as a cluster of one answers it: every leader there is leads already."""

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
    make = ELECT_LEADERS.Response
    results = []
    # Without a list all partitions are meant, and only those that needed an election are answered: none.
    for topic in request.topic_partitions or []:
        answers = []
        for index in topic.partitions:
            code, message = Errors.ELECTION_NOT_NEEDED, "the leader is the preferred replica already"
            try:
                broker.replicas.get(topic.topic, index)
            except KafkaError as error:
                code, message = error.code, error.message
            answers.append(
                make.ReplicaElectionResults.PartitionResult(partition_id=index, error_code=code, error_message=message)
            )
        results.append(make.ReplicaElectionResults(topic=topic.topic, partition_result=answers))
    return make(replica_election_results=results)
