"""Messages that begin with their version (int16): records of the internal topics, and metadata of the consumer
protocol.

The schemas are a few lines each and stand in the modules that use them. Source: Kafka's
MessageUtil.toVersionPrefixedByteBuffer, and the JSON converters that Kafka generates.
"""

import base64
from functools import cached_property
from struct import Struct
from typing import Any

from kafkapy._ext.codec import Program
from kafkapy.errors import ProtocolError, UnsupportedVersion
from kafkapy.protocol.compiler import NEW_DEFAULT, Field, Head, parse_record
from kafkapy.protocol.layout import lay_out
from kafkapy.protocol.message import Message, camel_case, make_class

_VERSION = Struct(">h")

Buffer = bytes | bytearray | memoryview


class VersionedMessage:
    """A kind of message whose encoding begins with its version, such as a record of an internal topic. The schema
    covers all versions and is compiled on first use.

    lenient: decode versions after the last known one as the last known one, for messages whose versions only add
    fields.
    """

    def __init__(self, schema: str, *, lenient: bool = False) -> None:
        self._schema = schema
        self._lenient = lenient
        self._programs: dict[int, Program] = {}

    def __repr__(self) -> str:
        return f"<VersionedMessage {self.name}>"

    @cached_property
    def _parsed(self) -> tuple[Head, tuple[Field, ...]]:
        return parse_record(self._schema, "schema of a record")

    @cached_property
    def name(self) -> str:
        """Kafka's name of this kind of message."""
        return self._parsed[0].name

    @cached_property
    def min_version(self) -> int:
        """The first version in the schema."""
        return self._parsed[0].versions.first

    @cached_property
    def max_version(self) -> int:
        """The last version in the schema."""
        return self._parsed[0].versions.last

    @cached_property
    def Message(self) -> Any:
        """The class of the decoded messages."""
        return make_class(self.name, self._parsed[1], __name__)

    def has_version(self, version: int) -> bool:
        """Return True if messages of this version can be decoded. With `lenient`, this includes all later versions."""
        return version >= self.min_version and (self._lenient or version <= self.max_version)

    def encode(self, message: Any, version: int) -> bytes:
        """Return the version (int16) followed by the encoded message.

        Raises UnsupportedVersion if the schema does not have the version or the message sets a field that the version
        lacks, and ValueError for a value that does not fit its field.
        """
        return _VERSION.pack(version) + self._program(version).encode(message)

    def decode(self, buffer: Buffer) -> tuple[int, Any]:
        """Return the version and the decoded message. Bytes after the message are ignored. Raises ProtocolError for
        malformed bytes, UnsupportedVersion for a version that cannot be decoded."""
        version = version_of(buffer, self.name)
        return version, self._program(version).decode(buffer, _VERSION.size)

    def as_json(self, message: Any, version: int) -> dict[str, Any]:
        """Return the message's fields of this version as a dict of JSON values, with Kafka's field names (lower camel
        case) and bytes in base64."""
        return _as_json(message, self._parsed[1], min(version, self.max_version))

    def _program(self, version: int) -> Program:
        program = self._programs.get(version)
        if program is None:
            head, fields = self._parsed
            if not self.has_version(version):
                raise UnsupportedVersion(
                    f"{head.name} has the versions {head.versions.first} to {head.versions.last}, not {version}"
                )
            known = min(version, head.versions.last)
            program = Program(lay_out(self.Message, fields, head, known, f"{head.name} v{version}"))
            self._programs[version] = program
        return program


def version_of(buffer: Buffer, what: str) -> int:
    """Return the version (int16) at the start of an encoded message. Raises ProtocolError if `buffer` is too short;
    `what` names the message in the error."""
    if len(buffer) < _VERSION.size:
        raise ProtocolError(f"{what} has {len(buffer)} bytes, too few for its version")
    (version,) = _VERSION.unpack_from(buffer)
    return int(version)


def _as_json(message: Message, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
    return {
        _json_name(field.name): _json_value(getattr(message, field.name), field, version)
        for field in fields
        if field.versions.cover(version) and (field.tag is None or not _is_default(getattr(message, field.name), field))
    }


def _is_default(value: Any, field: Field) -> bool:
    if field.default is NEW_DEFAULT:
        return value is not None and bool(value == type(value)())
    return bool(value == field.default)


def _json_name(name: str) -> str:
    named = camel_case(name)
    return named[0].lower() + named[1:]


def _json_value(value: Any, field: Field, version: int) -> Any:
    if isinstance(value, list):
        return [_json_value(element, field, version) for element in value]
    if isinstance(value, Message):
        return _as_json(value, field.fields, version)
    if isinstance(value, (bytes, bytearray, memoryview)):
        if field.kind == "uuid":
            return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
        return base64.b64encode(value).decode()
    return value
