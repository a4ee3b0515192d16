"""Compiles a schema text to a tree of fields. Errors name the line of the schema.

A schema has one field a line, indented by two more spaces inside a struct:

    api 3 Metadata    versions 0-12    flexible 9+          # "flexible none" for an API without flexible versions

    request
      topics        []               nullable 1+            # an array of structs
        name        string           nullable 10+
      flag          bool      4+     default true
    response
      ...

    NAME  TYPE  [VERSIONS]  [nullable [VERSIONS]]  [default VALUE]  [tag NUMBER]  [ignorable]

A single message, such as a record of an internal topic, begins with `record NAME versions 0-3 flexible none`. Its
fields follow, indented by two spaces.

VERSIONS is `3`, `3-5` or `3+`; without VERSIONS a field has the versions of its parent. TYPE is one of `PRIMITIVES`,
`struct`, or an array of either: `[]int32`, `[]` (of structs). A field with a tag is a tagged field in all its versions.
`ignorable` means the same as in Kafka's message definitions: in a version without the field, its value is left out
without an error.
"""

from collections.abc import Iterator
from typing import NamedTuple

INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
PRIMITIVES = frozenset(INTEGERS) | {"bool", "float64", "uuid", "string", "bytes", "records"}
NULLABLE = frozenset({"string", "bytes", "records", "struct"})
ZERO_UUID = bytes(16)
NEW_DEFAULT = ()  # the default of an array or struct: a new empty list or struct of defaults each time


class SchemaError(ValueError):
    """Raised for an invalid schema text. The message begins with `source:line`."""


class Versions(NamedTuple):
    """A range of API or record versions, both ends included. The range is empty if `last < first`."""

    first: int
    last: int

    def cover(self, version: int) -> bool:
        """Return True if the version lies in this range."""
        return self.first <= version <= self.last

    def within(self, outer: "Versions") -> bool:
        """Return True if this whole range lies within the range `outer`."""
        return outer.first <= self.first and self.last <= outer.last


class Field(NamedTuple):
    """A field of a schema.

    `kind` is a primitive type or `struct`, and `array` is True for an array of that kind. `default` is the field's
    value in a message that does not set it. The default of a field of kind `records` is None, as in Kafka, even if the
    field is not nullable; a message with that None cannot be encoded.
    """

    name: str
    kind: str
    array: bool
    versions: Versions
    nullable: Versions | None
    default: object
    tag: int | None
    ignorable: bool
    fields: tuple["Field", ...]  # the fields of a struct

    def null_in(self, version: int) -> bool:
        """Return True if the field may be null in this version."""
        return self.nullable is not None and self.nullable.cover(version)


class Head(NamedTuple):
    """The first line of a schema: API key, name and versions. `flexible` is the first flexible version, greater than
    `versions.last` if no version is flexible."""

    key: int
    name: str
    versions: Versions
    flexible: int


class Schema(NamedTuple):
    """A parsed schema of one API: the fields of its request and of its response, in all versions."""

    head: Head
    request: tuple[Field, ...]
    response: tuple[Field, ...]


class _Line(NamedTuple):
    where: str  # source:number
    depth: int
    words: list[str]

    def error(self, what: str) -> SchemaError:
        return SchemaError(f"{self.where}: {what}")


def parse_head(text: str, source: str) -> Head:
    """Parse only the first line of an API's schema text and return it. The registry of APIs needs no more until the API
    is used. `source` names the schema in errors. Raises SchemaError."""
    for line in _lines(text, source):
        return _head(line)
    raise SchemaError(f"{source}:1: the schema is empty")


def parse(text: str, source: str) -> Schema:
    """Parse the whole schema text of an API and return the schema. `source` names the schema in errors. Raises
    SchemaError."""
    lines = list(_lines(text, source))
    head = parse_head(text, source)
    starts = [i for i, line in enumerate(lines) if line.depth == 0]
    if [lines[i].words for i in starts[1:]] != [["request"], ["response"]]:
        line = lines[starts[1]] if len(starts) > 1 else lines[0]
        raise line.error("after the api line there must be a line `request` and a line `response`, in this order")
    if starts[1] != 1:
        raise lines[1].error("only `request` may follow the api line")
    request = _struct(lines[starts[1] + 1 : starts[2]], 1, head.versions, head)
    response = _struct(lines[starts[2] + 1 :], 1, head.versions, head)
    return Schema(head, request, response)


def parse_record(text: str, source: str) -> tuple[Head, tuple[Field, ...]]:
    """Parse the schema text of a single message, such as a record of an internal topic. Return its first line, with -1
    as the key, and its fields. `source` names the schema in errors. Raises SchemaError."""
    lines = list(_lines(text, source))
    if not lines:
        raise SchemaError(f"{source}:1: the schema is empty")
    words = lines[0].words
    if len(words) != 6 or (words[0], words[2], words[4]) != ("record", "versions", "flexible") or lines[0].depth:
        raise lines[0].error("the first line must read `record NAME versions A-B flexible C+` (or `flexible none`)")
    head = Head(-1, words[1], *_head_versions(words[3], words[5], lines[0]))
    return head, _struct(lines[1:], 1, head.versions, head)


