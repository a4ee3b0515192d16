"""The assignors give the same assignments as those of the Java clients 3.9.1."""

import random
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from kafkapy.client.cluster import TopicPartition
from kafkapy.client.groups.assignors import ASSIGNORS, Member
from kafkapy.client.groups.assignors.base import NO_GENERATION, Assignment
from tests.harness import brokers, toolchain

pytestmark = pytest.mark.other_runtime

SOURCES = Path(__file__).parent / "assignors"
GROUPS = 150  # of each assignor


class JavaAssignors:
    """A JVM that computes assignments, line by line (assignors/Assignors.java)."""

    def __init__(self) -> None:
        classpath = toolchain.maven_classpath(brokers.KAFKA_POM, brokers.KAFKA_VERSION)
        classes = toolchain.java_classes(SOURCES, classpath)
        java = [
            toolchain.find("java"),
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
        ]
        self._process = subprocess.Popen(
            [*java, "-cp", f"{classes}:{classpath}", "Assignors"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def close(self) -> None:
        self._process.communicate()

    def assign(self, name: str, members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment | str:
        """Return Java's assignment, or the exception that Java threw."""
        answer = self._ask(
            "assign", name, _pairs(partitions.items()), ";".join(_description_of(member) for member in members)
        )
        if answer.startswith("!"):
            return answer
        shares = [one.split("|") for one in answer.split(";")]
        return {member: _partitions(share) for member, share in shares}

    def user_data(self, name: str, assigned: Sequence[TopicPartition], generation: int) -> bytes | None:
        answer = self._ask("data", name, _pairs(assigned), str(generation))
        return None if answer == "-" else bytes.fromhex(answer)

    def _ask(self, *words: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().rstrip("\n")


def _pairs(pairs: object) -> str:
    return ",".join(f"{topic}={number}" for topic, number in pairs)  # type: ignore[attr-defined]


def _partitions(text: str) -> list[TopicPartition]:
    words = [one.split("=") for one in text.split(",") if one]
    return [(topic, int(index)) for topic, index in words]


def _description_of(member: Member) -> str:
    data = "-" if member.user_data is None else member.user_data.hex()
    topics = ",".join(member.topics)
    return f"{member.id}|{member.instance_id or ''}|{topics}|{_pairs(member.owned)}|{member.generation}|{data}"


@pytest.fixture(scope="module")
def java() -> Iterator[JavaAssignors]:
    process = JavaAssignors()
    yield process
    process.close()


class Group:
    """A group that goes through generations: members and topics come and go, and some members miss generations."""

    def __init__(self, rng: random.Random, name: str, *, same_topics: bool) -> None:
        self.rng = rng
        self.assignor = ASSIGNORS[name]
        self.same_topics = same_topics
        self.generation = 0
        self.partitions = {f"topic-{n}": rng.randint(1, 7) for n in range(rng.randint(1, 5))}
        self.subscribed: dict[str, list[str]] = {}
        self.instances: dict[str, str] = {}
        self.last: dict[str, tuple[list[TopicPartition], int]] = {}  # (assignment, generation) of each member
        self.number = 0
        for _ in range(rng.randint(1, 20)):
            self.join()

    def join(self) -> None:
        self.number += 1
        member = f"consumer-{self.rng.randrange(16**8):08x}-{self.number}"
        self.subscribed[member] = self.topics()
        if self.rng.random() < 0.3:
            self.instances[member] = f"instance-{self.rng.randrange(10**6)}-{self.number}"

    def topics(self) -> list[str]:
        if self.same_topics:
            return sorted(self.partitions)
        return self.rng.sample(sorted(self.partitions), self.rng.randint(1, len(self.partitions)))

    def change(self) -> None:
        """Change members and topics at random, as between two rebalances."""
        rng = self.rng
        for _ in range(rng.choice((0, 0, 1, 3))):
            self.join()
        for member in rng.sample(sorted(self.subscribed), min(rng.choice((0, 0, 1, 2)), len(self.subscribed) - 1)):
            del self.subscribed[member]
            self.last.pop(member, None)
        if rng.random() < 0.3:
            topic = rng.choice(sorted(self.partitions))
            self.partitions[topic] += rng.randint(1, 3)
        if rng.random() < 0.2:
            self.partitions[f"topic-{len(self.partitions)}-{self.generation}"] = rng.randint(1, 5)
        if rng.random() < 0.1 and len(self.partitions) > 1:
            del self.partitions[rng.choice(sorted(self.partitions))]
        for member in self.subscribed:
            if self.same_topics or rng.random() < 0.1:
                self.subscribed[member] = self.topics()

    def members(self) -> list[Member]:
        """Return the joining members with their owned partitions, which are outdated for members that fell behind."""
        found = []
        for member, topics in self.subscribed.items():
            assigned, generation = self.last.get(member, (None, NO_GENERATION))
            # Leave out topics that a member has unsubscribed: Java assigns them to it nevertheless (see below).
            held = [one for one in assigned or [] if one[0] in topics]
            owned = held if self.assignor.cooperative else []
            data = self.assignor.user_data(None if assigned is None else held, generation)
            if data is not None and self.assignor.name == "sticky" and self.rng.random() < 0.2:
                data = data[:-4]  # version 0 has no generation
            since = generation
            if self.rng.random() < 0.2:
                since = NO_GENERATION  # like a client that does not send its generation
            found.append(Member(member, topics, self.instances.get(member), owned, since, data))
        self.rng.shuffle(found)
        return found

    def assigned(self, shares: Assignment) -> None:
        self.generation += 1
        for member, share in shares.items():
            if member not in self.last or self.rng.random() > 0.1:  # the other members miss this generation
                self.last[member] = share, self.generation


@pytest.mark.parametrize("same_topics", [True, False], ids=["same-topics", "different-topics"])
@pytest.mark.parametrize("name", ASSIGNORS)
def test_groups_get_the_same_assignments_as_from_java_in_all_generations(
    java: JavaAssignors, name: str, same_topics: bool
) -> None:
    for seed in range(GROUPS):
        group = Group(random.Random(f"{name} {same_topics} {seed}"), name, same_topics=same_topics)
        for generation in range(5):
            members, partitions = group.members(), dict(group.partitions)
            ours = group.assignor.assign(members, partitions)
            theirs = java.assign(name, members, partitions)
            assert ours.keys() == group.subscribed.keys()
            assert ordered(ours) == ordered(theirs), f"seed {seed}, generation {generation}: {members} {partitions}"
            group.assigned(ours)
            group.change()


def ordered(shares: Assignment | str) -> object:
    """Return the assignment sorted, since Java's order depends on a hash map of topics."""
    return shares if isinstance(shares, str) else {member: sorted(share) for member, share in shares.items()}


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_user_data_are_those_of_java(java: JavaAssignors, name: str) -> None:
    for assigned in ([], [("t", 0)], [("t", 2), ("u", 0), ("t", 1)]):
        assert ASSIGNORS[name].user_data(assigned, 7) == java.user_data(name, assigned, 7)


def test_invalid_user_data_claim_no_partitions(java: JavaAssignors) -> None:
    good = ASSIGNORS["sticky"].user_data([("t", 0), ("t", 1), ("u", 0)], 3)
    assert good is not None
    broken = [good[:cut] for cut in range(len(good))]
    broken += [struct.pack(">i", -1), struct.pack(">i", 2**31 - 1), b"\xff" * 40, good + b"more"]
    for data in broken:
        members = [
            Member("a", ["t", "u"], user_data=data),
            Member("b", ["t", "u"], user_data=ASSIGNORS["sticky"].user_data([("t", 2), ("u", 1)], 3)),
            Member("c", ["t", "u"], user_data=b""),
        ]
        for name in ("sticky", "cooperative-sticky"):
            ours = ASSIGNORS[name].assign(members, {"t": 3, "u": 2})
            assert ordered(ours) == ordered(java.assign(name, members, {"t": 3, "u": 2})), (name, data)


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_partitions_claimed_by_two_members_are_assigned_as_by_java(java: JavaAssignors, name: str) -> None:
    rng = random.Random(name)
    for _ in range(200):
        partitions = {"t": rng.randint(1, 6), "u": rng.randint(1, 6)}
        every = [(topic, index) for topic, count in partitions.items() for index in range(count)]
        members = []
        for number in range(rng.randint(2, 6)):
            held = rng.sample(every, rng.randint(0, len(every)))
            generation = rng.choice((NO_GENERATION, 3, 4))
            data = ASSIGNORS[name].user_data(held, generation)
            topics = rng.choice((["t", "u"], ["t", "u"], ["u", "t"]))
            members.append(Member(f"m{number}", topics, None, held, generation, data))
        ours = ASSIGNORS[name].assign(members, partitions)
        assert ordered(ours) == ordered(java.assign(name, members, partitions)), members
