"""After a power cut during transactions, each transaction is complete or absent, if acknowledgements wait for a flush.

`KAFKAPY_FAULT_ROUNDS=20 python -m pytest tests/faults/test_transactions_power_cut.py` runs 20 lives.
"""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.power_cuts import BLOCKS
from tests.faults.rounds import rounds
from tests.faults.transactional_life import TransactionalLife
from tests.harness.power_cut import Loss, Platter

pytestmark = pytest.mark.not_quick

LIVES = rounds(1)
CUTS = 8


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Turn off the log messages of the many recoveries."""
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
            committed += cut_and_check(life, platter, moment, scratch / f"cut-{moment}", rng)
        assert committed
        shutil.rmtree(life.directory)


def test_a_power_cut_after_a_kill_leaves_whole_transactions(scratch: Path) -> None:
    """The cut comes while the next broker recovers, and ends the transactions that the killed broker left open."""
    first = random.randrange(1 << 32) if LIVES > 1 else 0
    for seed in range(first, first + LIVES):
        print("seed", seed)
        life = TransactionalLife(scratch / f"life-{seed}", seed)
        life.live(workers=3, transactions=15)
        rng, platter = random.Random(seed), Platter(life.files.journal)
        killed_at = rng.randint(life.first_moment, life.last_moment)
        platter.play(killed_at)
        platter.cut(scratch / "killed", Loss.NOTHING, BLOCKS[0], rng)
        journal = life.recover(scratch / "killed", platter)
        later = Platter(journal)
        for moment in sorted(rng.sample(range(killed_at, len(journal) + 1), CUTS)):
            later.play(moment)
            cut_and_check(life, later, killed_at, scratch / f"cut-{moment}", rng)
        shutil.rmtree(life.directory)
        shutil.rmtree(scratch / "killed")


def cut_and_check(life: TransactionalLife, platter: Platter, moment: int, target: Path, rng: random.Random) -> int:
    """Cut the power after `moment` changes of the life, and check the files that are left. Return the number of
    transactions that were committed by then."""
    platter.cut(target, rng.choice(list(Loss)), rng.choice(BLOCKS), random.Random(rng.random()))
    committed = life.check(target, moment)
    shutil.rmtree(target)
    return committed
