"""Rights that clients were found to have are remembered for one generation of the ACLs, in bounded memory."""

from kafkapy.server.rights import RememberedRights


def test_connections_of_a_client_share_their_rights_as_long_as_the_rules_are_the_same() -> None:
    remembered = RememberedRights()
    rights = remembered.of("User:a", "10.0.0.1", 1)
    assert remembered.of("User:a", "10.0.0.1", 1) is rights
    assert remembered.of("User:b", "10.0.0.1", 1) is not rights
    assert remembered.of("User:a", "10.0.0.2", 1) is not rights
    remembered.remember(rights.reads, ["t"])
    assert remembered.of("User:a", "10.0.0.1", 2).reads == set()


def test_without_a_generation_nothing_is_shared() -> None:
    remembered = RememberedRights()
    rights = remembered.of("User:a", "10.0.0.1", None)
    assert rights != remembered.of("User:a", "10.0.0.1", None)
    assert rights.generation is not None


def test_too_many_names_make_all_forgotten() -> None:
    remembered = RememberedRights(most_names=10)
    one, other = (remembered.of(principal, "h", 0) for principal in ("User:a", "User:b"))
    remembered.remember(one.reads, map(str, range(6)))
    remembered.remember(other.writes, map(str, range(4)))
    assert (len(one.reads), len(other.writes)) == (6, 4)
    remembered.remember(other.writes, ["3"])  # already remembered
    assert (len(one.reads), len(other.writes)) == (6, 4)
    remembered.remember(other.writes, ["4"])
    assert (one.reads, other.writes) == (set(), {"4"})
    remembered.remember(one.reads, ["x" * 250])  # too long for the name of a topic
    assert one.reads == set()


def test_a_client_that_is_gone_is_forgotten() -> None:
    remembered = RememberedRights()
    rights = remembered.of("User:a", "h", 0)
    assert len(remembered._all) == 1
    del rights
    assert len(remembered._all) == 0


def test_what_idle_connections_keep_of_earlier_rules_is_forgotten() -> None:
    remembered = RememberedRights(most_names=10)
    idle, busy = remembered.of("User:a", "h", 0), remembered.of("User:a", "h", 1)
    remembered.remember(idle.reads, map(str, range(6)))
    remembered.remember(busy.writes, map(str, range(4)))
    remembered.forget_outdated(1)
    assert (idle.reads, len(busy.writes)) == (set(), 4)
    remembered.remember(busy.writes, map(str, range(10)))  # the forgotten names do not count
    assert len(busy.writes) == 10
    remembered.forget_outdated(None)
    assert busy.writes == set()
