"""Properties of every assignment, for any claims of members; tests/interop/test_assignors.py compares with Java."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.client.groups.assignors import ASSIGNORS, COOPERATIVE_STICKY, RANGE, STICKY, Member, assignors_of
from tests.harness.examples import examples

TOPICS = ["a", "b", "c", "gone"]
COUNTS = {"a": 3, "b": 1, "c": 4}
partitions = st.tuples(st.sampled_from(TOPICS), st.integers(0, 4))


@st.composite
def groups(draw):
    """Draw members with arbitrary claims and user data."""
    members = []
    for number in range(draw(st.integers(1, 6))):
        owned = draw(st.lists(partitions, max_size=6))
        generation = draw(st.sampled_from([-1, 1, 2]))
        data = draw(st.one_of(st.none(), st.binary(max_size=20), st.just(STICKY.user_data(owned, generation))))
        topics = draw(st.lists(st.sampled_from(TOPICS), unique=True))
        instance = draw(st.one_of(st.none(), st.just(f"i{9 - number}")))
        members.append(Member(f"m{number}", topics, instance, owned, generation, data))
    return members


@pytest.mark.parametrize("name", [name for name in ASSIGNORS if name != "cooperative-sticky"])
@settings(max_examples=examples(40), deadline=None)
@given(members=groups())
def test_each_subscribed_partition_goes_to_exactly_one_subscriber(name, members):
    shares = ASSIGNORS[name].assign(members, COUNTS)
    assert shares.keys() == {member.id for member in members}
    given_out = [one for share in shares.values() for one in share]
    wanted = {topic for member in members for topic in member.topics}
    assert sorted(given_out) == [(t, n) for t in sorted(wanted & COUNTS.keys()) for n in range(COUNTS[t])]
    for member in members:
        assert {topic for topic, _ in shares[member.id]} <= set(member.topics)


@settings(max_examples=examples(40), deadline=None)
@given(members=groups())
def test_a_cooperative_member_gets_no_partition_that_another_member_has_to_revoke(members):
    shares = COOPERATIVE_STICKY.assign(members, COUNTS)
    given_out = [one for share in shares.values() for one in share]
    assert len(given_out) == len(set(given_out))
    for member in members:
        assert {topic for topic, _ in shares[member.id]} <= set(member.topics)
        for one in set(shares[member.id]).difference(member.owned):
            held = [other.id for other in members if one in other.owned and one not in shares[other.id]]
            assert not held or one[1] >= COUNTS[one[0]], (member, held)


@settings(max_examples=examples(40), deadline=None)
@given(members=groups(), joins=st.booleans())
def test_sticky_shares_are_even_and_move_no_more_than_they_must(members, joins):
    topics = list(COUNTS)
    first = [Member(member.id, topics) for member in members]
    before = STICKY.assign(first, COUNTS)
    second = [one._replace(user_data=STICKY.user_data(before[one.id], 1), generation=1) for one in first]
    second = [*second, Member("new", topics)] if joins else second
    after = STICKY.assign(second, COUNTS)
    sizes = [len(share) for share in after.values()]
    assert max(sizes) - min(sizes) <= 1
    moved = sum(len(set(after[member]).difference(share)) for member, share in before.items())
    assert moved == 0


def test_range_puts_equal_numbers_of_equal_topics_together():
    shares = RANGE.assign([Member(name, ["t", "u"]) for name in "cab"], {"t": 7, "u": 7})
    assert [[index for topic, index in shares[name] if topic == "t"] for name in "abc"] == [[0, 1, 2], [3, 4], [5, 6]]
    for share in shares.values():
        assert [index for topic, index in share if topic == "t"] == [index for topic, index in share if topic == "u"]


def test_a_partition_does_not_return_to_a_member_that_has_unsubscribed():
    # Java gives the partition to "old" here, which subscribes to another topic only.
    old = Member("old", ["b"], generation=1, user_data=STICKY.user_data([("a", 0), ("a", 1)], 1))
    others = [
        Member(
            "full", ["a", "c"], generation=2, user_data=STICKY.user_data([(t, n) for t in "ac" for n in range(3)], 2)
        ),
        Member("free", ["a"]),
    ]
    shares = STICKY.assign([old, *others], COUNTS)
    assert shares["old"] == [("b", 0)]


def test_a_group_without_members_has_an_empty_assignment():
    for assignor in ASSIGNORS.values():
        assert assignor.assign([], COUNTS) == {}


def test_an_assignor_that_is_not_there_is_named():
    assert assignors_of(["range", STICKY]) == [RANGE, STICKY]
    assert assignors_of("sticky") == [STICKY]
    with pytest.raises(ValueError, match=re.escape("no assignor 'fair'; use one of range, roundrobin")):
        assignors_of(["fair"])
    with pytest.raises(ValueError, match="no assignor is given"):
        assignors_of([])
