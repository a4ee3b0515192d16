"""Garbage collection in a broker's process."""

import gc
import weakref

import pytest

from kafkapy.runtime import collector


@pytest.fixture
def configured(monkeypatch):
    """Configure the collector as `kafkapy start` does. Restore it after the test."""
    thresholds, was_enabled = gc.get_threshold(), gc.isenabled()
    monkeypatch.setattr(collector, "_is_configured", False)
    monkeypatch.setattr(collector, "_partitions", 0)
    collector.configure()
    yield
    gc.set_threshold(*thresholds)
    (gc.enable if was_enabled else gc.disable)()
    gc.unfreeze()


def test_nothing_is_collected_until_the_last_of_the_overlapping_pauses_ends(configured):
    first, second = collector.paused(), collector.paused()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_a_pause_ends_with_an_error(configured):
    with pytest.raises(ZeroDivisionError), collector.paused():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_the_objects_of_hundreds_of_partitions_are_not_looked_at_again(configured):
    kept = [[] for _ in range(1000)]
    before = gc.get_freeze_count()
    collector.long_lived(collector._AT_ONCE - 1)
    assert gc.get_freeze_count() <= before
    collector.long_lived(1)
    assert gc.get_freeze_count() >= before + len(kept)


def test_the_collector_of_a_users_process_is_left_alone(monkeypatch):
    monkeypatch.setattr(collector, "_is_configured", False)
    was_enabled, frozen = gc.isenabled(), gc.get_freeze_count()
    with collector.paused():
        assert gc.isenabled() == was_enabled
    collector.long_lived(10 * collector._AT_ONCE)
    assert gc.get_freeze_count() == frozen


def test_a_drained_list_frees_each_item_when_the_next_one_is_asked_for():
    class Item:
        pass

    items = [Item() for _ in range(3)]
    first, *_, last = (weakref.ref(one) for one in items)
    drained = collector.drained(items)
    one = next(drained)
    assert one is first()
    one = next(drained)
    assert first() is None
    assert last() is next(drained)
    assert list(drained) == items == []
