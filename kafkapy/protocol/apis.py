"""The registry of Kafka's APIs: one `Api` object for each schema file in `schemas/`, compiled on first use.

All registered APIs can be encoded and decoded. The broker serves those of them that have a request handler.
"""

from functools import cached_property
from pathlib import Path
from typing import Any

from kafkapy._ext.codec import Program
from kafkapy.errors import UnsupportedVersion
from kafkapy.protocol.compiler import Field, Head, Schema, parse, parse_head
from kafkapy.protocol.layout import Layout, lay_out
from kafkapy.protocol.message import make_class

_SCHEMAS = Path(__file__).parent / "schemas"

# A 100 MB frame of two-byte elements would become gigabytes of objects and block other requests for ten seconds.
MAX_REQUEST_ELEMENTS = 1_000_000
# Kafka's controller sends each broker all partitions in one UpdateMetadata request. The largest clusters with ZooKeeper
# have 200,000 partitions. A partition with three replicas has seven elements: itself, its replicas and its ISR.
MAX_METADATA_ELEMENTS = 2_000_000

Buffer = bytes | bytearray | memoryview


class Api:
    """One API of the Kafka protocol: its key, name, versions, message classes, encoders and decoders.

    `Request` and `Response` are message classes (see module `message`). The `encode_*` methods raise UnsupportedVersion
    if the schema does not have the version or if a message sets a field that the version lacks, and ValueError if a
    value does not fit the type of its field. The `decode_*` methods raise ProtocolError for malformed bytes, and
    UnsupportedVersion.
    """

    def __init__(self, key: int, name: str, file: str, max_elements: int = MAX_REQUEST_ELEMENTS) -> None:
        self.key = key
        self.name = name
        self._file = file
        self._max_elements = max_elements  # of all arrays of a request together
        self._request_programs: dict[int, Program] = {}
        self._response_programs: dict[int, Program] = {}

    def __repr__(self) -> str:
        return f"<Api {self.key} {self.name}>"

    @cached_property
    def _text(self) -> str:
        return (_SCHEMAS / self._file).read_text(encoding="utf-8")

    @cached_property
    def _head(self) -> Head:
        return parse_head(self._text, self._file)

    @cached_property
    def _schema(self) -> Schema:
        return parse(self._text, self._file)

    @cached_property
    def min_version(self) -> int:
        """The first version of the API in the schema."""
        return self._head.versions.first

    @cached_property
    def max_version(self) -> int:
        """The last version of the API in the schema."""
        return self._head.versions.last

    @cached_property
    def flexible_from(self) -> int:
        """The API's first flexible version (KIP-482), greater than `max_version` if no version is flexible."""
        return self._head.flexible

    @cached_property
    def Request(self) -> Any:
        """The message class of the API's requests, for all versions."""
        return make_class(f"{self.name}Request", self._schema.request, __name__)

    @cached_property
    def Response(self) -> Any:
        """The message class of the API's responses, for all versions."""
        return make_class(f"{self.name}Response", self._schema.response, __name__)

    def has_version(self, version: int) -> bool:
        """Return True if the API's schema has this version."""
        return self.min_version <= version <= self.max_version

    def decode_request(self, buffer: Buffer, version: int, offset: int = 0) -> Any:
        """Return the request message decoded from `buffer`, where it begins at `offset`, right after the request
        header."""
        return self.request_program(version).decode(buffer, offset)

    def encode_request(self, message: Any, version: int) -> bytes:
        """Return the encoded request message, without a request header."""
        return self.request_program(version).encode(message)

    def decode_response(self, buffer: Buffer, version: int, offset: int = 0) -> Any:
        """Return the response message decoded from `buffer`, where it begins at `offset`, right after the response
        header."""
        return self.response_program(version).decode(buffer, offset)

    def encode_response(self, message: Any, version: int) -> bytes:
        """Return the encoded response message, without a response header."""
        return self.response_program(version).encode(message)

    def request_program(self, version: int) -> Program:
        """Return the codec (encoder and decoder) for requests of this version, compiled on first use. Raises
        UnsupportedVersion if the schema does not have the version."""
        program = self._request_programs.get(version)
        if program is None:
            layout = self._layout("request", self.Request, self._schema.request, version)
            program = Program(layout, max_elements=self._max_elements)
            self._request_programs[version] = program
        return program

    def response_program(self, version: int) -> Program:
        """Return the codec (encoder and decoder) for responses of this version, compiled on first use. Raises
        UnsupportedVersion if the schema does not have the version."""
        program = self._response_programs.get(version)
        if program is None:
            program = Program(self._layout("response", self.Response, self._schema.response, version))
            self._response_programs[version] = program
        return program

    def _layout(self, side: str, cls: type[Any], fields: tuple[Field, ...], version: int) -> Layout:
        if not self.has_version(version):
            raise UnsupportedVersion(
                f"{self.name} has the versions {self.min_version} to {self.max_version}, not {version}"
            )
        return lay_out(cls, fields, self._head, version, f"{self.name} {side} v{version}")


