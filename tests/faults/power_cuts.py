"""Cuts the power after each change of a life and checks what is left; and other lives go on there."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.faults.compacted_life import CompactedLife
from tests.faults.log_checks import Violation, check_directory
from tests.faults.log_life import Life
from tests.harness.power_cut import Loss, Platter

BLOCKS = (512, 4096)


@dataclass
class Figures:
    """How much was tried."""

    changes: int = 0
    cuts: int = 0
    records: int = 0  # found after all cuts together
    later_lives: int = 0
    after_kills: int = 0  # those of the later lives that began where only the process had died


def cut_everywhere(life: Life | CompactedLife, scratch: Path, figures: Figures, *, later_lives: int = 0) -> None:
    """One cut after each change, which loses something else each time.

    After some of them, `later_lives` in all, a life goes on, and is cut in its turn: in its recovery too. After half of
    those moments (of a compacted life: all) only the process dies, and what it had not synced can still be lost.
    """
    platter = Platter(life.files.journal)
    moments = range(life.files.begin, life.moment + 1)
    # Not while the log directory itself is made: a broker that starts again finds it, and takes its name as synced.
    may_go_on = range(life.began, life.moment + 1)
    go_on = set(life.rng.sample(may_go_on, min(later_lives, len(may_go_on))))
    figures.changes += len(moments) - 1
    for moment in moments:
        platter.play(moment)
        loss, block, seed = life.rng.choice(list(Loss)), life.rng.choice(BLOCKS), life.rng.getrandbits(64)
        if moment in go_on and (isinstance(life, CompactedLife) or life.rng.random() < 0.5):
            loss = Loss.NOTHING
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
        if moment in go_on and (isinstance(life, Life) or loss is Loss.NOTHING):
            platter.cut(target, loss, block, random.Random(seed))
            killed = platter if loss is Loss.NOTHING else None
            _later_life(life, moment, target, killed, scratch / f"after-{moment}", figures)
            shutil.rmtree(target)


def _later_life(
    before: Life | CompactedLife,
    moment: int,
    directory: Path,
    killed: Platter | None,
    scratch: Path,
    figures: Figures,
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
    try:
        cut_everywhere(life, scratch, figures)
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
    later_lives: int = 0,
    kind: type[Life] | type[CompactedLife] = Life,
) -> None:
    """A whole life by a seed. Raises Violation, which tells all that happened."""
    directory = scratch / "live"
    directory.mkdir()
    life = kind(directory, random.Random(seed))
    try:
        for _ in range(actions):
            life.act()
        cut_everywhere(life, scratch, figures, later_lives=later_lives)
    except Violation as error:
        raise Violation(f"seed {seed}\n{error}") from error
    finally:
        life.end()
        shutil.rmtree(directory)
