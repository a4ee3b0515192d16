"""What brokers say of groups, sorted into what there is and sentences about what is not."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from kafkapy.client.group_admin import DEAD, GroupAdmin, GroupDescription
from kafkapy.errors import Errors, KafkaError
from kafkapy.tools.errors import ToolError
from kafkapy.tools.main import sentence_of

T = TypeVar("T")


def found_and_refused(answers: Mapping[str, T | KafkaError]) -> tuple[dict[str, T], list[str]]:
    """The answers, and a sentence, without its full stop, for each name that has an error."""
    found = {name: answer for name, answer in answers.items() if not isinstance(answer, KafkaError)}
    return found, [refusal(name, error) for name, error in answers.items() if isinstance(error, KafkaError)]


def existing(groups: GroupAdmin, names: Iterable[str]) -> tuple[list[GroupDescription], list[str]]:
    """The groups that are there, described, and a sentence for each that is not."""
    found, failed = found_and_refused(groups.describe(names))
    failed += [_not_there(name) for name, group in found.items() if group.state == DEAD]
    return [group for group in found.values() if group.state != DEAD], failed


def refusal(name: str, error: KafkaError) -> str:
    """A sentence about a group's error, without its full stop."""
    if error.code == Errors.GROUP_ID_NOT_FOUND:
        return _not_there(name)
    if error.code == Errors.NON_EMPTY_GROUP:
        return f"group {name!r} still has members: stop them first (NON_EMPTY_GROUP)"
    return sentence_of(error).rstrip(".")


def complain(failed: list[str]) -> None:
    """Ends the command with the sentences, if there are any."""
    if failed:
        raise ToolError("; ".join(failed))


def _not_there(name: str) -> str:
    return f"there is no group {name!r}"
