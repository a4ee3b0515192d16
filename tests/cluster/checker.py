"""Checks histories (history.py) against the logs at the end of a run. Needs only files, no running cluster.

Each check returns a list with a sentence for each violation; an empty list means that there is none.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.cluster.history import History

TopicPartition = tuple[str, int]
MOST = 20  # sentences of one check; more would not help


class Stored(NamedTuple):
    """A data record in the log at the end: its offset, the leader epoch of its batch, its value, and True if consumers
    with isolation read_committed get it."""

    offset: int
    epoch: int
    value: str
    committed: bool = True


End = dict[TopicPartition, list[Stored]]


def check(histories: Sequence[History], end: End, copies: dict[str, str] | None = None) -> list[str]:
    """Return the violations that all checks find. `end` has all partitions that the histories name; `copies` names the
    source topic of each topic that was written by transactional copies."""
    return [
        *check_completeness(histories),
        *check_acknowledged(histories, end),
        *check_at_most_once(histories, end),
        *check_seen(histories, end),
        *check_read_to_the_end(histories, end),
        *check_high_watermarks(histories),
        *check_groups(histories, end),
        *check_transactions(histories, end),
        *(problem for copy, source in (copies or {}).items() for problem in check_copy(source, copy, end)),
    ]


def _first(problems: Iterable[str]) -> list[str]:
    found = list(problems)
    return found[:MOST] + ([f"... and {len(found) - MOST} more like the last"] if len(found) > MOST else [])


def check_completeness(histories: Sequence[History]) -> list[str]:
    """Return a problem for each unexpected error of a client, and for each client that did not come to its end."""
    problems = [f"{each.client}: {event['error']}" for each in histories for event in each.of("error")]
    problems += [f"{each.client} did not come to its end" for each in histories if not any(each.of("done"))]
    return _first(problems)


def check_acknowledged(histories: Sequence[History], end: End) -> list[str]:
    """Return a problem unless every record acknowledged with acks=all is in the log, at the acknowledged offset, and in
    the order in which its producer sent it. A client whose retry was a duplicate may not know the offset."""
    problems = []
    places: dict[tuple[TopicPartition, str], list[int]] = defaultdict(list)
    for key, records in end.items():
        for record in records:
            places[key, record.value].append(record.offset)
    for history in histories:
        if history.about.get("acks") != "all":
            continue
        order = {event["v"]: number for number, event in enumerate(history.of("sent"))}
        latest: dict[TopicPartition, int] = {}
        for event in sorted(history.of("acked"), key=lambda event: order[event["v"]]):
            key, offset = (event["topic"], event["p"]), event.get("o", -1)
            what = f"{history.client}'s record {event['v']}, acknowledged at {key[0]}-{key[1]} offset {offset}"
            found = places[key, event["v"]]
            if not found:
                problems.append(f"{what}, is lost")
                continue
            if offset not in (-1, *found):
                problems.append(f"{what}, has moved to {found}")
            if found[0] < latest.get(key, -1):
                problems.append(f"{what}, was sent after the one at {latest[key]}: the order is wrong")
            latest[key] = found[0]
    return _first(problems)


def check_at_most_once(histories: Sequence[History], end: End) -> list[str]:
    """Return a problem if a log has a record of an idempotent producer twice, or a record that no client sent."""
    idempotent = {event["v"] for each in histories if each.about.get("idempotent") for event in each.of("sent")}
    sent = {event["v"] for each in histories for event in each.of("sent")}
    counted = Counter(record.value for records in end.values() for record in records)
    problems = [f"{value} is there {n} times" for value, n in counted.items() if n > 1 and value in idempotent]
    problems += [f"no client sent {value}, and it is there" for value in counted if value not in sent]
    return _first(problems)


def check_seen(histories: Sequence[History], end: End) -> list[str]:
    """Return a problem unless each record that a consumer saw is in the log at the end, at the same offset and with the
    same leader epoch, and is committed if the consumer has isolation read_committed. So two consumers cannot have
    seen different records either."""
    problems = []
    stored = {key: {record.offset: record for record in records} for key, records in end.items()}
    for history in histories:
        only_committed = history.about.get("isolation") == "read_committed"
        for event in history.of("seen"):
            where = f"{history.client} saw {event['v']} at {event['topic']}-{event['p']} offset {event['o']}"
            record = stored[event["topic"], event["p"]].get(event["o"])
            if record is None or record.value != event["v"]:
                problems.append(f"{where}; in the end there is {record and record.value}")
            elif event["epoch"] not in (-1, record.epoch):
                problems.append(f"{where} of leader epoch {event['epoch']}; in the end it is of {record.epoch}")
            elif only_committed and not record.committed:
                problems.append(f"{where}, which was not committed")
    return _first(problems)


def check_read_to_the_end(histories: Sequence[History], end: End) -> list[str]:
    """Return a problem unless each consumer with the role "consumer" read every record once and in order, from the
    first offset to the end."""
    problems = []
    for history in histories:
        if history.role != "consumer":
            continue
        only_committed = history.about.get("isolation") == "read_committed"
        seen: dict[TopicPartition, list[int]] = defaultdict(list)
        for event in history.of("seen"):
            seen[event["topic"], event["p"]].append(event["o"])
        for key, records in end.items():
            if key[0] not in history.about["topics"]:
                continue
            wanted = [record.offset for record in records if record.committed or not only_committed]
            if seen[key] != wanted:
                missing = sorted(set(wanted) - set(seen[key]))[:10]
                twice = [offset for offset, n in Counter(seen[key]).items() if n > 1][:10]
                problems.append(
                    f"{history.client} did not see {key[0]}-{key[1]} once and in order: "
                    f"not seen {missing}, seen more than once {twice}"
                )
    return _first(problems)


def check_high_watermarks(histories: Sequence[History]) -> list[str]:
    """Return a problem if a leader's high watermark went back within one leader epoch. Between epochs it may."""
    problems = []
    for history in histories:
        highest: dict[tuple[str, int, int], int] = {}
        for event in history.of("hw"):
            key = event["topic"], event["p"], event["epoch"]
            if event["hw"] < highest.get(key, 0):
                problems.append(
                    f"the high watermark of {key[0]}-{key[1]} went back from {highest[key]} to {event['hw']} "
                    f"within leader epoch {key[2]}"
                )
            highest[key] = event["hw"]
    return _first(problems)


