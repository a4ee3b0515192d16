"""The layout of a message in one version: its fields in wire order, as input for both codecs.

The codec `ext.codec` compiles a Layout to a table in C. The codec `reference` interprets a Layout in Python.
"""

from typing import Any, NamedTuple

from kafkapy.protocol.compiler import Field, Head
from kafkapy.protocol.message import camel_case


class Step(NamedTuple):
    """One field of a message or struct in one version: its name, type, nullability, default value and tag."""

    name: str  # the attribute of the message
    place: int  # its position among all fields of the message or struct, of whatever version
    where: str  # for error messages: "Metadata response v9: topics.name"
    kind: str
    array: bool
    nullable: bool
    default: Any  # NEW_DEFAULT for arrays and structs
    tag: int | None
    layout: "Layout | None"  # the layout of a struct


class Layout(NamedTuple):
    """The encoding of a whole message, or of a struct in a message, in one version.

    `steps` are the fields that are encoded one after the other. `tagged` are the tagged fields, by ascending tag, in
    the section that ends every struct of a flexible version. `absent` are the fields that this version does not have:
    decoding gives them their defaults, and encoding a message with another value in such a field is an error unless
    `ignorable` has the field's name.
    """

    cls: type[Any]
    where: str  # its tagged section, for errors: "Metadata response v9: topics.(tagged fields)"
    flexible: bool
    steps: tuple[Step, ...]
    tagged: tuple[Step, ...]
    absent: tuple[Step, ...]
    ignorable: frozenset[str]


def lay_out(cls: type[Any], fields: tuple[Field, ...], head: Head, version: int, title: str) -> Layout:
    """Return the layout of a message of class `cls` in `version`. `title` names the message in errors: "Metadata
    response v9"."""
    return _struct(cls, fields, head, version, f"{title}: ")


def _struct(cls: type[Any], fields: tuple[Field, ...], head: Head, version: int, where: str) -> Layout:
    steps, tagged, absent = [], [], []
    for place, field in enumerate(fields):
        step = _step(cls, place, field, head, version, where)
        if not field.versions.cover(version):
            absent.append(step)
        elif field.tag is None:
            steps.append(step)
        else:
            tagged.append(step)
    return Layout(
        cls=cls,
        where=f"{where}(tagged fields)",
        flexible=version >= head.flexible,
        steps=tuple(steps),
        tagged=tuple(sorted(tagged, key=lambda step: step.tag or 0)),
        absent=tuple(absent),
        ignorable=frozenset(field.name for field in fields if field.ignorable),
    )


def _step(cls: type[Any], place: int, field: Field, head: Head, version: int, where: str) -> Step:
    layout = None
    path = where + field.name
    if field.kind == "struct":
        layout = _struct(getattr(cls, camel_case(field.name)), field.fields, head, version, path + ".")
    return Step(
        field.name, place, path, field.kind, field.array, field.null_in(version), field.default, field.tag, layout
    )
