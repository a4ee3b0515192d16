"""Asks Kafka's own AclAuthorizer. As a program: compares it with our rules on random cases.

python -m tests.security.acls.oracle 1000000          # sets of ACLs, with 3 questions each on average
python -m tests.security.acls.oracle 600 --write      # keeps them as tests/data/acls/kafka-3.9.1.jsonl
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.harness import toolchain
from tests.harness.brokers import KAFKA_POM, KAFKA_VERSION
from tests.security.acls.cases import cases, our_answers

SOURCES = Path(__file__).parent / "java"
SAMPLE = Path(__file__).parents[2] / "data" / "acls" / f"kafka-{KAFKA_VERSION}.jsonl"


def kafkas_answers(asked: Iterable[list[str]]) -> Iterator[str]:
    """Yield Kafka's answers to the questions of each case."""
    classpath = toolchain.maven_classpath(KAFKA_POM, KAFKA_VERSION)
    classes = toolchain.java_classes(SOURCES, classpath)
    java = [toolchain.find("java"), "-Xmx512m", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8"]
    child = subprocess.Popen(
        [*java, "-cp", f"{classes}:{classpath}", "AclOracle"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    complaints: list[str] = []

    def ask() -> None:
        assert child.stdin is not None
        with child.stdin:
            for lines in asked:
                child.stdin.write("\n".join(lines) + "\n")

    def listen() -> None:
        assert child.stderr is not None
        complaints.extend(line for line in child.stderr if not line.startswith("SLF4J"))

    threads = [threading.Thread(target=work) for work in (ask, listen)]
    for thread in threads:
        thread.start()
    assert child.stdout is not None
    with child.stdout:
        for line in child.stdout:
            yield line.rstrip("\n")
    for thread in threads:
        thread.join()
    if child.wait():
        raise RuntimeError("".join(complaints))


def main(count: int, *, write: bool) -> None:
    seed, began = 39, time.monotonic()
    questions = allowed = different = 0
    kept = []
    for lines, theirs in zip(cases(count, seed), kafkas_answers(cases(count, seed)), strict=True):
        ours = our_answers(lines)
        questions += len(theirs)
        allowed += theirs.count("+")
        if ours != theirs:
            different += 1
            print("\n".join([*lines, f"Kafka {theirs}, ours {ours}"]))
        kept.append({"lines": lines, "answers": theirs}) if write else None
    seconds = time.monotonic() - began
    print(f"{count} sets, {questions} questions, {allowed} of them allowed, in {seconds:.0f} s")
    print(f"{different} sets with different answers")
    if write:
        SAMPLE.parent.mkdir(exist_ok=True)
        SAMPLE.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in kept), encoding="utf-8")
    if different:
        sys.exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), write="--write" in sys.argv)
