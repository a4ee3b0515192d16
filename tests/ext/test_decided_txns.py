"""Which transactional batches and markers may be removed, with a dict as the model."""

import random

from kafkapy._ext.decided_txns import DecidedTransactions

ABORT, COMMIT, EMPTY = 0, 1, -1


def test_batches_of_an_aborted_transaction_go_and_its_marker_stays_for_now():
    transactions = DecidedTransactions([(7, 10, 20, 21)])
    assert not transactions.batch(7, True, 9)  # this batch is in the transaction before
    assert not transactions.marker(7, COMMIT, 9)
    assert transactions.batch(7, True, 12)
    assert not transactions.batch(8, True, 13)
    assert not transactions.batch(7, False, 14)
    assert not transactions.marker(7, ABORT, 20)
    assert transactions.take_retained() == [(7, 10, 20, 21)]
    assert transactions.take_retained() == []


def test_markers_without_a_batch_are_needless():
    transactions = DecidedTransactions([(7, 10, 20, 21)])
    assert transactions.marker(7, COMMIT, 5)
    assert transactions.marker(7, ABORT, 20)
    assert transactions.take_retained() == []
    assert transactions.marker(7, EMPTY, 25)
    assert not transactions.marker(7, 2, 30)  # other control records, such as leader changes, are kept


def test_a_commit_needs_a_batch_of_its_own_transaction():
    transactions = DecidedTransactions()
    assert not transactions.batch(7, True, 3)
    assert not transactions.marker(7, COMMIT, 4)
    assert transactions.marker(7, COMMIT, 9)


def test_many_producers_with_transactions_one_after_the_other():
    chance = random.Random(3)
    open_at, seen, aborted, events = {}, set(), [], []
    for offset in range(20_000):
        producer = chance.randrange(3000)
        if producer in open_at and chance.random() < 0.4:
            commit = chance.random() < 0.5
            if not commit:
                aborted.append((producer, open_at[producer], offset, 0))
            events.append(("marker", producer, offset, commit))
            del open_at[producer]
        else:
            open_at.setdefault(producer, offset)
            events.append(("batch", producer, offset, None))
    fate = {}
    for kind, producer, offset, commit in reversed(events):  # the next marker decides
        if kind == "marker":
            fate[producer] = commit
        events[offset] = (kind, producer, offset, fate.get(producer) if kind == "batch" else commit)
    transactions = DecidedTransactions(aborted)
    for kind, producer, offset, commit in events:
        if kind == "batch":
            seen.add(producer)
            assert transactions.batch(producer, True, offset) == (commit is False)
        else:
            assert transactions.marker(producer, COMMIT if commit else ABORT, offset) == (producer not in seen)
            seen.discard(producer)
    assert transactions.take_retained() == aborted
