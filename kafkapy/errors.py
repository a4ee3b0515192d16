"""Kafka's error codes with their names and messages, and the exceptions that carry an error code.

A code is a plain int, so that comparing and encoding it costs nothing; `Errors` has a constant for each code. Names,
numbers and the set of retriable codes are those of Kafka 3.9 (class `org.apache.kafka.common.protocol.Errors`).
"""


class Errors:
    """Constants for Kafka's error codes, for example `Errors.NONE == 0`."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127


_NAMES: dict[int, str] = {code: name for name, code in vars(Errors).items() if not name.startswith("_")}

_RETRIABLE = frozenset(
    {
        Errors.CORRUPT_MESSAGE,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.LEADER_NOT_AVAILABLE,
        Errors.NOT_LEADER_OR_FOLLOWER,
        Errors.REQUEST_TIMED_OUT,
        Errors.REPLICA_NOT_AVAILABLE,
        Errors.NETWORK_EXCEPTION,
        Errors.COORDINATOR_LOAD_IN_PROGRESS,
        Errors.COORDINATOR_NOT_AVAILABLE,
        Errors.NOT_COORDINATOR,
        Errors.NOT_ENOUGH_REPLICAS,
        Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Errors.NOT_CONTROLLER,
        Errors.CONCURRENT_TRANSACTIONS,
        Errors.KAFKA_STORAGE_ERROR,
        Errors.FETCH_SESSION_ID_NOT_FOUND,
        Errors.INVALID_FETCH_SESSION_EPOCH,
        Errors.LISTENER_NOT_FOUND,
        Errors.FENCED_LEADER_EPOCH,
        Errors.UNKNOWN_LEADER_EPOCH,
        Errors.OFFSET_NOT_AVAILABLE,
        Errors.PREFERRED_LEADER_NOT_AVAILABLE,
        Errors.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        Errors.ELECTION_NOT_NEEDED,
        Errors.UNSTABLE_OFFSET_COMMIT,
        Errors.THROTTLING_QUOTA_EXCEEDED,
        Errors.UNKNOWN_TOPIC_ID,
        Errors.INCONSISTENT_TOPIC_ID,
        Errors.FETCH_SESSION_TOPIC_ID_ERROR,
        Errors.SHARE_SESSION_NOT_FOUND,
        Errors.INVALID_SHARE_SESSION_EPOCH,
    }
)

_MESSAGES: dict[int, str] = {
    Errors.UNKNOWN_SERVER_ERROR: "The broker failed in a way that it did not expect; its log says why.",
    Errors.NONE: "No error.",
    Errors.OFFSET_OUT_OF_RANGE: "The offset is outside the range of offsets that this partition holds.",
    Errors.CORRUPT_MESSAGE: "A record batch is damaged: its checksum, length or layout is wrong.",
    Errors.UNKNOWN_TOPIC_OR_PARTITION: "This broker does not host that topic or partition.",
    Errors.INVALID_FETCH_SIZE: "The size limit of the fetch is not valid.",
    Errors.LEADER_NOT_AVAILABLE: "The partition has no leader at the moment.",
    Errors.NOT_LEADER_OR_FOLLOWER: "This broker is not the leader or follower that the request needs.",
    Errors.REQUEST_TIMED_OUT: "The request could not be completed within its time limit.",
    Errors.BROKER_NOT_AVAILABLE: "The broker is not available.",
    Errors.REPLICA_NOT_AVAILABLE: "The replica is not available on this broker.",
    Errors.MESSAGE_TOO_LARGE: "A record batch is larger than the limit of its topic.",
    Errors.STALE_CONTROLLER_EPOCH: "The request carries the epoch of an older controller.",
    Errors.OFFSET_METADATA_TOO_LARGE: "The metadata text of an offset commit is too long.",
    Errors.NETWORK_EXCEPTION: "The connection was lost before the answer came.",
    Errors.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is still loading its state.",
    Errors.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    Errors.NOT_COORDINATOR: "This broker is not the coordinator of that group or transactional id.",
    Errors.INVALID_TOPIC_EXCEPTION: "The topic's name is not legal, or the operation is not allowed on this topic.",
    Errors.RECORD_LIST_TOO_LARGE: "The records of one partition do not fit into one log segment.",
    Errors.NOT_ENOUGH_REPLICAS: "Fewer replicas are in sync than min.insync.replicas asks for.",
    Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "Written, but with fewer replicas in sync than min.insync.replicas.",
    Errors.INVALID_REQUIRED_ACKS: "acks must be -1, 0 or 1.",
    Errors.ILLEGAL_GENERATION: "The generation of the group is not the current one.",
    Errors.INCONSISTENT_GROUP_PROTOCOL: "The member's protocols do not fit those of the group's other members.",
    Errors.INVALID_GROUP_ID: "The group id is not legal.",
    Errors.UNKNOWN_MEMBER_ID: "The coordinator does not know this member.",
    Errors.INVALID_SESSION_TIMEOUT: "The session timeout is outside the range that the broker allows.",
    Errors.REBALANCE_IN_PROGRESS: "The group is rebalancing; join again.",
    Errors.INVALID_COMMIT_OFFSET_SIZE: "The offset commit is too large to be stored.",
    Errors.TOPIC_AUTHORIZATION_FAILED: "Not allowed on this topic.",
    Errors.GROUP_AUTHORIZATION_FAILED: "Not allowed on this group.",
    Errors.CLUSTER_AUTHORIZATION_FAILED: "Not allowed on the cluster.",
    Errors.INVALID_TIMESTAMP: "A record's timestamp is outside the range that the topic accepts.",
    Errors.UNSUPPORTED_SASL_MECHANISM: "The broker does not offer this SASL mechanism.",
    Errors.ILLEGAL_SASL_STATE: "The request does not fit the state of the SASL handshake.",
    Errors.UNSUPPORTED_VERSION: "The broker does not support this version of the API.",
    Errors.TOPIC_ALREADY_EXISTS: "A topic of this name already exists.",
    Errors.INVALID_PARTITIONS: "The number of partitions is not valid.",
    Errors.INVALID_REPLICATION_FACTOR: "The replication factor is not between 1 and the number of brokers.",
    Errors.INVALID_REPLICA_ASSIGNMENT: "The replica assignment is not valid.",
    Errors.INVALID_CONFIG: "A configuration value is not valid.",
    Errors.NOT_CONTROLLER: "This broker is not the controller.",
    Errors.INVALID_REQUEST: "The request contradicts itself or lacks something that it needs.",
    Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The log's message format does not support this request.",
    Errors.POLICY_VIOLATION: "The request breaks a policy of this cluster.",
    Errors.OUT_OF_ORDER_SEQUENCE_NUMBER: "The producer's sequence number does not follow the last one written.",
    Errors.DUPLICATE_SEQUENCE_NUMBER: "The producer's sequence number was written before.",
    Errors.INVALID_PRODUCER_EPOCH: "The producer's epoch is older than the current one.",
    Errors.INVALID_TXN_STATE: "The transaction's state does not allow this operation.",
    Errors.INVALID_PRODUCER_ID_MAPPING: "The producer id does not belong to this transactional id.",
    Errors.INVALID_TRANSACTION_TIMEOUT: "The transaction timeout is larger than transaction.max.timeout.ms.",
    Errors.CONCURRENT_TRANSACTIONS: "Another operation on this transaction is still under way.",
    Errors.TRANSACTION_COORDINATOR_FENCED: "A newer transaction coordinator has taken over.",
    Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Not allowed on this transactional id.",
    Errors.SECURITY_DISABLED: "Security features are disabled.",
    Errors.OPERATION_NOT_ATTEMPTED: "Not attempted, because an earlier part of the request failed.",
    Errors.KAFKA_STORAGE_ERROR: "A log directory failed; its partitions are offline.",
    Errors.LOG_DIR_NOT_FOUND: "No such log directory on this broker.",
    Errors.SASL_AUTHENTICATION_FAILED: "SASL authentication failed.",
    Errors.UNKNOWN_PRODUCER_ID: "The broker has no state for this producer id.",
    Errors.REASSIGNMENT_IN_PROGRESS: "A reassignment of this partition is under way.",
    Errors.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation tokens are disabled.",
    Errors.DELEGATION_TOKEN_NOT_FOUND: "No such delegation token.",
    Errors.DELEGATION_TOKEN_OWNER_MISMATCH: "The delegation token belongs to someone else.",
    Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "Delegation tokens cannot be requested over this kind of connection.",
    Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Not allowed on this delegation token.",
    Errors.DELEGATION_TOKEN_EXPIRED: "The delegation token has expired.",
    Errors.INVALID_PRINCIPAL_TYPE: "The principal's type is not supported.",
    Errors.NON_EMPTY_GROUP: "The group still has members.",
    Errors.GROUP_ID_NOT_FOUND: "No such group.",
    Errors.FETCH_SESSION_ID_NOT_FOUND: "No such fetch session; start a new one.",
    Errors.INVALID_FETCH_SESSION_EPOCH: "The epoch of the fetch session is not the expected one.",
    Errors.LISTENER_NOT_FOUND: "The leader has no listener of the name that this connection uses.",
    Errors.TOPIC_DELETION_DISABLED: "Deleting topics is disabled (delete.topic.enable).",
    Errors.FENCED_LEADER_EPOCH: "The leader epoch of the request is older than the broker's.",
    Errors.UNKNOWN_LEADER_EPOCH: "The leader epoch of the request is newer than the broker's.",
    Errors.UNSUPPORTED_COMPRESSION_TYPE: "This client's version does not support the compression type.",
    Errors.STALE_BROKER_EPOCH: "The broker's epoch has changed.",
    Errors.OFFSET_NOT_AVAILABLE: "The high watermark has not yet caught up after a change of leader.",
    Errors.MEMBER_ID_REQUIRED: "Join again with the member id that comes with this answer.",
    Errors.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader is not available.",
    Errors.GROUP_MAX_SIZE_REACHED: "The group has as many members as group.max.size allows.",
    Errors.FENCED_INSTANCE_ID: "Another member has taken over this group.instance.id.",
    Errors.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica that may become leader is available.",
    Errors.ELECTION_NOT_NEEDED: "The leader is already the wanted one.",
    Errors.NO_REASSIGNMENT_IN_PROGRESS: "No reassignment of this partition is under way.",
    Errors.GROUP_SUBSCRIBED_TO_TOPIC: "The group is subscribed to this topic.",
    Errors.INVALID_RECORD: "A record breaks the rules of its format or its topic.",
    Errors.UNSTABLE_OFFSET_COMMIT: "A transaction that commits offsets of this partition is still open.",
    Errors.THROTTLING_QUOTA_EXCEEDED: "The quota is used up; try again later.",
    Errors.PRODUCER_FENCED: "A newer producer of the same transactional id has taken over.",
    Errors.RESOURCE_NOT_FOUND: "The request names something that does not exist.",
    Errors.DUPLICATE_RESOURCE: "The request names something twice, or something that exists.",
    Errors.UNACCEPTABLE_CREDENTIAL: "The credential does not meet the requirements.",
    Errors.INCONSISTENT_VOTER_SET: "The voters differ between sender and receiver.",
    Errors.INVALID_UPDATE_VERSION: "The version of the update is not valid.",
    Errors.FEATURE_UPDATE_FAILED: "The feature could not be updated.",
    Errors.PRINCIPAL_DESERIALIZATION_FAILURE: "The forwarded principal could not be read.",
    Errors.SNAPSHOT_NOT_FOUND: "No such snapshot.",
    Errors.UNKNOWN_TOPIC_ID: "This broker hosts no topic of that id.",
    Errors.DUPLICATE_BROKER_REGISTRATION: "A broker of this id is already registered.",
    Errors.BROKER_ID_NOT_REGISTERED: "No broker of this id is registered.",
    Errors.INCONSISTENT_TOPIC_ID: "The topic's id is not the one that the log has.",
    Errors.INCONSISTENT_CLUSTER_ID: "The cluster's id is not the one that this broker belongs to.",
    Errors.TRANSACTIONAL_ID_NOT_FOUND: "No such transactional id.",
    Errors.FETCH_SESSION_TOPIC_ID_ERROR: "The fetch session began with another use of topic ids.",
    Errors.INELIGIBLE_REPLICA: "The replica may not join the in-sync replicas.",
    Errors.NEW_LEADER_ELECTED: "The change was made, and it elected a new leader.",
    Errors.OFFSET_MOVED_TO_TIERED_STORAGE: "The offset has moved to tiered storage.",
    Errors.FENCED_MEMBER_EPOCH: "The member's epoch was fenced; join again.",
    Errors.UNRELEASED_INSTANCE_ID: "Another member still holds this instance id.",
    Errors.UNSUPPORTED_ASSIGNOR: "The broker does not offer this assignor.",
    Errors.STALE_MEMBER_EPOCH: "The member's epoch is old; take the new one from the next heartbeat.",
    Errors.MISMATCHED_ENDPOINT_TYPE: "The request was sent to the wrong kind of endpoint.",
    Errors.UNSUPPORTED_ENDPOINT_TYPE: "This kind of endpoint is not supported.",
    Errors.UNKNOWN_CONTROLLER_ID: "No controller of this id.",
    Errors.UNKNOWN_SUBSCRIPTION_ID: "The client's telemetry subscription is not the current one.",
    Errors.TELEMETRY_TOO_LARGE: "The client's telemetry is larger than the broker accepts.",
    Errors.INVALID_REGISTRATION: "The registration of the controller is not valid.",
    Errors.TRANSACTION_ABORTABLE: "The transaction can only be aborted now.",
    Errors.INVALID_RECORD_STATE: "The record's state does not allow this operation.",
    Errors.SHARE_SESSION_NOT_FOUND: "No such share session.",
    Errors.INVALID_SHARE_SESSION_EPOCH: "The epoch of the share session is not the expected one.",
    Errors.FENCED_STATE_EPOCH: "The state's epoch was fenced.",
    Errors.INVALID_VOTER_KEY: "The voter's key does not fit the directory id that the receiver has.",
    Errors.DUPLICATE_VOTER: "This voter is already in the set.",
    Errors.VOTER_NOT_FOUND: "This voter is not in the set.",
}


def name_of(code: int) -> str:
    """Return Kafka's name of an error code, or `UNKNOWN_CODE_<code>` for a code that Kafka 3.9 does not have."""
    return _NAMES.get(code) or f"UNKNOWN_CODE_{code}"


