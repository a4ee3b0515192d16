"""A power cut under transactions: where acknowledgements wait for a flush, each is whole, or was never there.

`KAFKAPY_FAULT_ROUNDS=20 python -m pytest tests/faults/test_transactions_power_cut.py` lives 20 lives.
"""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.metadata.local.tree import FILE_NAME
from tests.faults.power_cuts import BLOCKS
from tests.faults.rounds import rounds
from tests.faults.transactional_life import TransactionalLife
from tests.harness.power_cut import Loss, Platter

LIVES = rounds(1)
CUTS = 8


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Recoveries tell more than anybody reads."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def test_a_power_cut_leaves_whole_transactions(scratch: Path) -> None:
    first = random.randrange(1 << 32) if LIVES > 1 else 0
    for seed in range(first, first + LIVES):
        print("seed", seed)
        life = TransactionalLife(scratch / f"life-{seed}", seed)
        life.live(workers=3, transactions=15)
        rng, platter, committed = random.Random(seed), Platter(life.files.journal), 0
        for moment in sorted(rng.sample(range(life.first_moment, life.last_moment + 1), CUTS)):
            platter.play(moment)
            target = scratch / f"cut-{moment}"
            platter.cut(target, rng.choice(list(Loss)), rng.choice(BLOCKS), random.Random(rng.random()))
            # The tree is a database of its own, which syncs every change: it is there, and knows all topics.
            shutil.copy(life.directory / FILE_NAME, target / FILE_NAME)
            committed += life.check(target, moment)
            shutil.rmtree(target)
        assert committed
        shutil.rmtree(life.directory)
