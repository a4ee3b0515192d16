"""Random histories of quota changes and client usage, and the answers of this broker's quotas to them.

`python -m tests.server.quotas.histories LINES SEED` compares that many lines with Apache Kafka's own classes. The lines
are described in tests/data/quotas/README.md.
"""

import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from kafkapy.metadata.users import path_name
from kafkapy.runtime.rates import Windows
from kafkapy.server.quotas.buckets import Bucket
from kafkapy.server.quotas.levels import applied, kind_of
from tests.harness import brokers, toolchain

DATA = Path(__file__).parents[2] / "data" / "quotas"
USERS = ("alice", "bob", "ANONYMOUS", "Zoë*", "CN=a,O=b")
CLIENTS = ("app", "job-1", "", "a/b")
A_HISTORY = 400  # most lines of a history, before the next one begins


def histories(seed: int) -> Iterator[str]:
    """Yield the lines of random histories, without end."""
    rng = random.Random(seed)
    while True:
        kind = rng.choice(("bytes", "time", "tokens"))
        samples, seconds = rng.choice(((11, 1), (11, 1), (2, 1), (3, 5), (1, 1), (20, 2)))
        yield f"new {kind} {samples} {seconds} {rng.randrange(1_600_000_000_000, 1_800_000_000_000)}"
        users, clients = rng.sample(USERS, rng.randint(1, 3)), rng.sample(CLIENTS, rng.randint(1, 3))
        levels = rng.choice((("user",), ("client",), ("both",), ("user", "client", "both"), ("user", "client", "both")))
        base = rng.choice((1, 100, 12_345, 1e6, 3e9)) if kind == "bytes" else rng.choice((0.5, 3, 50, 200))
        pause = rng.choice((3, 60, 900, 4000))
        yield _quota(rng, users, clients, levels, base, kind)
        for _ in range(rng.randrange(A_HISTORY)):
            if rng.random() < 0.05:
                yield _quota(rng, users, clients, levels, base, kind)
                continue
            wait = 0 if rng.random() < 0.2 else int(rng.expovariate(1 / pause))
            if rng.random() < 0.01:
                wait += rng.randrange(60_000)
            use = base * pause / 1000 * rng.choice((0.1, 0.9, 1.1, 3)) if rng.random() < 0.97 else base * 30
            who = f"{wait} {rng.choice(users).replace(' ', '_')} {rng.choice(clients) or QUOTES}"
            if kind == "bytes":
                value = float(int(use))
                yield f"record {who} {value}"
                if rng.random() < 0.1:
                    yield f"add 0 {who.partition(' ')[2]} {-value}"
            elif kind == "time":
                yield f"record {who} {use * rng.random()}"
            else:
                yield f"{rng.choice(('strict', 'permissive'))} {who} {float(rng.randrange(1, 2 + int(use)))}"


QUOTES = '""'


def _quota(
    rng: random.Random, users: list[str], clients: list[str], levels: Iterable[str], base: float, kind: str
) -> str:
    level = rng.choice(tuple(levels))
    user = "<default>" if rng.random() < 0.3 else path_name(rng.choice(users))
    client = "<default>" if rng.random() < 0.3 else path_name(rng.choice(clients) or "none")
    value = base * rng.choice((0.5, 1, 1, 2))
    text = "-" if rng.random() < 0.2 else str(float(max(1, int(value))) if kind == "bytes" else value)
    return f"quota {user if level != 'client' else '-'} {client if level != 'user' else '-'} {text}"


def answers(lines: Iterable[str]) -> Iterator[str]:
    """Yield the answer of this broker's quotas to each line, in the form of `QuotaHistory.java`."""
    for line in lines:
        name, *words = line.split(" ")
        if name == "new":
            kind, samples, seconds, time = words
            windows, now = Windows(int(samples), int(seconds) * 1000), int(time)
            longest = windows.ms if kind == "time" else None
            limits: dict[tuple[str, str], float] = {}
            kinds: set[tuple[bool, bool]] = set()
            buckets: dict[tuple[str, str], Bucket] = {}
            yield ""
        elif name == "quota":
            entity = tuple("" if word == "-" else word for word in words[:2])
            kinds.add(kind_of(entity))
            limits.pop(entity, None)
            if words[2] != "-":
                limits[entity] = float(words[2])
            yield ""
        else:
            wait, user, client, value = words
            now += int(wait)
            client = "" if client == QUOTES else client
            found = applied(limits, path_name(user), path_name(client), kinds)
            bucket = buckets.get(found.shares)
            if bucket is None:
                bucket = buckets[found.shares] = Bucket(found.shares, windows, of_tokens=kind == "tokens")
            bucket.limit = found.limit if found.limit is not None else float((1 << 63) - 1)
            throttle = 0
            if name == "add":
                bucket.add(float(value), now)
            elif name == "record":
                throttle = bucket.record(float(value), now)
                if longest is not None:
                    throttle = min(throttle, longest)
            else:
                _, throttle = bucket.take(float(value), now, strict=name == "strict")
            used = bucket.used(now)
            window = bucket.rate.window_ms(now) if kind != "tokens" else "-"
            yield f"[{found.shares[0]}] [{client if found.shares[1] else ''}] {throttle} {window} {used!r}"


def same(ours: str, kafkas: str) -> bool:
    """Return True if two answers are equal; numbers are compared by their value."""
    mine, theirs = ours.rsplit(" ", 1), kafkas.rsplit(" ", 1)
    return ours == kafkas or (mine[0] == theirs[0] and float(mine[1]) == float(theirs[1]))


def kafkas_answers(lines: list[str]) -> list[str]:
    """Return the answers of Apache Kafka's quota classes to the lines. Needs Java."""
    classpath = toolchain.maven_classpath(brokers.KAFKA_POM, brokers.KAFKA_VERSION)
    command = [toolchain.find("java"), "-Xmx512m", "-cp", classpath, str(DATA / "QuotaHistory.java")]
    text = "\n".join(lines) + "\n"
    done = subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8", check=True)
    return done.stdout.split("\n")[:-1]


def write(count: int, seed: int) -> None:
    """Write histories, with Kafka's answers, into the file that the tests read."""
    source = histories(seed)
    lines = [next(source) for _ in range(count)]
    pairs = zip(lines, kafkas_answers(lines), strict=True)
    (DATA / "history.txt").write_text("".join(f"{line}\t{answer}\n" for line, answer in pairs))


def compare(count: int, seed: int) -> int:
    """Compare the answers to `count` lines with Kafka's, print the differences, and return their number."""
    source, total, throttled, different = histories(seed), 0, 0, 0
    while total < count:
        while not (line := next(source)).startswith("new"):
            pass
        lines = [line, *(next(source) for _ in range(min(200_000, count - total) - 1))]
        for line, ours, kafkas in zip(lines, answers(lines), kafkas_answers(lines), strict=True):
            total += 1
            throttled += bool(ours) and ours.split(" ")[2] != "0"
            if not same(ours, kafkas):
                different += 1
                if different < 10:
                    print(f"{line}\n  here  {ours}\n  Kafka {kafkas}")
    print(f"{total:,} lines, {throttled:,} of them throttled, {different:,} different")
    return different


if __name__ == "__main__":
    if sys.argv[3:] == ["--write"]:
        write(int(sys.argv[1]), int(sys.argv[2]))
    else:
        sys.exit(bool(compare(int(sys.argv[1]), int(sys.argv[2]))))
