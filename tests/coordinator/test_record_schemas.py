"""The schemas of the internal topics' records and of consumer metadata, compared with Kafka's."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafkapy.coordinator import consumer_group_records, offset_records, transaction_records
from kafkapy.protocol import consumer_protocol
from kafkapy.protocol.compiler import Field, Head, Versions, parse_record
from kafkapy.protocol.versioned import VersionedMessage

FACTS = Path(__file__).parents[1] / "data" / "facts"
MESSAGES = {
    one.name: one
    for module in (offset_records, transaction_records, consumer_protocol)
    for one in vars(module).values()
    if isinstance(one, VersionedMessage)
} | {one.name: one for pair in consumer_group_records.BY_TYPE.values() for one in pair}


def facts() -> dict[str, dict[str, Any]]:
    found = {}
    for name in ("log-records-3.9.jsonl", "wire-messages-3.9.jsonl"):
        for line in (FACTS / name).read_text(encoding="utf-8").splitlines():
            message = json.loads(line)
            found[message["name"]] = message
    return found


def shape(field: Field, last: int) -> dict[str, Any]:
    """Return a field of our schemas in the format of Kafka's facts, with an explicit default."""
    kind = f"[]{field.kind}" if field.array else field.kind
    return {
        "name": field.name.replace("_", ""),
        "type": {"[]struct": "[]", "struct": "{}"}.get(kind, kind),
        "versions": tuple(field.versions),
        "nullable": tuple(field.nullable) if field.nullable else None,
        "default": field.default if isinstance(field.default, (int, type(None))) else "",
        "tag": field.tag,
        "ignorable": field.ignorable,
        "fields": [shape(inner, last) for inner in field.fields],
    }


def range_of(text: str, outer: Versions) -> Versions:
    first, _, last = text.rstrip("+").partition("-")
    end = outer.last if text.endswith("+") else int(last or first)
    return Versions(max(int(first), outer.first), min(end, outer.last))


def expected(fact: dict[str, Any], outer: Versions, structs: dict[str, Any]) -> dict[str, Any]:
    versions = range_of(fact["versions"], outer)
    inner = fact.get("fields") or structs.get(fact["type"].removeprefix("[]"), [])
    nullable = fact.get("nullableVersions")
    default = fact.get("default")
    if default is None:  # in Kafka's FieldSpec, null means no default, and "null" a default of null
        default = 0 if fact["type"].startswith("int") else ""
    composed = "[]" if fact["type"].startswith("[]") else "{}"
    if isinstance(default, str) and default:
        default = None if default == "null" else int(default)
    return {
        "name": fact["name"].lower(),
        "type": composed if inner else fact["type"],
        "versions": tuple(versions),
        "nullable": tuple(range_of(nullable, versions)) if nullable else None,
        "default": default,
        "tag": fact.get("tag"),
        "ignorable": fact.get("ignorable", False),
        "fields": [expected(one, versions, structs) for one in inner],
    }


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_every_field_equals_kafkas(name: str) -> None:
    fact = facts()[name]
    head, fields = parse_record(MESSAGES[name]._schema, name)
    outer = range_of(fact["validVersions"], Versions(0, 0x7FFF))
    flexible = fact["flexibleVersions"].rstrip("+")
    assert head == Head(-1, name, outer, outer.last + 1 if flexible == "none" else int(flexible))
    structs = {one["name"]: one["fields"] for one in fact.get("commonStructs", ())}
    assert [shape(one, outer.last) for one in fields] == [expected(one, outer, structs) for one in fact["fields"]]
