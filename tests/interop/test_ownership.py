"""The checker of group ownership finds each kind of violation."""

from typing import Any

from tests.harness.ownership import repeated_without_reason, violations


def assigned(member: str, generation: int, *owned: int) -> dict[str, Any]:
    return {"member": member, "event": "assigned", "generation": generation, "owned": list(owned)}


def did(member: str, generation: int, *runs: list[int], event: str = "records") -> dict[str, Any]:
    return {"member": member, "event": event, "generation": generation, "runs": list(runs)}


def committed(member: str, generation: int, *runs: list[int]) -> dict[str, Any]:
    return did(member, generation, *runs, event="committed")


def refused(member: str, generation: int, *runs: list[int]) -> dict[str, Any]:
    return did(member, generation, *runs, event="commit_failed")


def test_a_clean_handover_is_no_violation() -> None:
    story = [assigned("a", 1, 0, 1), did("a", 1, [0, 0, 9]), committed("a", 1, [0, 0, 9]), assigned("a", 2, 1)]
    story += [assigned("b", 2, 0), did("b", 2, [0, 10, 12])]
    assert violations(story) == []
    assert repeated_without_reason(story) == set()


def test_two_owners_in_one_generation_are_found() -> None:
    assert len(violations([assigned("a", 3, 0, 1), assigned("b", 3, 1, 2)])) == 1
    assert len(violations([assigned("a", 3, 0), did("b", 3, [0, 5, 5])])) == 1
    assert violations([assigned("a", 3, 0), assigned("b", 4, 0)]) == []


def test_a_record_read_twice_in_a_generation_is_found() -> None:
    assert len(violations([did("a", 1, [0, 0, 5]), did("a", 1, [0, 5, 7])])) == 1
    assert violations([did("a", 1, [0, 0, 5]), refused("a", 1, [0, 0, 5]), did("a", 1, [0, 5, 7])]) == []


def test_a_record_read_again_after_its_commit_is_found() -> None:
    story = [did("a", 1, [0, 0, 5]), committed("a", 1, [0, 0, 5]), did("b", 2, [0, 5, 7])]
    assert len(violations(story)) == 1
    assert violations([story[0], story[2]]) == []  # the records were not committed


def test_a_record_may_be_read_again_only_after_a_refused_commit() -> None:
    story = [did("a", 1, [0, 0, 5]), did("b", 2, [0, 4, 7])]
    assert repeated_without_reason(story) == {(0, 4), (0, 5)}
    assert repeated_without_reason([*story, refused("a", 1, [0, 0, 5])]) == set()


def test_the_replacement_of_a_dead_member_may_continue_in_its_generation() -> None:
    story = [assigned("a", 1, 0), did("a", 1, [0, 0, 5]), committed("a", 1, [0, 0, 5]), did("a", 1, [0, 6, 8])]
    successor = [assigned("b", 1, 0), did("b", 1, [0, 6, 9])]
    assert len(violations([*story, *successor])) == 1 + 1 + 3
    died = {"member": "a", "event": "died"}
    assert violations([*story, died, *successor]) == []
    assert len(violations([*story, died, assigned("b", 1, 0), did("b", 1, [0, 5, 9])])) == 1
