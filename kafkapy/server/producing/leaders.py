"""Produce responses that name the current leader to a producer that asked the wrong broker (KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.protocol.apis import PRODUCE
from kafkapy.protocol.headers import response_frame
from kafkapy.server.current_leader import current_leader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkapy.metadata.cache import Node
    from kafkapy.server.call import Call
    from kafkapy.server.services import Services

NAMES_LEADER_SINCE = 10


def response_with_leaders(broker: Services, call: Call, topics: Sequence[tuple[str, Sequence[Any]]]) -> bytes:
    """Return the frame of a Produce response. Partitions with NOT_LEADER_OR_FOLLOWER name their leader, if it is known.

    `topics` is what encode_produce_response takes. That function is faster, and cannot name leaders.
    """
    make = PRODUCE.Response
    Part = make.Responses.PartitionResponses
    nodes: dict[int, Node] = {}
    responses = []
    for name, answers in topics:
        parts = []
        for index, code, base_offset, append_time, start_offset, record_errors, message in answers:
            part = Part(
                index=index,
                error_code=code,
                base_offset=base_offset,
                log_append_time_ms=append_time,
                log_start_offset=start_offset,
                record_errors=[
                    Part.RecordErrors(batch_index=batch, batch_index_error_message=text)
                    for batch, text in record_errors or ()
                ],
                error_message=message,
            )
            if code == Errors.NOT_LEADER_OR_FOLLOWER:
                leader, node = current_leader(broker, name, index, call.connection.listener)
                if leader is not None:
                    part.current_leader.leader_id, part.current_leader.leader_epoch = leader
                if node is not None:
                    nodes[node.id] = node
            parts.append(part)
        responses.append(make.Responses(name=name, partition_responses=parts))
    endpoints = [
        make.NodeEndpoints(node_id=one.id, host=one.host, port=one.port, rack=one.rack) for one in nodes.values()
    ]
    response = make(responses=responses, throttle_time_ms=call.throttle_time_ms, node_endpoints=endpoints)
    return response_frame(PRODUCE, call.version, call.correlation_id, response)
