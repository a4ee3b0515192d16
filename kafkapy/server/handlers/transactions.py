"""EndTxn (versions 0 to 4), DescribeTransactions (version 0) and ListTransactions (versions 0 to 1): KIP-98, KIP-664.

InitProducerId is in `producers`, AddPartitionsToTxn and AddOffsetsToTxn are in `transaction_partitions`, and
WriteTxnMarkers is in `markers`. Source: KafkaApis.handleEndTxnRequest, handleDescribeTransactionsRequest and
handleListTransactionsRequest.

Differences from Kafka: a transactional id that a DescribeTransactions request names more than once is described once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import DESCRIBE_TRANSACTIONS, END_TXN, LIST_TRANSACTIONS
from kafkapy.server.admission import denied_names
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, answered
from kafkapy.server.checks import TRANSACTIONAL_ID_DENIED, Check, Right

if TYPE_CHECKING:
    from kafkapy.server.services import Services

FENCED_SINCE = 2  # clients of this or a later version know PRODUCER_FENCED; the same in `transaction_partitions`


def known_to(call: Call, code: int) -> int:
    """Return the error code, or INVALID_PRODUCER_EPOCH in place of PRODUCER_FENCED if clients of the call's version do
    not know PRODUCER_FENCED."""
    if code == Errors.PRODUCER_FENCED and call.version < FENCED_SINCE:
        return Errors.INVALID_PRODUCER_EPOCH
    return code


@serves(
    END_TXN,
    checks=[
        Check(Right("WRITE", "TRANSACTIONAL_ID"), TRANSACTIONAL_ID_DENIED, lambda request: (request.transactional_id,))
    ],
)
def end_txn(broker: Services, call: Call, request: Any) -> Any:
    """Handle EndTxn: commit or abort a transaction. The response is sent when the transaction log contains the
    decision. The markers are written after that."""
    make = END_TXN.Response
    if call.denied:
        return make(error_code=Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return answered(
        call,
        lambda reply: broker.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            lambda code: reply(make(error_code=known_to(call, code))),
        ),
    )


@serves(
    DESCRIBE_TRANSACTIONS,
    pooled=True,
    checks=[
        Check(
            Right("DESCRIBE", "TRANSACTIONAL_ID"),
            TRANSACTIONAL_ID_DENIED + " for the id",
            lambda request: request.transactional_ids,
        ),
        Check(Right("DESCRIBE", "TOPIC"), "none: the topic is left out", only="topics of the transaction"),
    ],
)
def describe_transactions(broker: Services, call: Call, request: Any) -> Any:
    """Handle DescribeTransactions on the disk pool: return the state of the transaction of each transactional id."""
    make = DESCRIBE_TRANSACTIONS.Response
    denied = call.denied_names("TRANSACTIONAL_ID")
    states = []
    for transactional_id in dict.fromkeys(request.transactional_ids):  # once each: a transaction can be very large
        state = make.TransactionStates(transactional_id=transactional_id)
        try:
            if transactional_id in denied:
                raise KafkaError(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            found = broker.transactions.describe(transactional_id)
        except KafkaError as error:
            state.error_code = error.code
        else:
            state.transaction_state = found.state_name
            state.transaction_timeout_ms = found.timeout_ms
            state.transaction_start_time_ms = found.start_ms
            state.producer_id = found.producer_id
            state.producer_epoch = found.producer_epoch
            hidden = denied_names(broker, call, "DESCRIBE", "TOPIC", [topic for topic, _ in found.partitions])
            state.topics = [
                make.TransactionStates.Topics(topic=topic, partitions=list(indexes))
                for topic, indexes in found.partitions
                if topic not in hidden
            ]
        states.append(state)
    return make(transaction_states=states)


@serves(
    LIST_TRANSACTIONS,
    pooled=True,
    checks=[Check(Right("DESCRIBE", "TRANSACTIONAL_ID"), "none: the transaction is left out")],
)
def list_transactions(broker: Services, call: Call, request: Any) -> Any:
    """Handle ListTransactions on the disk pool: return the transactions that match the request's filters."""
    from kafkapy.coordinator.transactions.views import Filters

    make = LIST_TRANSACTIONS.Response
    filters = Filters(frozenset(request.state_filters), frozenset(request.producer_id_filters), request.duration_filter)
    try:
        found = broker.transactions.list(filters)
    except KafkaError as error:
        return make(error_code=error.code)
    hidden = denied_names(broker, call, "DESCRIBE", "TRANSACTIONAL_ID", [one.transactional_id for one in found])
    return make(
        unknown_state_filters=filters.unknown_states,
        transaction_states=[
            make.TransactionStates(
                transactional_id=one.transactional_id, producer_id=one.producer_id, transaction_state=one.state_name
            )
            for one in found
            if one.transactional_id not in hidden
        ],
    )
