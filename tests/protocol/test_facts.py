"""Every field of every schema is compared with the facts of Kafka 3.9's message definitions."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kafkapy.protocol.apis import APIS
from kafkapy.protocol.compiler import NEW_DEFAULT, ZERO_UUID, Field, Schema, Versions, parse

FACTS = Path(__file__).parents[1] / "data" / "facts" / "wire-messages-3.9.jsonl"
SCHEMAS = Path(__file__).parents[2] / "kafkapy" / "protocol" / "schemas"


def facts() -> dict[tuple[int, str], dict[str, Any]]:
    with FACTS.open(encoding="utf-8") as lines:
        messages = [json.loads(line) for line in lines]
    return {(message["apiKey"], message["type"]): message for message in messages if "apiKey" in message}


def schemas() -> list[Schema]:
    return [parse(path.read_text(encoding="utf-8"), path.name) for path in sorted(SCHEMAS.glob("*.schema"))]


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def versions_of(text: str, outer: Versions) -> Versions:
    """Return the versions of a fact that its struct has too (in Kafka, a field may have more versions)."""
    if text == "none":
        return Versions(0, -1)
    first, dash, last = text.rstrip("+").partition("-")
    end = outer.last if text.endswith("+") else int(last if dash else first)
    return Versions(max(int(first), outer.first), min(end, outer.last))


def is_never(field: Field) -> bool:
    return field.versions.first > field.versions.last


def default_of(fact: dict[str, Any]) -> object:
    text = str(fact.get("default", ""))
    if text == "null" or fact["type"] == "records":
        return None
    if fact["type"].startswith("[]") or fact["type"][0].isupper():
        return NEW_DEFAULT
    if fact["type"].startswith("int"):
        return int(text or "0", 0)
    defaults = {"bool": text == "true", "float64": 0.0, "uuid": ZERO_UUID, "string": text, "bytes": b""}
    return defaults[fact["type"]]


def field_of(fact: dict[str, Any], outer: Versions, common: dict[str, Any]) -> Field:
    """Return the field of a fact. `common`: the fields of shared structs by type, which kafkapy's schemas repeat."""
    versions = versions_of(fact["versions"], outer)
    type_ = fact["type"].removeprefix("[]")
    inside = fact.get("fields") or common.get(type_, ())
    nullable = versions_of(fact.get("nullableVersions", "none"), versions)
    if "tag" in fact:
        assert fact["taggedVersions"] == fact["versions"], "the schema form has no word for this"
    return Field(
        name=snake_case(fact["name"]),
        kind="struct" if type_[0].isupper() else type_,
        array=fact["type"].startswith("[]"),
        versions=versions,
        nullable=nullable if nullable.first <= nullable.last else None,
        default=default_of(fact),
        tag=fact.get("tag"),
        ignorable=fact.get("ignorable", False),
        # A shared struct may have fields that no version of this place has.
        fields=tuple(one for one in (field_of(inner, versions, common) for inner in inside) if not is_never(one)),
    )


@pytest.mark.parametrize("side", ["request", "response"])
@pytest.mark.parametrize("schema", schemas(), ids=lambda schema: schema.head.name)
def test_every_field_is_kafkas(schema: Schema, side: str) -> None:
    fact = facts()[schema.head.key, side]
    assert fact["name"] == schema.head.name + side.capitalize()
    assert schema.head.versions == versions_of(fact["validVersions"], Versions(0, 0x7FFF))
    flexible = versions_of(fact["flexibleVersions"], schema.head.versions)
    if flexible.first <= flexible.last:
        assert schema.head.flexible == flexible.first
    else:
        assert schema.head.flexible > schema.head.versions.last
    common = {struct["name"]: struct["fields"] for struct in fact.get("commonStructs", ())}
    expected = tuple(field_of(field, schema.head.versions, common) for field in fact["fields"])
    assert getattr(schema, side) == expected


def test_the_registry_has_every_schema_under_its_key_and_name() -> None:
    in_files = {schema.head.key: schema.head.name for schema in schemas()}
    assert {key: api.name for key, api in APIS.items()} == in_files
    for api in APIS.values():
        assert api._file == f"{api.key:02}_{snake_case(api.name)}.schema"
        assert (api._head.key, api._head.name) == (api.key, api.name)


def test_schemas_fit_on_a_screen() -> None:
    for path in SCHEMAS.glob("*.schema"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 80, path.name
        assert max(map(len, lines)) <= 120, path.name