def check_groups(histories: Sequence[History], end: End) -> list[str]:
    """Return a problem unless the members of each group together saw every record, and a problem if a member fetched a
    committed offset below one whose commit was acknowledged before."""
    problems = []
    groups: dict[str, list[History]] = defaultdict(list)
    for history in histories:
        if history.role == "member":
            groups[history.about["group"]].append(history)
    for group, members in groups.items():
        commits: dict[TopicPartition, list[tuple[float, int]]] = defaultdict(list)
        seen: dict[TopicPartition, set[int]] = defaultdict(set)
        for member in members:
            for event in member.of("committed"):
                commits[event["topic"], event["p"]].append((event["t"], event["o"]))
            for event in member.of("seen"):
                seen[event["topic"], event["p"]].add(event["o"])
        for member in members:
            for event in member.of("assigned"):
                before = [o for t, o in commits[event["topic"], event["p"]] if t < event["t0"]]
                if before and event["o"] < max(before):
                    problems.append(
                        f"{member.client} got the committed offset {event['o']} of {event['topic']}-{event['p']}; "
                        f"group {group} had committed {max(before)} before"
                    )
        topics = {topic for member in members for topic in member.about["topics"]}
        for key, records in end.items():
            unseen = [record.offset for record in records if key[0] in topics and record.offset not in seen[key]]
            if unseen:
                problems.append(f"group {group} did not see {key[0]}-{key[1]} at {unseen[:10]} ({len(unseen)} in all)")
    return _first(problems)


def check_transactions(histories: Sequence[History], end: End) -> list[str]:
    """Return a problem unless all records of a committed transaction are committed, none of an aborted one, and all or
    none of a transaction whose outcome its producer does not know."""
    problems = []
    committed = {record.value for records in end.values() for record in records if record.committed}
    for history in histories:
        for event in history.of("ended"):
            count = sum(value in committed for value in event["values"])
            wrong = {
                "committed": count < len(event["values"]),
                "aborted": count > 0,
                "unknown": 0 < count < len(event["values"]),
            }[event["outcome"]]
            if wrong:
                problems.append(
                    f"{history.client}'s transaction with {event['values'][:1]} ended as {event['outcome']}, "
                    f"but {count} of its {len(event['values'])} records are committed"
                )
    return _first(problems)


def check_copy(source: str, copy: str, end: End) -> list[str]:
    """Return a problem unless the committed records of the topic `copy` have each committed record of `source` exactly
    once. The value of a copied record is its own name, "|" and the name of the record in the source."""
    wanted = Counter(r.value for key, records in end.items() if key[0] == source for r in records if r.committed)
    copied: Counter[str] = Counter()
    for key, records in end.items():
        if key[0] == copy:
            copied.update(record.value.partition("|")[2] for record in records if record.committed)
    problems = [
        f"{value} of {source} is {copied[value]} times in {copy}, not {wanted[value]}"
        for value in {*wanted, *copied}
        if copied[value] != wanted[value]
    ]
    return _first(sorted(problems))