def _lines(text: str, source: str) -> Iterator[_Line]:
    for number, raw in enumerate(text.splitlines(), 1):
        content = raw.partition("#")[0].rstrip()
        if content:
            indent = len(content) - len(content.lstrip(" "))
            line = _Line(f"{source}:{number}", indent // 2, content.split())
            if indent % 2 or "\t" in content:
                raise line.error("indent by two spaces a level, without tabs")
            yield line


def _head(line: _Line) -> Head:
    words = line.words
    if len(words) != 7 or (words[0], words[3], words[5]) != ("api", "versions", "flexible") or line.depth:
        raise line.error("the first line must read `api KEY NAME versions A-B flexible C+` (or `flexible none`)")
    if not words[1].isdigit():
        raise line.error(f"{words[1]} is not an API key")
    return Head(int(words[1]), words[2], *_head_versions(words[4], words[6], line))


def _head_versions(all_of_them: str, flexible: str, line: _Line) -> tuple[Versions, int]:
    everything = Versions(0, 0x7FFF)
    versions = _versions(all_of_them, everything, line)
    if versions.last == everything.last:
        raise line.error(f"versions {all_of_them} must end somewhere")
    return versions, versions.last + 1 if flexible == "none" else _versions(flexible, versions, line).first


def _versions(word: str, outer: Versions, line: _Line) -> Versions:
    first, dash, last = word.rstrip("+").partition("-")
    if not first.isdigit() or (dash and not last.isdigit()) or word.endswith("++") or (dash and word.endswith("+")):
        raise line.error(f"{word} is not a range of versions (3, 3-5 or 3+)")
    end = outer.last if word.endswith("+") else int(last if dash else first)
    versions = Versions(int(first), end)
    if versions.last < versions.first or not versions.within(outer):
        raise line.error(f"versions {word} are not within {outer.first}-{outer.last}")
    return versions


def _struct(lines: list[_Line], depth: int, outer: Versions, head: Head) -> tuple[Field, ...]:
    fields: list[Field] = []
    position = 0
    while position < len(lines):
        line = lines[position]
        if line.depth != depth:
            raise line.error(f"indented by {2 * line.depth} spaces where {2 * depth} are right")
        end = position + 1
        while end < len(lines) and lines[end].depth > depth:
            end += 1
        field = _field(line, lines[position + 1 : end], outer, head)
        if any(field.name == other.name for other in fields):
            raise line.error(f"a second field {field.name} in one struct")
        if field.tag is not None and any(field.tag == other.tag for other in fields):
            raise line.error(f"a second field with tag {field.tag} in one struct")
        fields.append(field)
        position = end
    return tuple(fields)


def _field(line: _Line, inside: list[_Line], outer: Versions, head: Head) -> Field:
    words = list(line.words)
    if len(words) < 2:
        raise line.error("a field needs a name and a type")
    name, type_ = words[:2]
    del words[:2]
    if not name.isidentifier() or name != name.lower():
        raise line.error(f"{name} is not a name in snake case")
    array = type_.startswith("[]")
    kind = (type_[2:] or "struct") if array else type_
    if kind != "struct" and kind not in PRIMITIVES:
        raise line.error(f"unknown type {type_}")
    versions = _versions(words.pop(0), outer, line) if words and words[0][0].isdigit() else outer

    nullable: Versions | None = None
    default = _natural_default(kind, array)
    tag: int | None = None
    ignorable = False
    while words:
        word = words.pop(0)
        if word == "nullable":
            nullable = _versions(words.pop(0), versions, line) if words and words[0][0].isdigit() else versions
            if not array and kind not in NULLABLE:
                raise line.error(f"a field of type {kind} cannot be null")
        elif word == "default" and words:
            default = _default(words.pop(0), kind, array, nullable, line)
        elif word == "tag" and words and words[0].isdigit():
            tag = int(words.pop(0))
            if versions.first < head.flexible:
                raise line.error(f"a tagged field cannot exist before the first flexible version, {head.flexible}")
        elif word == "ignorable":
            ignorable = True
        else:
            raise line.error(f"{word} is unexpected here")

    if (kind == "struct") != bool(inside):
        raise (inside or [line])[0].error("a struct needs fields" if not inside else f"{type_} {name} has no fields")
    fields = _struct(inside, line.depth + 1, versions, head)
    return Field(name, kind, array, versions, nullable, default, tag, ignorable, fields)


def _natural_default(kind: str, array: bool) -> object:
    if array or kind == "struct":
        return NEW_DEFAULT
    if kind in INTEGERS:
        return 0
    return {"bool": False, "float64": 0.0, "uuid": ZERO_UUID, "string": "", "bytes": b""}.get(kind)


def _default(word: str, kind: str, array: bool, nullable: Versions | None, line: _Line) -> object:
    if word == "null":
        if nullable is None:
            raise line.error("`default null` must come after `nullable`")
        return None
    try:
        if kind in INTEGERS and not array:
            value = int(word, 0)
            limit = 1 << (INTEGERS[kind] - 1)
            if -limit <= value < limit:
                return value
        elif kind == "bool" and not array:
            return {"true": True, "false": False}[word]
        elif kind == "float64" and not array:
            return float(word)
        elif kind == "string" and not array:
            return word
    except (KeyError, ValueError):
        pass
    raise line.error(f"{word} cannot be the default of a field of type {'[]' * array}{kind}")
