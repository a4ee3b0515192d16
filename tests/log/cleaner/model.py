"""A model of compaction: computes the expected content of a compacted log, as a plain list of batches."""

from dataclasses import dataclass, field


@dataclass
class ModelBatch:
    """A batch of the model. `records` has the remaining (offset, timestamp, key, value, headers). `marker` is None for
    a data batch, True for a commit marker, False for an abort marker."""

    base: int
    last: int
    producer: int | None
    epoch: int
    transaction: object  # shared by all batches of a transaction and its marker, or None
    records: list = field(default_factory=list)
    marker: bool | None = None
    horizon: int | None = None
    present: bool = True
    emptied: bool = False  # True for a marker whose record is removed


class Transaction:
    def __init__(self):
        self.committed = None


class Model:
    """The batches of a log, in order."""

    def __init__(self, delete_retention_ms):
        self.delete_retention_ms = delete_retention_ms
        self.batches = []
        self.open = {}  # producer -> Transaction

    def append(self, base, records, producer, epoch, transactional):
        transaction = self.open.setdefault(producer, Transaction()) if transactional else None
        numbered = [(base + at, *record) for at, record in enumerate(records)]
        self.batches.append(ModelBatch(base, base + len(records) - 1, producer, epoch, transaction, numbered))

    def end_transaction(self, offset, producer, epoch, commit):
        transaction = self.open.pop(producer, None) or Transaction()
        transaction.committed = commit
        self.batches.append(ModelBatch(offset, offset, producer, epoch, transaction, marker=commit))

    def clean(self, start, mapped_to, end, now, producers):
        """Clean the batches below offset `end`. The map has the keys of the records from `start` to `mapped_to`.

        `producers` are those that the log remembers: {id: (epoch, offset of its last data record or -1)}.
        """
        latest = {}
        for batch in self.batches:
            for offset, _, key, _, _ in batch.records:
                if start <= offset <= mapped_to and key is not None and not self.is_aborted(batch):
                    latest[key] = offset
        seen = {id(batch.transaction) for batch in self.batches if batch.present and batch.marker is None}
        for batch in self.batches:
            if batch.present and batch.base < end:
                epoch, last_data = producers.get(batch.producer, (None, -1))
                by_marker = batch.marker is not None and batch.epoch == epoch
                kept = batch.last == last_data if last_data >= 0 else by_marker
                if batch.marker is not None:
                    self._clean_marker(batch, id(batch.transaction) in seen, kept, now)
                else:
                    self._clean_data(batch, latest, mapped_to, kept, now)

    def is_aborted(self, batch):
        return batch.transaction is not None and batch.transaction.committed is False

    def _clean_marker(self, batch, needed, keep_empty, now):
        if batch.emptied:
            batch.present = keep_empty
        elif needed:
            return
        elif batch.horizon is None:
            batch.horizon = now + self.delete_retention_ms
        elif batch.horizon <= now:
            batch.present = keep_empty
            batch.emptied = True
            batch.horizon = None

    def _clean_data(self, batch, latest, mapped_to, keep_empty, now):
        if self.is_aborted(batch):
            batch.records = []
        expired = batch.horizon is not None and batch.horizon <= now
        batch.records = [
            record
            for record in batch.records
            if record[0] > mapped_to
            or (record[0] >= latest.get(record[2], -1) and (record[3] is not None or not expired))
        ]
        if any(record[3] is None for record in batch.records) and batch.horizon is None:
            batch.horizon = now + self.delete_retention_ms
        if not batch.records:
            batch.horizon = None
            batch.present = keep_empty

    # --- the expected content of the log

    def data(self):
        return [record for batch in self.batches for record in batch.records]

    def shape(self):
        """Return (base offset, last offset, delete horizon, number of records) of every batch."""
        return [
            (
                batch.base,
                batch.last,
                batch.horizon,
                len(batch.records) if batch.marker is None else int(not batch.emptied),
            )
            for batch in self.batches
            if batch.present
        ]
