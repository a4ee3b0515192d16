"""AlterPartitionReassignments (version 0) and ListPartitionReassignments (version 0): KIP-455.

Source: KafkaApis.handleAlterPartitionReassignmentsRequest, KafkaController.processApiPartitionReassignment.

Differences from Kafka: if a request names a partition twice, both reassignments are made in turn, each with its
own result. Kafka makes only the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS
from kafkapy.server.admission import refusal
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call
from kafkapy.server.checks import CLUSTER_DENIED, on_cluster

if TYPE_CHECKING:
    from kafkapy.server.services import Services


@serves(
    ALTER_PARTITION_REASSIGNMENTS,
    pooled=True,
    checks=on_cluster("ALTER", CLUSTER_DENIED + ", and on each partition"),
)
def alter(broker: Services, call: Call, request: Any) -> Any:
    """Handle AlterPartitionReassignments on the disk pool: change or cancel the reassignment of each partition. Return
    an error code for each partition."""
    make = ALTER_PARTITION_REASSIGNMENTS.Response
    if call.denied:
        return _alter_refused(request)
    try:
        broker.controller.check_active()
    except KafkaError as error:
        return make(error_code=error.code, error_message=error.message)
    responses = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            answer = make.Responses.Partitions(partition_index=asked.partition_index)
            try:
                broker.controller.reassign(topic.name, asked.partition_index, asked.replicas)
            except KafkaError as error:
                if error.code == Errors.NOT_CONTROLLER:
                    return make(error_code=error.code, error_message=error.message)
                answer.error_code, answer.error_message = error.code, error.message
            answers.append(answer)
        responses.append(make.Responses(name=topic.name, partitions=answers))
    return make(responses=responses)


def _alter_refused(request: Any) -> Any:
    make = ALTER_PARTITION_REASSIGNMENTS.Response
    error = refusal(Errors.CLUSTER_AUTHORIZATION_FAILED)
    code, message = error.code, error.message
    return make(
        error_code=code,
        error_message=message,
        responses=[
            make.Responses(
                name=topic.name,
                partitions=[
                    make.Responses.Partitions(
                        partition_index=one.partition_index, error_code=code, error_message=message
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


@serves(
    LIST_PARTITION_REASSIGNMENTS,
    checks=on_cluster("DESCRIBE", CLUSTER_DENIED + "; the named partitions are listed without replicas"),
)
def list_(broker: Services, call: Call, request: Any) -> Any:
    """Handle ListPartitionReassignments: return the ongoing reassignments of the named partitions, or of all
    partitions."""
    make = LIST_PARTITION_REASSIGNMENTS.Response
    if call.denied:
        return _list_refused(request)
    try:
        broker.controller.check_active()
    except KafkaError as error:
        return make(error_code=error.code, error_message=error.message)
    asked: dict[str, set[int] | None] = {}
    if request.topics is None:
        asked = dict.fromkeys(broker.topics.names())
    else:
        for topic in request.topics:  # a topic may be named more than once
            asked[topic.name] = {*(asked.get(topic.name) or ()), *topic.partition_indexes}
    found = []
    for name, indexes in asked.items():
        topic = broker.topics.get(name)
        partitions = [
            make.Topics.Partitions(
                partition_index=index,
                replicas=topic.assignment[index],
                adding_replicas=move.adding,
                removing_replicas=move.removing,
            )
            for index, move in (topic.moves.items() if topic is not None else ())
            if topic is not None and index in topic.assignment and (indexes is None or index in indexes)
        ]
        if partitions:
            found.append(make.Topics(name=name, partitions=partitions))
    return make(topics=found)


def _list_refused(request: Any) -> Any:
    make = LIST_PARTITION_REASSIGNMENTS.Response
    error = refusal(Errors.CLUSTER_AUTHORIZATION_FAILED)
    return make(
        error_code=error.code,
        error_message=error.message,
        topics=[
            make.Topics(
                name=topic.name,
                partitions=[
                    make.Topics.Partitions(partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[])
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )
