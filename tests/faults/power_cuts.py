"""Cuts the power after each change of a life and checks what is left; and other lives go on there."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.compacted_life import CompactedLife
from tests.faults.log_checks import Violation, check_directory
from tests.faults.log_life import Life
from tests.harness.power_cut import Loss, Platter

BLOCKS = (512, 4096)
CUTS = [loss for loss in Loss if loss is not Loss.NOTHING]


@dataclass
class Figures:
    """How much was tried."""

    changes: int = 0
    cuts: int = 0
    records: int = 0  # found after all cuts together
    later_lives: int = 0
    after_kills: int = 0  # those of the later lives that began where only the process had died
    in_recoveries: int = 0  # those that began in the recovery of a life that was a later one itself


def cut_everywhere(life: Life | CompactedLife, scratch: Path, figures: Figures, later_lives: Sequence[int]) -> None:
    """One cut after each change, which loses something else each time.

    After some of them, as many as `later_lives` begins with, a life goes on, and is cut in its turn: in its recovery
    too, where as many go on as `later_lives` has next. At every second of those moments (of a compacted life: at all)
    only the process dies, and what it had not synced can still be lost.
    """
    count, *next_counts = later_lives or (0,)
    platter = Platter(life.files.journal)
    moments = range(life.files.begin, life.moment + 1)
    may_go_on = range(life.files.begin, life.began + 1) if life.is_later else moments
    go_on = life.rng.sample(may_go_on, min(count, len(may_go_on)))
    kills = set(go_on)
    if go_on and isinstance(life, Life):
        kills = set(go_on[life.rng.randrange(2) :: 2])
    figures.changes += len(moments) - 1
    for moment in moments:
        platter.play(moment)
        losses = [Loss.NOTHING] if moment in kills else CUTS if moment in go_on else list(Loss)
        loss, block, seed = life.rng.choice(losses), life.rng.choice(BLOCKS), life.rng.getrandbits(64)
        target = scratch / f"cut-{moment}"
        platter.cut(target, loss, block, random.Random(seed))
        try:
            if isinstance(life, CompactedLife):
                figures.records += life.check(target, moment)
            else:
                figures.records += check_directory(target, life.topics, moment, life.rng)
        except Exception as error:
            told = "\n".join([*life.told, f"cut after change {moment}, which loses {loss.value}, in blocks of {block}"])
            raise Violation(f"{told}\n{type(error).__name__}: {error}") from error
        figures.cuts += 1
        shutil.rmtree(target)
        if moment in go_on:
            platter.cut(target, loss, block, random.Random(seed))
            killed = platter if moment in kills else None
            _later_life(life, moment, target, killed, scratch / f"after-{moment}", figures, next_counts)
            shutil.rmtree(target)


def _later_life(
    before: Life | CompactedLife,
    moment: int,
    directory: Path,
    killed: Platter | None,
    scratch: Path,
    figures: Figures,
    later_lives: Sequence[int],
) -> None:
    scratch.mkdir()
    life: Life | CompactedLife
    if isinstance(before, Life):
        life = Life.after(before, moment, directory, killed)
    else:
        assert killed is not None
        life = CompactedLife.after(before, moment, directory, killed)
    for _ in range(life.rng.randint(0, 15)):
        life.act()
    figures.later_lives += 1
    figures.after_kills += killed is not None
    figures.in_recoveries += before.is_later
    try:
        cut_everywhere(life, scratch, figures, later_lives)
    except Violation as error:
        end = "a cut" if killed is None else "a kill"
        raise Violation("\n".join([*before.told, f"{end} after change {moment}, then", str(error)])) from error
    finally:
        life.end()
        shutil.rmtree(scratch)


def live_and_cut(
    seed: int,
    scratch: Path,
    figures: Figures,
    *,
    actions: int,
    later_lives: Sequence[int] = (),
    kind: type[Life] | type[CompactedLife] = Life,
) -> None:
    """A whole life by a seed. Raises Violation, which tells all that happened."""
    directory = scratch / "live"
    directory.mkdir()
    life = kind(directory, random.Random(seed))
    try:
        for _ in range(actions):
            life.act()
        cut_everywhere(life, scratch, figures, later_lives)
    except Violation as error:
        raise Violation(f"seed {seed}\n{error}") from error
    finally:
        life.end()
        shutil.rmtree(directory)
