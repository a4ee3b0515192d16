"""`kafkapy topics create`, whoever makes the topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafkapy.errors import Errors, KafkaError


def create_each(names: Iterable[str], make: Callable[[str], str], *, if_not_exists: bool, validate_only: bool) -> None:
    """Says of each topic what became of it. `make(name)` makes it, or only checks whether that could be, and gives how
    many partitions it has, in words. Raises what `make` raises."""
    for name in names:
        try:
            partitions = make(name)
        except KafkaError as error:
            if error.code == Errors.TOPIC_ALREADY_EXISTS and if_not_exists:
                print(f"Topic {name} is there already.")
                continue
            raise
        if validate_only:
            print(f"Topic {name} could be created.")
        else:
            print(f"Created topic {name} with {partitions}.")
