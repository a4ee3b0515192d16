"""Encodings are compared with those of kio, and of kafka-python for the versions that kio does not have."""

import dataclasses
import datetime
import importlib
import io
import random
import re
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from kafkapy.protocol.apis import APIS, Api
from kafkapy.protocol.compiler import ZERO_UUID
from kafkapy.protocol.layout import Layout, Step
from tests.harness.examples import examples
from tests.protocol.random_messages import layout_of, primitive, random_message

SIDES = ("request", "response")
ERROR_CODES = [int(code) for code in ErrorCode]


def module_name(api: Api) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api.name).lower()


def kio_class(api: Api, side: str, version: int) -> Any:
    """Return kio's class for the message, or None if kio does not have the version."""
    try:
        module = importlib.import_module(f"kio.schema.{module_name(api)}.v{version}.{side}")
    except ModuleNotFoundError:
        return None
    return getattr(module, api.name + side.capitalize())


def all_versions() -> list[tuple[Api, str, int]]:
    return [
        (api, side, version)
        for api in APIS.values()
        for version in range(api.min_version, api.max_version + 1)
        for side in SIDES
    ]


IN_KIO = [case for case in all_versions() if kio_class(*case) is not None]
# These are compared only with Kafka itself (test_golden_messages): kafka-python's DescribeLogDirs v0 has one partition
# for each topic, where Kafka has a list, and its older layouts have no WriteTxnMarkers, no AlterReplicaLogDirs and no
# delegation tokens. No client has the messages that only brokers send each other.
NOT_IN_KAFKA_PYTHON = [
    ("DescribeLogDirs", "request", 0),
    ("AlterReplicaLogDirs", "request", 0),
    ("AlterReplicaLogDirs", "response", 0),
    ("WriteTxnMarkers", "request", 0),
    ("WriteTxnMarkers", "response", 0),
    *((f"{verb}DelegationToken", side, 0) for verb in ("Create", "Renew", "Expire", "Describe") for side in SIDES),
]
BETWEEN_BROKERS = ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "AlterPartition")
NOT_IN_KIO = [
    (api, side, version)
    for api, side, version in all_versions()
    if kio_class(api, side, version) is None
    and api.name not in BETWEEN_BROKERS
    and (api.name, side, version) not in NOT_IN_KAFKA_PYTHON
]


def named(case: object) -> str:
    return case.name if isinstance(case, Api) else str(case)


def kio_friendly(rng: random.Random, step: Step) -> Any:
    """Return a value that kio's narrower types can hold too: known error codes, dates, durations."""
    if step.name.endswith("error_code"):
        return rng.choice(ERROR_CODES)
    if step.name in ("log_append_time_ms", "retention_time_ms"):
        return rng.choice((-1, 0, 1, rng.randrange(4 * 10**12)))
    if step.name in ("session_lifetime_ms", "max_lifetime_ms", "renew_period_ms", "expiry_time_period_ms"):
        return rng.randrange(10**12)
    # kio has no value for "none" here
    if step.name == "transaction_start_time_ms" or step.name.endswith("_timestamp_ms"):
        return rng.choice((0, 1, rng.randrange(4 * 10**12)))
    return primitive(rng, step)


def as_ours(value: Any) -> Any:
    """Return one of kio's values as kafkapy's codec has it."""
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)) // datetime.timedelta(
            milliseconds=1
        )
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value


def assert_same(ours: Any, theirs: Any, layout: Layout) -> None:
    names = {field.name for field in dataclasses.fields(theirs)}
    for step in (*layout.steps, *layout.tagged):
        name = step.name if step.name in names else step.name.removesuffix("_ms")
        names.remove(name)
        value, other = getattr(ours, step.name), getattr(theirs, name)
        if other is None and value is not None:  # kio's value for "no uuid" and "no date"
            assert value in (ZERO_UUID, -1), step.where
        elif step.layout is None or value is None:
            values = [as_ours(element) for element in other] if step.array and other is not None else as_ours(other)
            assert value == values, step.where
        else:
            pairs = zip(value, other, strict=True) if step.array else [(value, other)]
            for mine, its in pairs:
                assert_same(mine, its, step.layout)
    assert not names


@pytest.mark.parametrize(("api", "side", "version"), IN_KIO, ids=named)
def test_kio_reads_kafkapys_encoding_and_writes_the_same(api: Api, side: str, version: int) -> None:
    layout, cls = layout_of(api, side, version), kio_class(api, side, version)
    encode, decode = getattr(api, f"encode_{side}"), getattr(api, f"decode_{side}")
    read, write = entity_reader(cls), entity_writer(cls)

    @settings(max_examples=examples(6), deadline=None)
    @given(seed=st.integers(0, 2**64 - 1))
    def run(seed: int) -> None:
        message = random_message(layout, random.Random(seed), kio_friendly)
        data = encode(message, version)
        theirs, size = read(data, 0)
        assert size == len(data)
        assert_same(message, theirs, layout)
        again = io.BytesIO()
        write(again, theirs)
        assert again.getvalue() == data
        assert decode(again.getvalue(), version) == message

    run()


KAFKA_PYTHON_MODULES = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    8: "commit",
    9: "commit",
    23: "offset_for_leader_epoch",
}


def kafka_python_class(api: Api, side: str, version: int) -> Any:
    module = KAFKA_PYTHON_MODULES.get(api.key, "admin")
    try:
        found = importlib.import_module(f"kafka.protocol.old.{module}")
    except ModuleNotFoundError:  # kafka-python 2
        found = importlib.import_module(f"kafka.protocol.{module}")
    return getattr(found, f"{api.name}{side.capitalize()}_v{version}")


def as_tuples(message: Any, layout: Layout) -> tuple[Any, ...]:
    values = []
    for step in layout.steps:
        value = getattr(message, step.name)
        if step.layout is not None and value is not None:
            value = [as_tuples(element, step.layout) for element in value]
        values.append(value)
    return tuple(values)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # kafka-python's own
@pytest.mark.parametrize(("api", "side", "version"), NOT_IN_KIO, ids=named)
def test_kafka_python_writes_the_same_bytes(api: Api, side: str, version: int) -> None:
    layout, cls = layout_of(api, side, version), kafka_python_class(api, side, version)
    encode = getattr(api, f"encode_{side}")

    @settings(max_examples=examples(6), deadline=None)
    @given(seed=st.integers(0, 2**64 - 1))
    def run(seed: int) -> None:
        message = random_message(layout, random.Random(seed))
        assert cls(*as_tuples(message, layout)).encode() == encode(message, version)

    run()
