"""Requests of every API, with the rights that they are denied: one or more cases for each row of
tests/data/facts/authorization-3.9.tsv. `tests.harness.authorization` sends them to a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkapy.protocol import apis
from kafkapy.record.batch import build
from kafkapy.server.admission import CLUSTER, Action
from tests.harness.wire import Producer

Actions = Sequence[Action]

# What `tests.harness.authorization.prepare` makes: topics with one partition and one record, groups with an offset of
# each of the topics, and transactional ids with one transaction, of the first.
TOPICS = ("a", "b", "c")
ZSTD = "zstd"  # a topic with compression.type=zstd, and not converted for old consumers
DELETABLE = ("d1", "d2", "d3")
GROUPS = ("g1", "g2", "g3")
IDS = ("x1", "x2", "x3")
MISSING = "missing"
NAMES = (*TOPICS, MISSING)
USER = "alice"
ZERO = bytes(16)
UNKNOWN_ID = bytes(15) + b"\7"


class World(NamedTuple):
    """What requests have to know of a broker."""

    topic_ids: Mapping[str, bytes]
    producers: Mapping[str, Producer]  # by transactional id


class Raw(NamedTuple):
    """The body of a request of an API that kafkapy does not serve."""

    key: int
    version: int
    body: bytes


class Case(NamedTuple):
    """A request, and the actions that are denied to its sender.

    row        the API and the resource of the facts' rows (columns 1 and 3) that the case is about, the operation, too,
               where the row would not be clear otherwise
    api        the name of the API in `kafkapy.protocol.apis`, or "" for a Raw
    denials    for each variant the denied actions: "denied" is everything that the request needs, "one" is for one of
               three resources; other names say what is denied
    exact      the variants whose response is compared byte for byte
    masked     fields that are not compared: random, or a text of the broker's own
    instead    why the response to a variant is not Kafka's, and all error codes that it has; None if the connection is
               closed
    allowed    "codes": the sender who may do everything gets the error codes that Kafka answers. "undenied": only that
               nothing is denied. "no": the variant is not sent
    silent     no response is expected to these variants, or the end of the connection
    """

    row: tuple[str, str]
    name: str
    api: str
    version: int
    request: Callable[[World], Any]
    denials: Mapping[str, Actions]
    exact: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    instead: Mapping[str, tuple[str, tuple[int, ...] | None]] = {}
    allowed: str = "codes"
    silent: tuple[str, ...] = ()


def on(operation: str, resource_type: str, *names: str) -> list[Action]:
    return [Action(operation, resource_type, name) for name in names]


def cluster(operation: str) -> list[Action]:
    return on(operation, "CLUSTER", CLUSTER)


def each(operation: str, resource_type: str, names: Iterable[str], one: str, *more: Action) -> dict[str, Actions]:
    """Return the denials of a right on all of the resources, and on one of them."""
    return {
        "denied": [*more, *on(operation, resource_type, *names)],
        "one": [*more, *on(operation, resource_type, one)],
    }


def _batch(world: World, transactional: bool = False) -> bytes:
    fields: dict[str, Any] = {}
    if transactional:
        producer = world.producers[IDS[0]]
        fields = {
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "base_sequence": 0,
            "transactional": True,
        }
    return build([(1_600_000_000_000, None, b"v", [])], **fields)


def _produce(
    world: World, names: Iterable[str], transactional_id: str | None = None, *, acks: int = 1, txn: bool
) -> Any:
    make = apis.PRODUCE.Request
    return make(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=5000,
        topic_data=[
            make.TopicData(
                name=name, partition_data=[make.TopicData.PartitionData(index=0, records=_batch(world, txn))]
            )
            for name in names
        ],
    )


def _fetch(world: World, names: Iterable[str], *, by_id: bool = False, replica: int | None = None) -> Any:
    make = apis.FETCH.Request
    message = make(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=-1,
        topics=[
            make.Topics(
                topic="" if by_id else name,
                topic_id=world.topic_ids.get(name, UNKNOWN_ID) if by_id else ZERO,
                partitions=[make.Topics.Partitions(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
            )
            for name in names
        ],
    )
    if replica is not None:
        message.replica_id = replica
    return message


def _list_offsets(names: Iterable[str]) -> Any:
    make = apis.LIST_OFFSETS.Request
    partition = make.Topics.Partitions(partition_index=0, timestamp=-2)
    return make(replica_id=-1, topics=[make.Topics(name=name, partitions=[partition]) for name in names])


def _metadata(world: World, names: Iterable[str] | None, *, by_id: bool = False, **fields: Any) -> Any:
    make = apis.METADATA.Request
    topics = None
    if names is not None:
        topics = [
            make.Topics(name=None, topic_id=world.topic_ids.get(name, UNKNOWN_ID)) if by_id else make.Topics(name=name)
            for name in names
        ]
    return make(topics=topics, **{"allow_auto_topic_creation": False, **fields})


def _roles(world: World) -> Any:
    make = apis.LEADER_AND_ISR.Request
    return make(
        controller_id=0,
        controller_epoch=0,
        broker_epoch=-1,
        topic_states=[
            make.TopicStates(
                topic_name=name,
                topic_id=world.topic_ids[name],
                partition_states=[
                    make.TopicStates.PartitionStates(
                        partition_index=0,
                        controller_epoch=0,
                        leader=0,
                        leader_epoch=0,
                        isr=[0],
                        partition_epoch=0,
                        replicas=[0],
                        adding_replicas=[],
                        removing_replicas=[],
                    )
                ],
            )
            for name in TOPICS
        ],
        live_leaders=[],
    )


def _stop(world: World) -> Any:
    make = apis.STOP_REPLICA.Request
    states = make.TopicStates
    return make(
        controller_id=0,
        controller_epoch=0,
        broker_epoch=-1,
        topic_states=[
            states(
                topic_name=name,
                partition_states=[states.PartitionStates(partition_index=0, leader_epoch=0, delete_partition=False)],
            )
            for name in TOPICS
        ],
    )


def _update_metadata(world: World) -> Any:
    return apis.UPDATE_METADATA.Request(
        controller_id=0, controller_epoch=0, broker_epoch=-1, topic_states=[], live_brokers=[]
    )


def _commit(group: str, names: Iterable[str] = NAMES) -> Any:
    make = apis.OFFSET_COMMIT.Request
    partition = make.Topics.Partitions(partition_index=0, committed_offset=1, committed_metadata="")
    return make(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[make.Topics(name=name, partitions=[partition]) for name in names],
    )


def _fetch_offsets(group: str, names: Iterable[str] | None) -> Any:
    make = apis.OFFSET_FETCH.Request
    topics = None if names is None else [make.Topics(name=name, partition_indexes=[0]) for name in names]
    return make(group_id=group, topics=topics)


def _fetch_offsets_of_groups(groups: Iterable[str], names: Iterable[str] | None) -> Any:
    make = apis.OFFSET_FETCH.Request
    topics = None if names is None else [make.Groups.Topics(name=name, partition_indexes=[0]) for name in names]
    return make(groups=[make.Groups(group_id=group, topics=topics) for group in groups])


def _join(group: str) -> Any:
    make = apis.JOIN_GROUP.Request
    return make(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[make.Protocols(name="range", metadata=b"")],
    )


def _create_topics(names: Iterable[str]) -> Any:
    make = apis.CREATE_TOPICS.Request
    topics = [
        make.Topics(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    return make(topics=topics, timeout_ms=30_000, validate_only=True)


def _delete_topics(world: World, *, by_id: bool) -> Any:
    make = apis.DELETE_TOPICS.Request
    if not by_id:
        return make(topic_names=[*DELETABLE, MISSING], timeout_ms=30_000)
    topics = [make.Topics(name=None, topic_id=world.topic_ids.get(name, UNKNOWN_ID)) for name in (*TOPICS, MISSING)]
    return make(topics=topics, timeout_ms=30_000)


def _delete_records() -> Any:
    make = apis.DELETE_RECORDS.Request
    partition = make.Topics.Partitions(partition_index=0, offset=0)
    return make(topics=[make.Topics(name=name, partitions=[partition]) for name in NAMES], timeout_ms=10_000)


def _epochs() -> Any:
    make = apis.OFFSET_FOR_LEADER_EPOCH.Request
    partition = make.Topics.Partitions(partition=0, leader_epoch=0)
    return make(replica_id=-1, topics=[make.Topics(topic=name, partitions=[partition]) for name in NAMES])


def _add_partitions(world: World, names: Iterable[str]) -> Any:
    make = apis.ADD_PARTITIONS_TO_TXN.Request
    producer = world.producers[IDS[0]]
    return make(
        v3_and_below_transactional_id=IDS[0],
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[make.V3AndBelowTopics(name=name, partitions=[0]) for name in names],
    )


def _verify(world: World) -> Any:
    make = apis.ADD_PARTITIONS_TO_TXN.Request
    one = make.Transactions
    producer = world.producers[IDS[0]]
    return make(
        transactions=[
            one(
                transactional_id=IDS[0],
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                verify_only=True,
                topics=[one.Topics(name=TOPICS[0], partitions=[0])],
            )
        ]
    )


def _markers() -> Any:
    make = apis.WRITE_TXN_MARKERS.Request
    topics = [make.Markers.Topics(name=name, partition_indexes=[0]) for name in NAMES]
    marker = make.Markers(
        producer_id=4711, producer_epoch=0, transaction_result=False, coordinator_epoch=0, topics=topics
    )
    return make(markers=[marker])


def _commit_in_transaction(world: World) -> Any:
    make = apis.TXN_OFFSET_COMMIT.Request
    producer = world.producers[IDS[0]]
    partition = make.Topics.Partitions(partition_index=0, committed_offset=1, committed_metadata="")
    return make(
        transactional_id=IDS[0],
        group_id=GROUPS[0],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        member_id="",
        topics=[make.Topics(name=name, partitions=[partition]) for name in NAMES],
    )


def _describe_configs(*resources: tuple[int, str]) -> Any:
    make = apis.DESCRIBE_CONFIGS.Request
    return make(
        resources=[
            make.Resources(resource_type=kind, resource_name=name, configuration_keys=["retention.ms"])
            for kind, name in resources
        ]
    )


def _alter_configs(api: Any, resources: Iterable[tuple[int, str]], key: str = "retention.ms") -> Any:
    make = api.Request
    asked = []
    for kind, name in resources:
        config = make.Resources.Configs(name=key, value="86400000")
        if api is apis.INCREMENTAL_ALTER_CONFIGS:
            config.config_operation = 0
        asked.append(make.Resources(resource_type=kind, resource_name=name, configs=[config]))
    return make(resources=asked, validate_only=True)


def _create_partitions() -> Any:
    make = apis.CREATE_PARTITIONS.Request
    topics = [make.Topics(name=name, count=2, assignments=None) for name in NAMES]
    return make(topics=topics, timeout_ms=10_000, validate_only=True)


def _by_topic(make: Any, field: str = "name", indexes: str = "partitions", names: Iterable[str] = TOPICS) -> list[Any]:
    return [make(**{field: name, indexes: [0]}) for name in names]


def _alter_scram() -> Any:
    make = apis.ALTER_USER_SCRAM_CREDENTIALS.Request
    return make(
        deletions=[make.Deletions(name=name, mechanism=1) for name in ("zoe", "bob")],
        upsertions=[],
    )


def _alter_partition(world: World) -> Any:
    return apis.ALTER_PARTITION.Request(broker_id=0, broker_epoch=-2, topics=[])


def _token(owner: str | None) -> Any:
    owned = {} if owner is None else {"owner_principal_type": "User", "owner_principal_name": owner}
    return apis.CREATE_DELEGATION_TOKEN.Request(renewers=[], max_lifetime_ms=-1, **owned)


def _acl(api: str) -> Any:
    make = getattr(apis, api).Request
    if api == "DESCRIBE_ACLS":
        return make(
            resource_type_filter=2,
            resource_name_filter="nowhere",
            pattern_type_filter=3,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
    if api == "CREATE_ACLS":
        one = make.Creations(
            resource_type=2,
            resource_name="nowhere",
            resource_pattern_type=3,
            principal="User:nobody",
            host="*",
            operation=3,
            permission_type=3,
        )
        return make(creations=[one, one])
    one = make.Filters(
        resource_type_filter=2,
        resource_name_filter="nowhere",
        pattern_type_filter=3,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    return make(filters=[one, one])


def _alter_quotas() -> Any:
    make = apis.ALTER_CLIENT_QUOTAS.Request  # type: ignore[attr-defined]
    entity = make.Entries.Entity(entity_type="client-id", entity_name="nobody")
    ops = [make.Entries.Ops(key="producer_byte_rate", value=1e9, remove=False)]
    return make(entries=[make.Entries(entity=[entity], ops=ops)], validate_only=True)


_CLUSTER = "Cluster:kafka-cluster"
_TOPIC, _GROUP, _ID = "TOPIC", "GROUP", "TRANSACTIONAL_ID"
TOPIC_RESOURCES = [(2, name) for name in NAMES]
_GROUP_DENIED, _TOPIC_DENIED, _CLUSTER_DENIED = 30, 29, 31
_MESSAGE = ("error_message",)  # those of denials are Kafka's, others are kafkapy's own
_BROKERS_TOPICS = "LeaderAndIsr (4), StopReplica (5), UpdateMetadata (6), ControlledShutdown (7)"
_NOT_SERVED = (
    "UnregisterBroker (64), DescribeQuorum (55), GetTelemetrySubscriptions (71), PushTelemetry (72), "
    "ListClientMetricsResources (74), DescribeTopicPartitions (75), ShareGroup* (76-79), raft voters (80-82), "
    "share state (83-87), Vote .. FetchSnapshot (52-54, 59), BrokerRegistration .. (62, 63, 70, 73)"
)

CASES: list[Case] = [
    # --- produce and fetch
    Case(
        ("Produce (0)", "TransactionalId:the request's"),
        "produce in a transaction",
        "PRODUCE",
        11,
        lambda world: _produce(world, NAMES, IDS[0], txn=True),
        {"denied": on("WRITE", _ID, IDS[0])},
        allowed="undenied",
        masked=_MESSAGE,
    ),
    Case(
        ("Produce (0)", "TransactionalId:the request's"),
        "produce a transactional batch without an id",
        "PRODUCE",
        11,
        lambda world: _produce(world, NAMES, None, txn=True),
        {"denied": []},
        allowed="no",
        masked=_MESSAGE,
    ),
    Case(
        ("Produce (0)", "Topic, each"),
        "produce",
        "PRODUCE",
        11,
        lambda world: _produce(world, NAMES, txn=False),
        each("WRITE", _TOPIC, NAMES, "b"),
        masked=_MESSAGE,
    ),
    Case(
        ("Produce (0)", "Topic, each"),
        "produce with acks=0",
        "PRODUCE",
        11,
        lambda world: _produce(world, TOPICS, acks=0, txn=False),
        each("WRITE", _TOPIC, TOPICS, "b"),
        allowed="no",
        silent=("denied", "one"),
        masked=_MESSAGE,
    ),
    Case(
        ("Fetch (1), consumer (replica id < 0)", "Topic, each"),
        "fetch",
        "FETCH",
        12,
        lambda world: _fetch(world, NAMES),
        each("READ", _TOPIC, NAMES, "b"),
        exact=("denied", "one"),
    ),
    Case(
        ("Fetch (1), consumer (replica id < 0)", "Topic, each"),
        "fetch by id",
        "FETCH",
        16,
        lambda world: _fetch(world, NAMES, by_id=True),
        each("READ", _TOPIC, NAMES, "b"),
        exact=("denied", "one"),
    ),
    Case(
        ("Fetch (1), consumer (replica id < 0)", "Topic, each"),
        "fetch zstd in an old version",
        "FETCH",
        9,
        lambda world: _fetch(world, [ZSTD]),
        {"denied": on("READ", _TOPIC, ZSTD)},
        instead={"denied": ("Kafka's error tells that the topic exists", (_TOPIC_DENIED,))},
    ),
    Case(
        ("Fetch (1), consumer (replica id < 0)", "Topic, each"),
        "fetch without conversion",
        "FETCH",
        3,
        lambda world: _fetch(world, [ZSTD]),
        {"denied": on("READ", _TOPIC, ZSTD)},
        instead={"denied": ("Kafka's error tells that the topic exists", (_TOPIC_DENIED,))},
        allowed="undenied",
    ),
    Case(
        ("Fetch (1), follower (replica id >= 0)", _CLUSTER),
        "fetch of a follower",
        "FETCH",
        12,
        lambda world: _fetch(world, NAMES, replica=1),
        {"denied": cluster("CLUSTER_ACTION")},
        exact=("denied",),
        allowed="undenied",
    ),
    *(
        Case(
            ("ListOffsets (2)", "Topic, each"),
            f"list offsets v{version}",
            "LIST_OFFSETS",
            version,
            lambda world: _list_offsets(NAMES),
            each("DESCRIBE", _TOPIC, NAMES, "b"),
            exact=("denied", "one"),
        )
        for version in (0, 1, 9)
    ),
    # --- metadata
    *(
        Case(
            ("Metadata (3)", "Topic, each"),
            f"metadata v{version}",
            "METADATA",
            version,
            lambda world: _metadata(world, NAMES),
            each("DESCRIBE", _TOPIC, NAMES, "b"),
        )
        for version in (4, 9, 12)
    ),
    Case(
        ("Metadata (3)", "Topic, each"),
        "metadata by id",
        "METADATA",
        12,
        lambda world: _metadata(world, NAMES, by_id=True),
        each("DESCRIBE", _TOPIC, NAMES, "b"),
    ),
    Case(
        ("Metadata (3)", "Topic, each"),
        "metadata of all topics",
        "METADATA",
        12,
        lambda world: _metadata(world, None),
        {"one": on("DESCRIBE", _TOPIC, "b", "__consumer_offsets", "__transaction_state", ZSTD, *DELETABLE)},
        allowed="undenied",
    ),
    Case(
        ("Metadata (3), auto-creation", "Cluster:kafka-cluster or else Topic, each"),
        "metadata with creation",
        "METADATA",
        12,
        lambda world: _metadata(world, ["new", "a"], allow_auto_topic_creation=True),
        {"denied": [*cluster("CREATE"), *on("CREATE", _TOPIC, "new", "a")]},
        allowed="no",
    ),
    Case(
        ("Metadata (3), include_cluster_authorized_operations (v8-10)", _CLUSTER),
        "metadata with the operations on the cluster",
        "METADATA",
        8,
        lambda world: _metadata(world, [], include_cluster_authorized_operations=True),
        {
            "denied": cluster("DESCRIBE"),
            "some operations": [*cluster("ALTER"), *cluster("CLUSTER_ACTION"), *cluster("IDEMPOTENT_WRITE")],
        },
    ),
    Case(
        ("Metadata (3), include_topic_authorized_operations (v8+)", "Topic, each answered"),
        "metadata with the operations on the topics",
        "METADATA",
        12,
        lambda world: _metadata(world, NAMES, include_topic_authorized_operations=True),
        {
            **each("DESCRIBE", _TOPIC, NAMES, "b"),
            "some operations": [*on("READ", _TOPIC, "a"), *on("ALTER", _TOPIC, "b"), *on("DELETE", _TOPIC, "b")],
        },
    ),
    # --- requests between brokers
    *(
        Case(
            (_BROKERS_TOPICS, _CLUSTER),
            name,
            api,
            version,
            request,
            {"denied": cluster("CLUSTER_ACTION")},
            exact=("denied",),
        )
        for name, api, version, request in (
            ("roles v7", "LEADER_AND_ISR", 7, _roles),
            ("roles v4", "LEADER_AND_ISR", 4, _roles),
            ("stop replicas", "STOP_REPLICA", 4, _stop),
            ("update metadata", "UPDATE_METADATA", 8, _update_metadata),
            (
                "controlled shutdown",
                "CONTROLLED_SHUTDOWN",
                3,
                lambda world: apis.CONTROLLED_SHUTDOWN.Request(broker_id=99, broker_epoch=-1),
            ),
        )
    ),
    Case(
        ("AlterPartition (56)", _CLUSTER),
        "alter partitions",
        "ALTER_PARTITION",
        3,
        _alter_partition,
        {"denied": cluster("CLUSTER_ACTION")},
        exact=("denied",),
    ),
    Case(
        ("AllocateProducerIds (67)", _CLUSTER),
        "allocate producer ids",
        "ALLOCATE_PRODUCER_IDS",
        0,
        lambda world: apis.ALLOCATE_PRODUCER_IDS.Request(broker_id=0, broker_epoch=-2),
        {"denied": cluster("CLUSTER_ACTION")},
        exact=("denied",),
    ),
    # --- offsets of groups
    *(
        Case(
            ("OffsetCommit (8)", "Group"),
            f"commit v{version}",
            "OFFSET_COMMIT",
            version,
            lambda world: _commit("g1"),
            {"denied": on("READ", _GROUP, "g1")},
            exact=("denied",),
        )
        for version in (2, 8)
    ),
    Case(
        ("OffsetCommit (8)", "Group"),
        "commit without a group id",
        "OFFSET_COMMIT",
        8,
        lambda world: _commit(""),
        {"denied": on("READ", _GROUP, "*")},
        exact=("denied",),
    ),
    Case(
        ("OffsetCommit (8)", "Topic, each"),
        "commit of topics",
        "OFFSET_COMMIT",
        8,
        lambda world: _commit("g1"),
        each("READ", _TOPIC, NAMES, "b"),
        exact=("denied", "one"),
    ),
    *(
        Case(
            ("OffsetFetch (9)", "Group, each (v8+ batched)"),
            f"committed offsets v{version}",
            "OFFSET_FETCH",
            version,
            lambda world: _fetch_offsets("g1", TOPICS),
            {"denied": on("DESCRIBE", _GROUP, "g1")},
            instead={"denied": ("Kafka's v1 has no topics, and so no error", (30, 30, 30))} if version == 1 else {},
            # Kafka has a hash table in version 0
            exact=("denied",) if version > 1 else (),
        )
        for version in (0, 1, 2, 7)
    ),
    Case(
        ("OffsetFetch (9)", "Group, each (v8+ batched)"),
        "committed offsets of groups",
        "OFFSET_FETCH",
        8,
        lambda world: _fetch_offsets_of_groups(GROUPS, TOPICS),
        each("DESCRIBE", _GROUP, GROUPS, "g2"),
        exact=("denied", "one"),
    ),
    *(
        Case(
            ("OffsetFetch (9)", "Topic, each"),
            f"committed offsets of topics v{version}",
            "OFFSET_FETCH",
            version,
            lambda world: _fetch_offsets("g1", NAMES),
            each("DESCRIBE", _TOPIC, NAMES, "b"),
        )
        for version in (0, 1, 7)
    ),
    Case(
        ("OffsetFetch (9)", "Topic, each"),
        "committed offsets of topics of groups",
        "OFFSET_FETCH",
        9,
        lambda world: _fetch_offsets_of_groups(GROUPS, NAMES),
        each("DESCRIBE", _TOPIC, NAMES, "b"),
        exact=("denied", "one"),
    ),
    Case(
        ("OffsetFetch (9)", "Topic, each"),
        "all committed offsets",
        "OFFSET_FETCH",
        9,
        lambda world: _fetch_offsets_of_groups(GROUPS, None),
        each("DESCRIBE", _TOPIC, TOPICS, "b"),
    ),
    # --- coordinators
    *(
        Case(
            (f"FindCoordinator (10), key type {kind}", resource),
            f"coordinator of {what} v{version}",
            "FIND_COORDINATOR",
            version,
            lambda world, kind=kind, keys=keys, version=version: (
                apis.FIND_COORDINATOR.Request(key_type=kind, coordinator_keys=list(keys))
                if version >= 4
                else apis.FIND_COORDINATOR.Request(key=keys[0], key_type=kind)
            ),
            denials if version >= 4 else {"denied": denials["denied"]},
            exact=("denied",),
        )
        for kind, resource, what, keys, denials in (
            (0, "Group, each key (v4+ batched)", "groups", GROUPS, each("DESCRIBE", _GROUP, GROUPS, "g2")),
            (1, "TransactionalId, each key", "transactions", IDS, each("DESCRIBE", _ID, IDS, "x2")),
        )
        for version in (1, 3, 4, 6)
    ),
    Case(
        ("FindCoordinator (10), key type 2 (v6)", _CLUSTER),
        "coordinator of a share group",
        "FIND_COORDINATOR",
        6,
        lambda world: apis.FIND_COORDINATOR.Request(key_type=2, coordinator_keys=["k"]),
        {"denied": cluster("CLUSTER_ACTION")},
        exact=("denied",),
    ),
    # --- groups
    *(
        Case(
            ("JoinGroup (11)", "Group"),
            f"join v{version}",
            "JOIN_GROUP",
            version,
            lambda world: _join("g1"),
            {"denied": on("READ", _GROUP, "g1")},
            exact=("denied",),
        )
        for version in (5, 9)
    ),
    Case(
        ("Heartbeat (12), LeaveGroup (13)", "Group"),
        "heartbeat",
        "HEARTBEAT",
        4,
        lambda world: apis.HEARTBEAT.Request(group_id="g1", generation_id=1, member_id="m"),
        {"denied": on("READ", _GROUP, "g1")},
        exact=("denied",),
    ),
    *(
        Case(
            ("Heartbeat (12), LeaveGroup (13)", "Group"),
            f"leave v{version}",
            "LEAVE_GROUP",
            version,
            lambda world, version=version: (
                apis.LEAVE_GROUP.Request(group_id="g1", members=[apis.LEAVE_GROUP.Request.Members(member_id="m")])
                if version >= 3
                else apis.LEAVE_GROUP.Request(group_id="g1", member_id="m")
            ),
            {"denied": on("READ", _GROUP, "g1")},
            exact=("denied",),
        )
        for version in (1, 5)
    ),
    *(
        Case(
            ("SyncGroup (14)", "Group"),
            name,
            "SYNC_GROUP",
            5,
            lambda world, kind=kind: apis.SYNC_GROUP.Request(
                group_id="g1",
                generation_id=1,
                member_id="m",
                protocol_type=kind,
                protocol_name=kind,
                assignments=[],
            ),
            {"denied": on("READ", _GROUP, "g1")},
            exact=("denied",),
        )
        for name, kind in (("sync", "range"), ("sync without a protocol", None))
    ),
    Case(
        ("DescribeGroups (15)", "Group, each"),
        "describe groups",
        "DESCRIBE_GROUPS",
        5,
        lambda world: apis.DESCRIBE_GROUPS.Request(groups=list(GROUPS), include_authorized_operations=True),
        {
            **each("DESCRIBE", _GROUP, GROUPS, "g2"),
            "some operations": [*on("READ", _GROUP, "g1"), *on("DELETE", _GROUP, "g2")],
        },
        exact=("denied", "one", "some operations"),
    ),
    Case(
        ("ListGroups (16)", "Cluster:kafka-cluster or else Group, each"),
        "list groups",
        "LIST_GROUPS",
        5,
        lambda world: apis.LIST_GROUPS.Request(states_filter=[], types_filter=[]),
        {
            **each("DESCRIBE", _GROUP, GROUPS, "g2", *cluster("DESCRIBE")),
            "only the groups": on("DESCRIBE", _GROUP, *GROUPS),
        },
    ),
    Case(
        ("DeleteGroups (42)", "Group, each"),
        "delete groups",
        "DELETE_GROUPS",
        2,
        lambda world: apis.DELETE_GROUPS.Request(groups_names=["n1", "n2", "n3"]),
        each("DELETE", _GROUP, ("n1", "n2", "n3"), "n2"),
        exact=("denied", "one"),
    ),
    Case(
        ("OffsetDelete (47)", "Group"),
        "delete offsets",
        "OFFSET_DELETE",
        0,
        lambda world: _delete_offsets(),
        {"denied": on("DELETE", _GROUP, "n1")},
        exact=("denied",),
    ),
    Case(
        ("OffsetDelete (47)", "Topic, each"),
        "delete offsets of topics",
        "OFFSET_DELETE",
        0,
        lambda world: _delete_offsets("g3"),
        each("READ", _TOPIC, NAMES, "b"),
        exact=("denied",),
    ),
    # --- logins
    Case(
        ("SaslHandshake (17), SaslAuthenticate (36)", "-"),
        "handshake after the login",
        "SASL_HANDSHAKE",
        1,
        lambda world: apis.SASL_HANDSHAKE.Request(mechanism="PLAIN"),
        {},
    ),
    Case(
        ("ApiVersions (18)", "-"),
        "versions",
        "API_VERSIONS",
        3,
        lambda world: apis.API_VERSIONS.Request(client_software_name="t", client_software_version="1"),
        {},
        allowed="undenied",
    ),
    # --- topics
    Case(
        ("CreateTopics (19)", "Cluster:kafka-cluster or else Topic, each"),
        "create topics",
        "CREATE_TOPICS",
        7,
        lambda world: _create_topics(("new1", "new2", "a")),
        {
            "denied": [*cluster("CREATE"), *on("CREATE", _TOPIC, "new1", "new2", "a")],
            "one": [*cluster("CREATE"), *on("CREATE", _TOPIC, "new2", "a")],
        },
        masked=("configs",),
        exact=("denied",),
    ),
    Case(
        ("CreateTopics (19)", "Cluster:kafka-cluster or else Topic, each"),
        "create topics, all of it denied",
        "CREATE_TOPICS",
        7,
        lambda world: _create_topics(("new1", "new2", "a", "__cluster_metadata")),
        {
            "denied": [
                *cluster("CREATE"),
                *on("CREATE", _TOPIC, "new1", "new2", "a"),
                *on("DESCRIBE_CONFIGS", _TOPIC, "new1", "new2", "a"),
            ]
        },
        masked=_MESSAGE,
        allowed="no",
    ),
    Case(
        ("CreateTopics (19), configs in the answer (v5+)", "Topic, each"),
        "create topics with configurations",
        "CREATE_TOPICS",
        7,
        lambda world: _create_topics(("new1", "new2", "a")),
        each("DESCRIBE_CONFIGS", _TOPIC, ("new1", "new2", "a"), "new2"),
        masked=("configs", "error_message"),
    ),
    Case(
        ("DeleteTopics (20)", "Topic, each"),
        "delete topics by id",
        "DELETE_TOPICS",
        6,
        lambda world: _delete_topics(world, by_id=True),
        {
            "denied": [*on("DELETE", _TOPIC, *TOPICS), *on("DESCRIBE", _TOPIC, *TOPICS)],
            "only their deletion": on("DELETE", _TOPIC, *TOPICS),
            "only their description": on("DESCRIBE", _TOPIC, *TOPICS),
            "one": [*on("DELETE", _TOPIC, "a", "c"), *on("DESCRIBE", _TOPIC, "b")],
        },
        masked=_MESSAGE,
        allowed="no",
    ),
    Case(
        ("DeleteTopics (20)", "Topic, each"),
        "delete topics",
        "DELETE_TOPICS",
        5,
        lambda world: _delete_topics(world, by_id=False),
        each("DELETE", _TOPIC, (*DELETABLE, MISSING), "d2"),
        masked=_MESSAGE,
    ),
    Case(
        ("DeleteRecords (21)", "Topic, each"),
        "delete records",
        "DELETE_RECORDS",
        2,
        lambda world: _delete_records(),
        each("DELETE", _TOPIC, NAMES, "b"),
    ),
    Case(
        ("CreatePartitions (37)", "Topic, each"),
        "create partitions",
        "CREATE_PARTITIONS",
        3,
        lambda world: _create_partitions(),
        {"denied": on("ALTER", _TOPIC, *NAMES), "one": on("ALTER", _TOPIC, "b", MISSING)},
    ),
    # --- transactions
    Case(
        ("InitProducerId (22), with transactional id", "TransactionalId"),
        "producer id for a transactional id",
        "INIT_PRODUCER_ID",
        5,
        lambda world: apis.INIT_PRODUCER_ID.Request(transactional_id=IDS[1], transaction_timeout_ms=60_000),
        {"denied": on("WRITE", _ID, IDS[1])},
        exact=("denied",),
    ),
    Case(
        (
            "InitProducerId (22), without",
            "Cluster:kafka-cluster, or else authorizeByResourceType(Write, Topic)",
        ),
        "producer id",
        "INIT_PRODUCER_ID",
        5,
        lambda world: apis.INIT_PRODUCER_ID.Request(transactional_id=None, transaction_timeout_ms=60_000),
        {"denied": [*cluster("IDEMPOTENT_WRITE"), *on("WRITE", _TOPIC, "*")]},
        exact=("denied",),
    ),
    Case(
        ("OffsetForLeaderEpoch (23)", "Cluster:kafka-cluster, or else Topic, each"),
        "leader epochs",
        "OFFSET_FOR_LEADER_EPOCH",
        4,
        lambda world: _epochs(),
        {
            **each("DESCRIBE", _TOPIC, NAMES, "b", *cluster("CLUSTER_ACTION")),
            "only the topics": on("DESCRIBE", _TOPIC, *NAMES),
        },
        exact=("denied", "one", "only the topics"),
    ),
    Case(
        ("AddPartitionsToTxn (24) v4+", _CLUSTER),
        "verify a transaction",
        "ADD_PARTITIONS_TO_TXN",
        4,
        _verify,
        {"denied": cluster("CLUSTER_ACTION")},
        exact=("denied",),
    ),
    Case(
        ("AddPartitionsToTxn (24) v0-3", "TransactionalId"),
        "add partitions",
        "ADD_PARTITIONS_TO_TXN",
        3,
        lambda world: _add_partitions(world, TOPICS),
        {"denied": on("WRITE", _ID, IDS[0])},
    ),
    Case(
        ("AddPartitionsToTxn (24) v0-3", "Topic, each"),
        "add partitions of topics",
        "ADD_PARTITIONS_TO_TXN",
        3,
        lambda world: _add_partitions(world, NAMES),
        each("WRITE", _TOPIC, NAMES, "b"),
    ),
    Case(
        ("AddPartitionsToTxn (24) v0-3", "Topic, each"),
        "add partitions of an internal topic",
        "ADD_PARTITIONS_TO_TXN",
        3,
        lambda world: _add_partitions(world, ("a", "__consumer_offsets")),
        {},
    ),
    Case(
        ("AddOffsetsToTxn (25)", "TransactionalId, then Group"),
        "add offsets",
        "ADD_OFFSETS_TO_TXN",
        4,
        lambda world: apis.ADD_OFFSETS_TO_TXN.Request(
            transactional_id=IDS[0], producer_id=world.producers[IDS[0]].id, producer_epoch=0, group_id="g1"
        ),
        {
            "denied": [*on("WRITE", _ID, IDS[0]), *on("READ", _GROUP, "g1")],
            "only the group": on("READ", _GROUP, "g1"),
        },
        exact=("denied", "only the group"),
    ),
    Case(
        ("TxnOffsetCommit (28)", "TransactionalId, then Group"),
        "commit in a transaction",
        "TXN_OFFSET_COMMIT",
        4,
        _commit_in_transaction,
        {
            "denied": [*on("WRITE", _ID, IDS[0]), *on("READ", _GROUP, "g1"), *on("READ", _TOPIC, *NAMES)],
            "only the group": [*on("READ", _GROUP, "g1"), *on("READ", _TOPIC, *NAMES)],
        },
        exact=("denied", "only the group"),
    ),
    Case(
        ("TxnOffsetCommit (28)", "Topic, each"),
        "commit of topics in a transaction",
        "TXN_OFFSET_COMMIT",
        4,
        _commit_in_transaction,
        each("READ", _TOPIC, NAMES, "b"),
        exact=("denied", "one"),
    ),
    Case(
        ("DescribeTransactions (65)", "TransactionalId, each"),
        "describe transactions",
        "DESCRIBE_TRANSACTIONS",
        0,
        lambda world: apis.DESCRIBE_TRANSACTIONS.Request(transactional_ids=[*IDS, "none"]),
        each("DESCRIBE", _ID, (*IDS, "none"), "x2"),
        masked=("transaction_start_time_ms", "producer_id"),
        exact=("denied",),
    ),
    Case(
        ("DescribeTransactions (65)", "Topic, each of the transaction"),
        "describe topics of a transaction",
        "DESCRIBE_TRANSACTIONS",
        0,
        lambda world: apis.DESCRIBE_TRANSACTIONS.Request(transactional_ids=[IDS[0]]),
        each("DESCRIBE", _TOPIC, (*TOPICS, "__consumer_offsets"), "b"),
        masked=("transaction_start_time_ms", "producer_id"),
    ),
    Case(
        ("ListTransactions (66)", "TransactionalId, each"),
        "list transactions",
        "LIST_TRANSACTIONS",
        1,
        lambda world: apis.LIST_TRANSACTIONS.Request(state_filters=[], producer_id_filters=[]),
        each("DESCRIBE", _ID, IDS, "x2"),
        masked=("producer_id",),
    ),
    Case(
        ("EndTxn (26)", "TransactionalId"),
        "end a transaction",
        "END_TXN",
        4,
        lambda world: apis.END_TXN.Request(
            transactional_id=IDS[2], producer_id=world.producers[IDS[2]].id, producer_epoch=0, committed=True
        ),
        {"denied": on("WRITE", _ID, IDS[2])},
        exact=("denied",),
    ),
    Case(
        ("WriteTxnMarkers (27)", _CLUSTER),
        "transaction markers",
        "WRITE_TXN_MARKERS",
        1,
        lambda world: _markers(),
        {
            "denied": [*cluster("ALTER"), *cluster("CLUSTER_ACTION")],
            "only ALTER": cluster("ALTER"),
            "only CLUSTER_ACTION": cluster("CLUSTER_ACTION"),
        },
    ),
    Case(
        ("DescribeProducers (61)", "Topic, each"),
        "describe producers",
        "DESCRIBE_PRODUCERS",
        0,
        lambda world: apis.DESCRIBE_PRODUCERS.Request(
            topics=_by_topic(
                apis.DESCRIBE_PRODUCERS.Request.Topics, indexes="partition_indexes", names=(*NAMES, "not valid")
            )
        ),
        {"denied": on("READ", _TOPIC, *NAMES), "one": on("READ", _TOPIC, "b", MISSING)},
        masked=("active_producers", "error_message"),
    ),
    # --- ACLs, quotas and users
    Case(
        ("DescribeAcls (29)", _CLUSTER),
        "describe ACLs",
        "DESCRIBE_ACLS",
        3,
        lambda world: _acl("DESCRIBE_ACLS"),
        {"denied": cluster("DESCRIBE")},
        masked=_MESSAGE,  # it names the request as a Java object
    ),
    Case(
        ("CreateAcls (30)", _CLUSTER),
        "create ACLs",
        "CREATE_ACLS",
        3,
        lambda world: _acl("CREATE_ACLS"),
        {"denied": cluster("ALTER")},
        masked=_MESSAGE,  # it names the request as a Java object
    ),
    Case(
        ("DeleteAcls (31)", _CLUSTER),
        "delete ACLs",
        "DELETE_ACLS",
        3,
        lambda world: _acl("DELETE_ACLS"),
        {"denied": cluster("ALTER")},
        masked=_MESSAGE,  # it names the request as a Java object
    ),
    Case(
        ("DescribeClientQuotas (48)", _CLUSTER),
        "describe quotas",
        "DESCRIBE_CLIENT_QUOTAS",
        1,
        lambda world: apis.DESCRIBE_CLIENT_QUOTAS.Request(components=[], strict=False),  # type: ignore[attr-defined]
        {"denied": cluster("DESCRIBE_CONFIGS")},
        exact=("denied",),
    ),
    Case(
        ("AlterClientQuotas (49)", _CLUSTER),
        "alter quotas",
        "ALTER_CLIENT_QUOTAS",
        1,
        lambda world: _alter_quotas(),
        {"denied": cluster("ALTER_CONFIGS")},
        exact=("denied",),
    ),
    Case(
        ("DescribeUserScramCredentials (50)", _CLUSTER),
        "describe users",
        "DESCRIBE_USER_SCRAM_CREDENTIALS",
        0,
        lambda world: _describe_users("zoe", "bob"),
        {"denied": cluster("DESCRIBE")},
        exact=("denied",),
    ),
    Case(
        ("DescribeUserScramCredentials (50)", _CLUSTER),
        "describe all users",
        "DESCRIBE_USER_SCRAM_CREDENTIALS",
        0,
        lambda world: apis.DESCRIBE_USER_SCRAM_CREDENTIALS.Request(users=None),
        {"denied": cluster("DESCRIBE")},
        instead={"denied": ("Kafka does not answer", (_CLUSTER_DENIED,))},
    ),
    Case(
        ("AlterUserScramCredentials (51)", _CLUSTER),
        "alter users",
        "ALTER_USER_SCRAM_CREDENTIALS",
        0,
        lambda world: _alter_scram(),
        {"denied": cluster("ALTER")},
        exact=("denied",),
    ),
    Case(
        ("CreateDelegationToken (38)", "User:the owner's principal string ('User:bob')"),
        "create a token for somebody else",
        "CREATE_DELEGATION_TOKEN",
        3,
        lambda world: _token("bob"),
        {"denied": on("CREATE_TOKENS", "USER", "User:bob")},
        exact=("denied",),
    ),
    Case(
        ("CreateDelegationToken (38)", "User:the owner's principal string ('User:bob')"),
        "create a token",
        "CREATE_DELEGATION_TOKEN",
        2,
        lambda world: _token(None),
        {"denied": on("CREATE_TOKENS", "USER", "User:bob", "User:alice")},
        exact=("denied",),
    ),
    Case(
        ("RenewDelegationToken (39), ExpireDelegationToken (40)", "the token: owner or renewer"),
        "renew a token",
        "RENEW_DELEGATION_TOKEN",
        2,
        lambda world: apis.RENEW_DELEGATION_TOKEN.Request(hmac=b"h", renew_period_ms=1000),
        {},
    ),
    Case(
        ("RenewDelegationToken (39), ExpireDelegationToken (40)", "the token: owner or renewer"),
        "expire a token",
        "EXPIRE_DELEGATION_TOKEN",
        2,
        lambda world: apis.EXPIRE_DELEGATION_TOKEN.Request(hmac=b"h", expiry_time_period_ms=1000),
        {},
    ),
    Case(
        ("DescribeDelegationToken (41)", "DelegationToken:token id, or User:owner"),
        "describe tokens",
        "DESCRIBE_DELEGATION_TOKEN",
        3,
        lambda world: apis.DESCRIBE_DELEGATION_TOKEN.Request(owners=None),
        {"denied": on("DESCRIBE_TOKENS", "USER", "User:bob")},
        exact=("denied",),
    ),
    # --- configurations
    Case(
        ("DescribeConfigs (32), topic", "Topic, each"),
        "configurations of topics",
        "DESCRIBE_CONFIGS",
        4,
        lambda world: _describe_configs(*TOPIC_RESOURCES),
        {"denied": on("DESCRIBE_CONFIGS", _TOPIC, *NAMES), "one": on("DESCRIBE_CONFIGS", _TOPIC, "b", MISSING)},
        exact=("denied", "one"),
        masked=("configs",),
    ),
    Case(
        ("DescribeConfigs (32), broker, broker logger, client metrics", _CLUSTER),
        "configurations of the broker",
        "DESCRIBE_CONFIGS",
        4,
        lambda world: _describe_configs((4, "0"), (4, ""), (8, "0"), (2, "a"), (16, "m")),
        {"denied": [*cluster("DESCRIBE_CONFIGS"), *on("DESCRIBE_CONFIGS", _TOPIC, "a")]},
        exact=("denied",),
        allowed="undenied",
    ),
    *(
        Case(
            (f"{name} ({key}), topic", "Topic, each"),
            f"{name} of topics",
            api,
            1,
            lambda world, api=api: _alter_configs(getattr(apis, api), TOPIC_RESOURCES),
            {"denied": on("ALTER_CONFIGS", _TOPIC, *NAMES), "one": on("ALTER_CONFIGS", _TOPIC, "b", MISSING)},
            exact=("denied", "one"),
        )
        for name, key, api in (
            ("AlterConfigs", 33, "ALTER_CONFIGS"),
            ("IncrementalAlterConfigs", 44, "INCREMENTAL_ALTER_CONFIGS"),
        )
    ),
    *(
        Case(
            (f"{name} ({key}), broker, client metrics", _CLUSTER),
            f"{name} of the broker",
            api,
            1,
            lambda world, api=api: _alter_configs(
                getattr(apis, api), [(4, "0"), (2, "a"), (4, "")], "message.max.bytes"
            ),
            {"denied": cluster("ALTER_CONFIGS"), "all": [*cluster("ALTER_CONFIGS"), *on("ALTER_CONFIGS", _TOPIC, "a")]},
            masked=_MESSAGE,
            allowed="undenied",
            exact=("all",),
        )
        for name, key, api in (
            ("AlterConfigs", 33, "ALTER_CONFIGS"),
            ("IncrementalAlterConfigs", 44, "INCREMENTAL_ALTER_CONFIGS"),
        )
    ),
    *(
        Case(
            (f"{name} ({key}), broker, client metrics", _CLUSTER),
            f"{name} of client metrics",
            api,
            1,
            lambda world, api=api: _alter_configs(getattr(apis, api), [(16, "m")], "interval.ms"),
            {"denied": cluster("ALTER_CONFIGS")},
            instead={"denied": ("Kafka refuses the whole request as invalid", (_CLUSTER_DENIED,))},
            allowed="undenied",
        )
        for name, key, api in (
            ("AlterConfigs", 33, "ALTER_CONFIGS"),
            ("IncrementalAlterConfigs", 44, "INCREMENTAL_ALTER_CONFIGS"),
        )
    ),
    Case(
        ("IncrementalAlterConfigs (44), broker logger", _CLUSTER),
        "log levels",
        "INCREMENTAL_ALTER_CONFIGS",
        1,
        lambda world: _alter_configs(apis.INCREMENTAL_ALTER_CONFIGS, [(8, "0"), (8, "7")], "root"),
        {"denied": cluster("ALTER_CONFIGS")},
        exact=("denied",),
        allowed="undenied",
    ),
    # --- the cluster
    Case(
        ("AlterReplicaLogDirs (34)", _CLUSTER),
        "move logs",
        "ALTER_REPLICA_LOG_DIRS",
        2,
        lambda world: apis.ALTER_REPLICA_LOG_DIRS.Request(
            dirs=[
                apis.ALTER_REPLICA_LOG_DIRS.Request.Dirs(
                    path="/nowhere", topics=_by_topic(apis.ALTER_REPLICA_LOG_DIRS.Request.Dirs.Topics)
                )
            ]
        ),
        {"denied": cluster("ALTER")},
    ),
    *(
        Case(
            ("DescribeLogDirs (35)", _CLUSTER),
            f"log directories v{version}",
            "DESCRIBE_LOG_DIRS",
            version,
            lambda world: apis.DESCRIBE_LOG_DIRS.Request(topics=None),
            {"denied": cluster("DESCRIBE")},
            exact=("denied",),
            allowed="undenied",
        )
        for version in (2, 4)
    ),
    *(
        Case(
            ("ElectLeaders (43)", _CLUSTER),
            f"elect leaders {name}",
            "ELECT_LEADERS",
            version,
            lambda world, every=every: apis.ELECT_LEADERS.Request(
                topic_partitions=None
                if every
                else _by_topic(apis.ELECT_LEADERS.Request.TopicPartitions, field="topic"),
                timeout_ms=10_000,
            ),
            {"denied": cluster("ALTER")},
        )
        for name, version, every in (("v0", 0, False), ("v2", 2, False), ("of all partitions", 2, True))
    ),
    Case(
        ("AlterPartitionReassignments (45)", _CLUSTER),
        "reassign partitions",
        "ALTER_PARTITION_REASSIGNMENTS",
        0,
        lambda world: apis.ALTER_PARTITION_REASSIGNMENTS.Request(topics=_reassignments()),
        {"denied": cluster("ALTER")},
        masked=_MESSAGE,
    ),
    Case(
        ("ListPartitionReassignments (46)", _CLUSTER),
        "list reassignments",
        "LIST_PARTITION_REASSIGNMENTS",
        0,
        lambda world: apis.LIST_PARTITION_REASSIGNMENTS.Request(
            topics=_by_topic(apis.LIST_PARTITION_REASSIGNMENTS.Request.Topics, indexes="partition_indexes")
        ),
        {"denied": cluster("DESCRIBE")},
        masked=_MESSAGE,
    ),
    Case(
        ("UpdateFeatures (57)", _CLUSTER),
        "update features",
        "UPDATE_FEATURES",
        1,
        lambda world: apis.UPDATE_FEATURES.Request(
            feature_updates=[apis.UPDATE_FEATURES.Request.FeatureUpdates(feature="f", max_version_level=1)]
        ),
        {"denied": cluster("ALTER")},
        exact=("denied",),
        allowed="undenied",
    ),
    Case(
        ("DescribeCluster (60)", "- (Cluster:kafka-cluster)"),
        "describe the cluster",
        "DESCRIBE_CLUSTER",
        1,
        lambda world: apis.DESCRIBE_CLUSTER.Request(include_cluster_authorized_operations=True),
        {"denied": cluster("DESCRIBE"), "some operations": [*cluster("ALTER"), *cluster("CREATE")]},
    ),
    # --- not served
    *(
        Case(
            (f"{name} ({key})", resource),
            name,
            "",
            0,
            lambda world, key=key, body=body: Raw(key, 0, body),
            {"denied": []},
            instead={"denied": ("Kafka answers UNSUPPORTED_VERSION; here the protocol of KIP-848 is unknown", None)},
            allowed="no",
        )
        for name, key, resource, body in (
            ("ConsumerGroupHeartbeat", 68, "Group", b"\3g1\2m" + bytes(4) + b"\0\0" + bytes(4) + bytes(4)),
            ("ConsumerGroupDescribe", 69, "Group, each", b"\2\3g1\0\0"),
        )
    ),
    *(
        Case(
            row,
            f"API {key}",
            "",
            version,
            lambda world, key=key, version=version, body=body: Raw(key, version, body),
            {"denied": []},
            allowed="no",
            silent=("denied",),
        )
        for row, key, version, body in (
            (("Envelope (58)", _CLUSTER), 58, 0, b"\0\1\1\1\0"),
            *(((_NOT_SERVED, "-"), key, 0, bytes(16)) for key in (52, 53, 54, 55, 59, 62, 63, 64, *range(70, 88))),
        )
    ),
]


def _delete_offsets(group: str = "n1") -> Any:
    make = apis.OFFSET_DELETE.Request
    partition = make.Topics.Partitions(partition_index=0)
    return make(group_id=group, topics=[make.Topics(name=name, partitions=[partition]) for name in NAMES])


def _describe_users(*names: str) -> Any:
    make = apis.DESCRIBE_USER_SCRAM_CREDENTIALS.Request
    return make(users=[make.Users(name=name) for name in names])


def _reassignments() -> list[Any]:
    make = apis.ALTER_PARTITION_REASSIGNMENTS.Request.Topics
    partition = make.Partitions(partition_index=0, replicas=None)
    return [make(name=name, partitions=[partition]) for name in TOPICS]
