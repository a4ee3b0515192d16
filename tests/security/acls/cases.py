"""Random sets of ACLs and questions about them, as lines that both Kafka's authorizer and ours can be asked.

Lines have words with tabs between:

    new   SUPER_USERS EVERYONE                         an authorizer without ACLs: super.users and
                                                       allow.everyone.if.no.acl.found
    set   TYPE NAME PATTERN_TYPE [PRINCIPAL HOST OPERATION PERMISSION] ...      replaces the ACLs of a resource pattern
    may   PRINCIPAL ADDRESS OPERATION TYPE NAME        a question
    some  PRINCIPAL ADDRESS OPERATION TYPE             a question: authorizeByResourceType
    end                                                the end of a case

The names are few and short, so that patterns, prefixes and principals meet often.
"""

import random
from collections.abc import Iterator, Sequence

from kafkapy.security.acls.bindings import OPERATIONS, RESOURCE_TYPES, Entry, Pattern
from kafkapy.security.acls.hosts import host_text
from kafkapy.security.acls.index import AclIndex
from kafkapy.security.acls.rules import Client, decide, is_allowed_on_some

NAMES = ("*", "a", "ab", "abc", "b", "ba", "*a", "A", "ü", "a b", "kafka-cluster", "a" * 40)
PRINCIPALS = ("User:a", "User:b", "User:CN=a,O=b", "Group:a", "User:")
IN_ACLS = (*PRINCIPALS, "User:*", "User:*", "Group:*", "*:*")
ADDRESSES = ("10.0.0.1", "10.0.0.2", "::1", "2001:db8::ff00:42:8329", "::ffff:10.0.0.1", "fe80::1")
HOSTS = ("*", "*", "*", "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1", "::1", "2001:db8:0:0:0:ff00:42:8329", "10.0.0.0/8")
SOME_OPERATIONS = ("READ", "WRITE", "DESCRIBE", "ALL")
ALL_OPERATIONS = tuple(name for name in OPERATIONS if name != "ANY")
TYPES = tuple(name for name in RESOURCE_TYPES if name != "ANY")


def random_case(rng: random.Random) -> list[str]:
    """Return the lines of a case."""
    super_users = ";".join(rng.sample(PRINCIPALS, rng.choice((0, 0, 0, 0, 1, 2))))
    lines = ["\t".join(("new", super_users, rng.choice(("true", "false", "false"))))]
    types = TYPES if rng.random() < 0.2 else rng.sample(TYPES, 1)
    operations = ALL_OPERATIONS if rng.random() < 0.5 else SOME_OPERATIONS
    for _ in range(rng.choice((1, 1, 2))):
        for _ in range(rng.choice((0, 1, 2, 3, 4, 6))):
            lines.append(_change(rng, types, operations))
        for _ in range(rng.choice((1, 2, 3))):
            lines.append(_question(rng, types, operations))
    lines.append("end")
    return lines


def _change(rng: random.Random, types: Sequence[str], operations: Sequence[str]) -> str:
    words = ["set", rng.choice(types), rng.choice(NAMES), rng.choice(("LITERAL", "PREFIXED"))]
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        permission = rng.choice(("ALLOW", "ALLOW", "DENY"))
        words += [rng.choice(IN_ACLS), rng.choice(HOSTS), rng.choice(operations), permission]
    return "\t".join(words)


def _question(rng: random.Random, types: Sequence[str], operations: Sequence[str]) -> str:
    operation = rng.choice([one for one in operations if one != "ALL"])
    words = [rng.choice(PRINCIPALS), rng.choice(ADDRESSES), operation, rng.choice(types)]
    if rng.random() < 0.3:
        return "\t".join(("some", *words))
    return "\t".join(("may", *words, rng.choice(NAMES)))


def cases(count: int, seed: int) -> Iterator[list[str]]:
    """Yield `count` random cases, the same for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        yield random_case(rng)


def our_answers(lines: Sequence[str]) -> str:
    """Return the answers of our rules to the questions of a case: + allowed, - denied."""
    index, super_users, everyone = AclIndex(), frozenset[str](), False
    answers = []
    for line in lines:
        kind, *words = line.split("\t")
        if kind == "new":
            super_users, everyone = frozenset(filter(None, words[0].split(";"))), words[1] == "true"
        elif kind == "set":
            index = index.changed(
                {Pattern(*words[:3]): frozenset(Entry(*words[at : at + 4]) for at in range(3, len(words), 4))}
            )
        elif kind != "end":
            principal, address, *rest = words
            client = Client(principal, host_text(address), principal in super_users)
            if kind == "may":
                operation, resource_type, name = rest
                allowed = decide(
                    index, client, operation, resource_type, name, everyone_without_acls=everyone
                ).is_allowed
            else:
                allowed = is_allowed_on_some(index, client, *rest, everyone_without_acls=everyone)
            answers.append("+" if allowed else "-")
    return "".join(answers)