PRODUCE = Api(0, "Produce", "00_produce.schema")
FETCH = Api(1, "Fetch", "01_fetch.schema")
LIST_OFFSETS = Api(2, "ListOffsets", "02_list_offsets.schema")
METADATA = Api(3, "Metadata", "03_metadata.schema")
LEADER_AND_ISR = Api(4, "LeaderAndIsr", "04_leader_and_isr.schema")
STOP_REPLICA = Api(5, "StopReplica", "05_stop_replica.schema")
UPDATE_METADATA = Api(6, "UpdateMetadata", "06_update_metadata.schema", MAX_METADATA_ELEMENTS)
CONTROLLED_SHUTDOWN = Api(7, "ControlledShutdown", "07_controlled_shutdown.schema")
OFFSET_COMMIT = Api(8, "OffsetCommit", "08_offset_commit.schema")
OFFSET_FETCH = Api(9, "OffsetFetch", "09_offset_fetch.schema")
FIND_COORDINATOR = Api(10, "FindCoordinator", "10_find_coordinator.schema")
JOIN_GROUP = Api(11, "JoinGroup", "11_join_group.schema")
HEARTBEAT = Api(12, "Heartbeat", "12_heartbeat.schema")
LEAVE_GROUP = Api(13, "LeaveGroup", "13_leave_group.schema")
SYNC_GROUP = Api(14, "SyncGroup", "14_sync_group.schema")
DESCRIBE_GROUPS = Api(15, "DescribeGroups", "15_describe_groups.schema")
LIST_GROUPS = Api(16, "ListGroups", "16_list_groups.schema")
SASL_HANDSHAKE = Api(17, "SaslHandshake", "17_sasl_handshake.schema")
API_VERSIONS = Api(18, "ApiVersions", "18_api_versions.schema")
CREATE_TOPICS = Api(19, "CreateTopics", "19_create_topics.schema")
DELETE_TOPICS = Api(20, "DeleteTopics", "20_delete_topics.schema")
DELETE_RECORDS = Api(21, "DeleteRecords", "21_delete_records.schema")
INIT_PRODUCER_ID = Api(22, "InitProducerId", "22_init_producer_id.schema")
OFFSET_FOR_LEADER_EPOCH = Api(23, "OffsetForLeaderEpoch", "23_offset_for_leader_epoch.schema")
ADD_PARTITIONS_TO_TXN = Api(24, "AddPartitionsToTxn", "24_add_partitions_to_txn.schema")
ADD_OFFSETS_TO_TXN = Api(25, "AddOffsetsToTxn", "25_add_offsets_to_txn.schema")
END_TXN = Api(26, "EndTxn", "26_end_txn.schema")
WRITE_TXN_MARKERS = Api(27, "WriteTxnMarkers", "27_write_txn_markers.schema")
TXN_OFFSET_COMMIT = Api(28, "TxnOffsetCommit", "28_txn_offset_commit.schema")
DESCRIBE_ACLS = Api(29, "DescribeAcls", "29_describe_acls.schema")
CREATE_ACLS = Api(30, "CreateAcls", "30_create_acls.schema")
DELETE_ACLS = Api(31, "DeleteAcls", "31_delete_acls.schema")
DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", "32_describe_configs.schema")
ALTER_CONFIGS = Api(33, "AlterConfigs", "33_alter_configs.schema")
ALTER_REPLICA_LOG_DIRS = Api(34, "AlterReplicaLogDirs", "34_alter_replica_log_dirs.schema")
DESCRIBE_LOG_DIRS = Api(35, "DescribeLogDirs", "35_describe_log_dirs.schema")
SASL_AUTHENTICATE = Api(36, "SaslAuthenticate", "36_sasl_authenticate.schema")
CREATE_PARTITIONS = Api(37, "CreatePartitions", "37_create_partitions.schema")
CREATE_DELEGATION_TOKEN = Api(38, "CreateDelegationToken", "38_create_delegation_token.schema")
RENEW_DELEGATION_TOKEN = Api(39, "RenewDelegationToken", "39_renew_delegation_token.schema")
EXPIRE_DELEGATION_TOKEN = Api(40, "ExpireDelegationToken", "40_expire_delegation_token.schema")
DESCRIBE_DELEGATION_TOKEN = Api(41, "DescribeDelegationToken", "41_describe_delegation_token.schema")
DELETE_GROUPS = Api(42, "DeleteGroups", "42_delete_groups.schema")
ELECT_LEADERS = Api(43, "ElectLeaders", "43_elect_leaders.schema")
INCREMENTAL_ALTER_CONFIGS = Api(44, "IncrementalAlterConfigs", "44_incremental_alter_configs.schema")
ALTER_PARTITION_REASSIGNMENTS = Api(45, "AlterPartitionReassignments", "45_alter_partition_reassignments.schema")
LIST_PARTITION_REASSIGNMENTS = Api(46, "ListPartitionReassignments", "46_list_partition_reassignments.schema")
OFFSET_DELETE = Api(47, "OffsetDelete", "47_offset_delete.schema")
DESCRIBE_CLIENT_QUOTAS = Api(48, "DescribeClientQuotas", "48_describe_client_quotas.schema")
ALTER_CLIENT_QUOTAS = Api(49, "AlterClientQuotas", "49_alter_client_quotas.schema")
DESCRIBE_USER_SCRAM_CREDENTIALS = Api(50, "DescribeUserScramCredentials", "50_describe_user_scram_credentials.schema")
ALTER_USER_SCRAM_CREDENTIALS = Api(51, "AlterUserScramCredentials", "51_alter_user_scram_credentials.schema")
ALTER_PARTITION = Api(56, "AlterPartition", "56_alter_partition.schema")
UPDATE_FEATURES = Api(57, "UpdateFeatures", "57_update_features.schema")
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", "60_describe_cluster.schema")
DESCRIBE_PRODUCERS = Api(61, "DescribeProducers", "61_describe_producers.schema")
DESCRIBE_TRANSACTIONS = Api(65, "DescribeTransactions", "65_describe_transactions.schema")
LIST_TRANSACTIONS = Api(66, "ListTransactions", "66_list_transactions.schema")
ALLOCATE_PRODUCER_IDS = Api(67, "AllocateProducerIds", "67_allocate_producer_ids.schema")

APIS: dict[int, Api] = {api.key: api for api in list(vars().values()) if isinstance(api, Api)}
