"""What is fuzzed: a parser, inputs it takes, and the exceptions it may answer with."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.fuzz.mutation import mutate

Make = Callable[[random.Random, Sequence[bytes]], bytes | bytearray]


def mutated(rng: random.Random, corpus: Sequence[bytes]) -> bytearray:
    """An input of the corpus, damaged: what most targets are fed."""
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
