"""Message classes generated from schemas. One class for each request, response or struct serves all versions.

A struct's class is an attribute of its parent's class, in camel case: `METADATA.Response.Topics.Partitions`.
Constructors take keyword arguments only. Fields are plain attributes. Messages compare by value.
"""

from collections.abc import Callable
from typing import Any

from kafkapy.protocol.compiler import NEW_DEFAULT, Field

_UNSET = object()


class Message:
    """The base class of all message classes, which are generated from schemas for requests, responses and structs.
    `_fields` has the field names in the schema's order."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if self.__class__ is not other.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{self.__class__.__qualname__}({values})"


def camel_case(name: str) -> str:
    """Return a snake case name in camel case: `PartitionData` for `partition_data`."""
    return "".join(word.capitalize() for word in name.split("_"))


def make_class(name: str, fields: tuple[Field, ...], module: str) -> type[Any]:
    """Create and return the message class `name` with these fields. The classes of its structs, whose names are dotted,
    become attributes of the class. `module` is the value of its `__module__`."""
    namespace: dict[str, Any] = {
        "__slots__": tuple(field.name for field in fields),
        "__module__": module,
        "__qualname__": name,
        "_fields": tuple(field.name for field in fields),
    }
    for field in fields:
        if field.kind == "struct":
            inner = camel_case(field.name)
            namespace[inner] = make_class(f"{name}.{inner}", field.fields, module)
    namespace["__init__"] = _constructor(fields, namespace)
    return type(name.rpartition(".")[2], (Message,), namespace)


def _constructor(fields: tuple[Field, ...], classes: dict[str, Any]) -> Callable[..., None]:
    # Generated as source code, as dataclasses do: a constructor that loops over the fields takes four times as long.
    scope: dict[str, Any] = {"_unset": _UNSET}
    parameters, body = [], []
    for field in fields:
        name = field.name
        if field.default is NEW_DEFAULT and field.array:
            parameters.append(f"{name}=_unset")
            body.append(f"self.{name} = [] if {name} is _unset else {name}")
        elif field.default is NEW_DEFAULT:
            inner = camel_case(name)
            scope[inner] = classes[inner]
            parameters.append(f"{name}=_unset")
            body.append(f"self.{name} = {inner}() if {name} is _unset else {name}")
        else:
            scope[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
            body.append(f"self.{name} = {name}")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n    " + "\n    ".join(body or ["pass"])
    exec(source, scope)
    constructor: Callable[..., None] = scope["__init__"]
    return constructor
