"""A mirror, its source and its target are killed: no record is lost, and with exactly-once no record is duplicated.

`KAFKAPY_FAULT_ROUNDS=20 python -m pytest tests/faults/test_mirror.py -s` is the full length; what died and how many
records were there twice is printed. Moments are random, by a seed that is printed (KAFKAPY_FAULT_SEED repeats it), and
then chosen ones. KAFKAPY_MIRROR_SOURCE and KAFKAPY_MIRROR_TARGET=kafka put Apache Kafka 3.9.1 on a side;
KAFKAPY_MIRROR_SOURCE=zookeeper reads it by a group in ZooKeeper.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.mirror_life import Life
from tests.faults.rounds import rounds

pytestmark = pytest.mark.not_quick

ROUNDS = rounds(3)
SOURCE = os.environ.get("KAFKAPY_MIRROR_SOURCE", "kafkapy")
TARGET = os.environ.get("KAFKAPY_MIRROR_TARGET", "kafkapy")
COMMIT = (
    "kafkapy.client.original.consuming.connector:ConsumerConnector.commit_offsets"
    if SOURCE == "zookeeper"
    else "kafkapy.client.groups.group_offsets:GroupOffsets.commit"
)
LINK = "kafkapy.client.producing.transaction_link:TransactionLink"
# Before and after every request of a mirror to a coordinator, which may carry out a request although the mirror never
# gets the response.
MOMENTS = {
    False: [
        f"{place}:{when}:2"
        for place in (
            "kafkapy.client.producing.outbox:Outbox._send",
            "kafkapy.mirror.delivery:SafeDelivery.flush",
            COMMIT,
        )
        for when in ("before", "after")
    ],
    True: [
        f"{place}:{when}:{count}"
        for place, count in (
            (f"{LINK}.init", 2),
            ("kafkapy.mirror.target_offsets:TargetOffsets.fetch", 1),
            (f"{LINK}.add_partitions", 2),
            ("kafkapy.client.producing.outbox:Outbox._send", 3),
            (f"{LINK}.send_offsets", 5),
            (f"{LINK}.end", 5),
            (COMMIT, 1),
        )
        for when in ("before", "after")
    ],
}


@pytest.fixture(params=[False, True], ids=["at-least-once", "exactly-once"])
def life(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Life]:
    living = Life(tmp_path, SOURCE, TARGET, exactly_once=request.param)
    try:
        yield living
    finally:
        living.end()


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("KAFKAPY_FAULT_SEED", random.randrange(1 << 32)))
    print(f"\nmirror: seed {seed}")
    return random.Random(seed)


def check(life: Life, deaths: Counter[str]) -> None:
    found = life.counted()
    twice = sum(times - 1 for times in found.values())
    print(f"mirror {life.isolation} from {SOURCE} to {TARGET}: {dict(deaths)}; {len(found)} records, {twice} repeated")
    if life.exactly_once:
        assert not twice, f"{twice} records are there more than once"


def test_no_record_is_lost_whichever_process_is_killed(life: Life, rng: random.Random) -> None:
    mirrors = [life.mirror("one"), life.mirror("two")]
    deaths: Counter[str] = Counter()
    victims = ["a mirror", "source", "target", "a sleeper"]
    try:
        for mirror in mirrors:
            mirror.wait_until_it_has_begun()
        for number in range(ROUNDS):
            victim = victims[number % len(victims)] if 2 * len(victims) > ROUNDS else rng.choice(victims)
            deaths[victim] += 1
            life.wait_for_more(rng.randint(1, 500))
            if victim == "source":
                life.source.kill()
            elif victim == "target":
                life.target.kill()
            else:
                which = rng.randrange(2)
                if victim == "a sleeper":
                    mirrors[which].freeze(life.session_s * rng.choice((0.5, 1.5, 2.0)))
                else:
                    mirrors[which].kill()
                    mirrors[which] = life.mirror(f"again-{number}")
                    mirrors[which].wait_until_it_has_begun()
        life.wait_for_more(100)
        check(life, deaths)
        for mirror in mirrors:
            assert mirror.stop() == 0, mirror.log.read_text()[-4000:]
    finally:
        for mirror in mirrors:
            if mirror.runs:
                mirror.kill()


def test_no_record_is_lost_when_the_mirror_is_killed_at_chosen_moments(life: Life, rng: random.Random) -> None:
    moments = MOMENTS[life.exactly_once]
    chosen = moments if len(moments) <= 3 * ROUNDS else rng.sample(moments, 3 * ROUNDS // 2)
    deaths: Counter[str] = Counter()
    for number, moment in enumerate(chosen):
        dying = life.mirror(f"dying-{number}", moment)
        assert dying.process.child.wait(60) == -9, dying.log.read_text()
        deaths[moment.partition(":")[2]] += 1
    last = life.mirror("last")
    try:
        check(life, deaths)
        assert last.stop() == 0, last.log.read_text()[-4000:]
    finally:
        if last.runs:
            last.kill()