def is_retriable(code: int) -> bool:
    """Return True if a client that gets this error code may send the same request again and may then succeed."""
    return code in _RETRIABLE


def message_of(code: int) -> str:
    """Return a sentence that explains the error code to a person, for errors without a message of their own."""
    return _MESSAGES.get(code) or f"Error code {code}."


class KafkaError(Exception):
    """An error that concerns one partition, topic or other part of a request. Handlers put it into the response.

    `code` is one of `Errors`; `message` is a sentence for the person who gets the response.
    """

    def __init__(self, code: int, message: str | None = None) -> None:
        self.code = code
        self.message = message_of(code) if message is None else message
        super().__init__(code, self.message)

    def __str__(self) -> str:
        return f"{name_of(self.code)}: {self.message}"

    def as_value(self) -> "KafkaError":
        """Return this exception itself, after removing its traceback, cause and context.

        A traceback keeps the local variables of its functions alive. An error that waits to be sent would thus keep the
        decompressed and converted records in memory, which may be a hundred times the size of the request.
        """
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


class UnsupportedVersion(KafkaError):
    """The API version does not exist, or a field has a value that this version cannot carry."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(Errors.UNSUPPORTED_VERSION, message)


class ProtocolError(Exception):
    """A frame that breaks the protocol. The receiver closes the connection that it came from."""
