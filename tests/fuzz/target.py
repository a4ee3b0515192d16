"""A fuzz target: a parser, valid inputs, and the exceptions that it may raise."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.fuzz.mutation import mutate

Make = Callable[[random.Random, Sequence[bytes]], bytes | bytearray]


def mutated(rng: random.Random, corpus: Sequence[bytes]) -> bytearray:
    """Return a damaged input of the corpus, as most targets get it."""
    return mutate(rng, rng.choice(corpus), corpus)


class Target(NamedTuple):
    """`run(view, rng)` gets an input in writable memory of exactly its size and may raise only `refusals`.

    `make` builds the input from the corpus.
    """

    name: str
    corpus: Sequence[bytes]
    run: Callable[[memoryview, random.Random], object]
    refusals: tuple[type[BaseException], ...]
    make: Make = mutated
