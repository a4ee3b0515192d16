"""Cuts the power after each change of a random life, checks the files that are left, and starts later lives on some."""

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
    """Counts of the cases that a run has tried."""

    changes: int = 0
    cuts: int = 0
    records: int = 0  # records found after all cuts together
    later_lives: int = 0
    after_kills: int = 0  # later lives that began after a kill, without a power cut
    in_recoveries: int = 0  # later lives that began during the recovery of another later life


def cut_everywhere(life: Life | CompactedLife, scratch: Path, figures: Figures, later_lives: Sequence[int]) -> None:
    """Cut the power after each change of the life, with a random kind of loss, and check the files that are left.

    After `later_lives[0]` of these cuts, a later life begins on the files. The power is cut after each change of the
    later life, too, including those of its recovery. After `later_lives[1]` cuts in its recovery another life begins,
    and so on. At every second of the moments with a later life (of a compacted life: at all) only the process is
    killed, so that a later power cut can still lose unsynced changes.
    """
    count, *next_counts = later_lives or (0,)
    platter = Platter(life.files.journal)
    moments = range(life.files.begin, life.moment + 1)
    may_resume = range(life.files.begin, life.began + 1) if life.is_later else moments
    resumed = life.rng.sample(may_resume, min(count, len(may_resume)))
    kills = set(resumed)
    if resumed and isinstance(life, Life):
        kills = set(resumed[life.rng.randrange(2) :: 2])
    figures.changes += len(moments) - 1
    for moment in moments:
        platter.play(moment)
        losses = [Loss.NOTHING] if moment in kills else CUTS if moment in resumed else list(Loss)
        loss, block, seed = life.rng.choice(losses), life.rng.choice(BLOCKS), life.rng.getrandbits(64)
        target = scratch / f"cut-{moment}"
        platter.cut(target, loss, block, random.Random(seed))
        try:
            if isinstance(life, CompactedLife):
                figures.records += life.check(target, moment)
            else:
                figures.records += check_directory(target, life.topics, moment, life.rng)
        except Exception as error:
            history = "\n".join(
                [*life.history, f"cut after change {moment}, which loses {loss.value}, in blocks of {block}"]
            )
            raise Violation(f"{history}\n{type(error).__name__}: {error}") from error
        figures.cuts += 1
        shutil.rmtree(target)
        if moment in resumed:
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
        raise Violation("\n".join([*before.history, f"{end} after change {moment}, then", str(error)])) from error
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
    """Run a whole life with choices by the seed, and cut it everywhere. Raise Violation with a list of all actions."""
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
