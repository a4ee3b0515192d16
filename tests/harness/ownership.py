"""Checks the reported events of a group's members for violations of the group protocol.

The events of one member are in the order in which they happened; events of different members are ordered only by
generation.
"""

from collections.abc import Iterable
from typing import Any


def violations(events: Iterable[dict[str, Any]]) -> list[str]:
    """Return the violations, empty if there are none:

    - two living members that own a partition in one generation, or process records of it in one;
    - a record that is processed twice in one generation, although no commit of it was refused in between, and the first
      member that processed it did not die before it was committed;
    - a record that is processed in a later generation than one in which a commit of it was acknowledged.
    """
    owner: dict[tuple[int, int], str] = {}  # (generation, partition) -> member that owned it or processed it
    seen: dict[tuple[int, int], set[int]] = {}  # (generation, partition) -> offsets
    committed: dict[tuple[int, int], int] = {}  # (partition, offset) -> first generation that committed it
    dead: set[str] = set()
    done: list[tuple[int, int, int, int, str]] = []
    found = []

    def claim(generation: int, partition: int, member: str) -> None:
        other = owner.setdefault((generation, partition), member)
        if other in dead:  # a static member continues in the generation of its predecessor
            owner[generation, partition] = member
        elif other != member:
            found.append(f"generation {generation}: partition {partition} has two owners, {other} and {member}")

    for event in events:
        member = event["member"]
        if event["event"] == "assigned":
            for partition in event["owned"]:
                claim(event["generation"], partition, member)
        elif event["event"] == "died":
            dead.add(member)
            for (generation, partition), offsets in seen.items():
                if owner[generation, partition] == member:
                    offsets.intersection_update(o for o in offsets if committed.get((partition, o)) == generation)
        elif event["event"] == "commit_failed":  # a client may read the records again
            for partition, first, last in event["runs"]:
                seen.setdefault((event["generation"], partition), set()).difference_update(range(first, last + 1))
        elif event["event"] in ("records", "committed"):
            generation = event["generation"]
            for partition, first, last in event["runs"]:
                if event["event"] == "committed":
                    for offset in range(first, last + 1):
                        earliest = committed.get((partition, offset), generation)
                        committed[partition, offset] = min(earliest, generation)
                    continue
                claim(generation, partition, member)
                done.append((generation, partition, first, last, member))
                offsets = seen.setdefault((generation, partition), set())
                for offset in range(first, last + 1):
                    if offset in offsets:
                        found.append(f"generation {generation}: {partition}@{offset} twice, last by {member}")
                    offsets.add(offset)
    for generation, partition, first, last, member in done:
        for offset in range(first, last + 1):
            earlier = committed.get((partition, offset), generation)
            if earlier < generation:
                found.append(
                    f"{partition}@{offset} was committed in generation {earlier}, and {member} had it in {generation}"
                )
    return found


def repeated_without_reason(events: Iterable[dict[str, Any]]) -> set[tuple[int, int]]:
    """Return (partition, offset) of the records that were processed twice although no commit of them was refused.

    Only members that crash may leave such records behind.
    """
    seen: set[tuple[int, int]] = set()
    twice: set[tuple[int, int]] = set()
    refused: set[tuple[int, int]] = set()
    for event in events:
        if event["event"] in ("records", "commit_failed"):
            places = {(p, offset) for p, first, last in event["runs"] for offset in range(first, last + 1)}
            if event["event"] == "commit_failed":
                refused |= places
            else:
                twice |= seen & places
                seen |= places
    return twice - refused
