"""Random messages of a layout, with the values that codecs get wrong more often than others."""

import random
from collections.abc import Callable
from typing import Any

from kafkapy.protocol.apis import Api
from kafkapy.protocol.compiler import INTEGERS, NEW_DEFAULT
from kafkapy.protocol.layout import Layout, Step, lay_out
from kafkapy.protocol.message import Message

TEXTS = ("", "a", "flights", "été", "日本語", "\U0001f41f", "x" * 127, "y" * 128, "nul\0nul")

# Chooses the value of a primitive field in place of `primitive`.
Choose = Callable[[random.Random, Step], Any]


def layout_of(api: Api, side: str, version: int) -> Layout:
    """Return the layout that the registry compiles, for both codecs."""
    fields = getattr(api._schema, side)
    cls = api.Request if side == "request" else api.Response
    return lay_out(cls, fields, api._head, version, f"{api.name} {side} v{version}")


def random_message(layout: Layout, rng: random.Random, choose: Choose | None = None) -> Any:
    """Return a message with random values in every field that the version has, and the defaults in the others."""
    steps = [*layout.steps, *(step for step in layout.tagged if rng.random() < 0.6)]
    return layout.cls(**{step.name: _field(step, rng, choose or primitive) for step in steps})


def as_tuple(message: Any) -> tuple[Any, ...]:
    """Return the tuple of a message's fields, with tuples in place of the structs in its arrays."""
    return tuple(_with_tuples(getattr(message, name)) for name in message._fields)


def _with_tuples(value: Any) -> Any:
    if isinstance(value, list):
        return [as_tuple(one) if isinstance(one, Message) else one for one in value]
    return value


def _field(step: Step, rng: random.Random, choose: Choose) -> Any:
    if step.nullable and rng.random() < 0.2:
        return None
    if step.array:
        return [_value(step, rng, choose) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return _value(step, rng, choose)


def _value(step: Step, rng: random.Random, choose: Choose) -> Any:
    if step.layout is not None:
        return random_message(step.layout, rng, choose)
    return choose(rng, step)


def primitive(rng: random.Random, step: Step) -> Any:
    """Return a random value that fits the field."""
    if step.kind in INTEGERS:
        limit = 1 << (INTEGERS[step.kind] - 1)
        if not step.array and step.default is not NEW_DEFAULT and rng.random() < 0.1:
            return step.default
        return rng.choice((0, 1, -1, limit - 1, -limit, rng.randrange(-limit, limit)))
    if step.kind == "bool":
        return rng.random() < 0.5
    if step.kind == "float64":
        return rng.choice((0.0, -0.0, 1.5, float("inf"), rng.random()))
    if step.kind == "uuid":
        return rng.choice((bytes(16), rng.randbytes(16)))
    if step.kind == "string":
        return rng.choice(TEXTS)
    return rng.randbytes(rng.choice((0, 1, 61, 126, 127, 128, 300)))


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Damage an encoding: cut it, flip bits, overwrite a length, repeat or drop a part, append bytes."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0:
                del out[at:]
            case 1 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 2 if at < len(out):
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 3:
                hostile = rng.choice(
                    (b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff\xff", b"\xff\xff\xff\xff\x0f")
                )
                out[at : at + len(hostile)] = hostile
            case 4:
                del out[at : at + rng.randint(1, 8)]
            case _:
                out[at:at] = out[at : at + rng.randint(1, 16)]
    return bytes(out)
