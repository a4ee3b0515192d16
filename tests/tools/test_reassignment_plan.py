"""Plans of reassignments: numbers of replicas, and files of kafka-reassign-partitions."""

import json

import pytest

from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.partitions.plan import Move, brokers_of, read_file, with_factor


def planned(current, factor, racks):
    named = {("t", index): replicas for index, replicas in enumerate(current)}
    return list(with_factor(named, list(named), factor, racks).values())


def test_new_replicas_go_to_the_brokers_with_the_fewest():
    racks = dict.fromkeys([1, 2, 3])
    assert planned([[1], [1], [2], [2]], 2, racks) == [(1, 3), (1, 3), (2, 1), (2, 3)]
    assert planned([[1], [2]], 3, racks) == [(1, 3, 2), (2, 1, 3)]


def test_new_replicas_go_to_racks_that_the_partition_is_not_in():
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert planned([[1], [3]], 2, racks) == [(1, 4), (3, 2)]
    assert [sorted(replicas) for replicas in planned([[1, 3]], 4, racks)] == [[1, 2, 3, 4]]


def test_superfluous_replicas_are_removed_from_the_end():
    assert planned([[3, 1, 2], [2, 3, 1]], 1, dict.fromkeys([1, 2, 3])) == [(3,), (2,)]


def test_a_replica_on_a_broker_that_does_not_run_stays():
    assert planned([[9]], 2, dict.fromkeys([1, 2])) == [(9, 1)]


@pytest.mark.parametrize(("factor", "named"), [(0, "at least one replica"), (4, "only 3 brokers run")])
def test_impossible_numbers_of_replicas_are_refused(factor, named):
    with pytest.raises(CallError, match=named):
        planned([[1]], factor, dict.fromkeys([1, 2, 3]))


def test_a_move_copies_its_size_to_each_new_broker():
    move = Move("t", 0, (1, 2), (3, 4, 1), 100)
    assert (move.added, move.removed, move.copied) == ((3, 4), (2,), 200)
    assert Move("t", 0, (1, 2), (2, 1), 100).copied == 0


@pytest.mark.parametrize(("text", "named"), [("1,x", "not broker ids"), ("", "not broker ids"), ("1,2,1", "twice")])
def test_wrong_lists_of_brokers_are_refused(text, named):
    assert brokers_of("3, 1") == (3, 1)
    with pytest.raises(CallError, match=named):
        brokers_of(text)


def test_a_file_names_the_replicas_of_each_partition(tmp_path):
    entries = [
        {"topic": "t", "partition": 0, "replicas": [3, 1], "log_dirs": ["any", "any"]},
        {"topic": "u", "partition": 7, "replicas": [2]},
    ]
    file = tmp_path / "move.json"
    file.write_text(json.dumps({"version": 1, "partitions": entries}))
    assert read_file(file) == {("t", 0): (3, 1), ("u", 7): (2,)}


GOOD = {"topic": "t", "partition": 0, "replicas": [1]}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "is not JSON"),
        ("[]", "is not {"),
        ('{"version": 2, "partitions": [1]}', "is not {"),
        ('{"partitions": []}', "is not {"),
        (json.dumps({"partitions": [GOOD, GOOD]}), "t-0 is there twice"),
        (json.dumps({"partitions": [{**GOOD, "replicas": [1, 1]}]}), "different brokers"),
        (json.dumps({"partitions": [{**GOOD, "replicas": []}]}), "different brokers"),
        (json.dumps({"partitions": [{**GOOD, "replicas": ["1"]}]}), "different brokers"),
        (json.dumps({"partitions": [{**GOOD, "partition": -1}]}), "no partition"),
        (json.dumps({"partitions": ["t"]}), "no topic"),
        (json.dumps({"partitions": [{**GOOD, "log_dirs": ["/data"]}]}), "t-0 chooses log directories"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_the_place(tmp_path, text, named):
    file = tmp_path / "move.json"
    file.write_text(text)
    with pytest.raises(ToolError, match=named) as refused:
        read_file(file)
    assert str(file) in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ToolError, match=r"none\.json cannot be read: No such file"):
        read_file(tmp_path / "none.json")
