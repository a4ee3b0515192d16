"""Adds up amounts by key, each record once, whatever is killed when: results and offsets change together.

    python totals_in_sqlite.py 127.0.0.1:9092 payments totals.db [SECONDS]

Records have an account as their key and an amount as their value. The totals, and the offset of the next record of
each partition, are in one SQLite file and change in one transaction. The group only shares the partitions out; nothing
is committed to it. A member that is assigned a partition continues at the offset in the file. Start as many copies of
the program as you like, with the same file: they share the work. When one dies, the others wait for it as many seconds
as the last argument says, by default 10.
"""

import sqlite3
import sys
from collections import defaultdict
from collections.abc import Sequence

from kafkapy.client import GroupConsumer, RebalanceListener
from kafkapy.client.fetched import ConsumerRecord

TABLES = """
CREATE TABLE IF NOT EXISTS totals (account TEXT PRIMARY KEY, total INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS offsets (
    topic TEXT, partition INTEGER, next INTEGER NOT NULL, PRIMARY KEY (topic, partition)
);
"""

ADD = "INSERT INTO totals VALUES (?, ?) ON CONFLICT (account) DO UPDATE SET total = total + excluded.total"
MOVE = "INSERT INTO offsets VALUES (?, ?, ?) ON CONFLICT (topic, partition) DO UPDATE SET next = excluded.next"


class Totals:
    """The SQLite file."""

    def __init__(self, path: str) -> None:
        self.database = sqlite3.connect(path, timeout=30, isolation_level=None)
        self.database.execute("PRAGMA journal_mode = WAL")
        self.database.executescript(TABLES)

    def next_offset(self, topic: str, partition: int) -> int | None:
        found = self.database.execute(
            "SELECT next FROM offsets WHERE topic = ? AND partition = ?", (topic, partition)
        ).fetchone()
        return None if found is None else int(found[0])

    def add(self, records: Sequence[ConsumerRecord]) -> bool:
        """Add all of the records and store their offsets, or neither. Return False if another copy has stored them.

        A copy that was too slow for the group may still have records of a partition that is assigned to another copy by
        now. Then the stored offset is later than that of its first record.
        """
        by_partition: defaultdict[tuple[str, int], list[ConsumerRecord]] = defaultdict(list)
        for record in records:
            by_partition[record.topic, record.partition].append(record)
        self.database.execute("BEGIN IMMEDIATE")
        try:
            for (topic, partition), some in by_partition.items():
                known = self.next_offset(topic, partition)
                if known is not None and known > some[0].offset:
                    self.database.execute("ROLLBACK")
                    return False
                amounts = [((record.key or b"").decode(), int(record.value or b"0")) for record in some]
                self.database.executemany(ADD, amounts)
                self.database.execute(MOVE, (topic, partition, some[-1].offset + 1))
            self.database.execute("COMMIT")
        except BaseException:
            self.database.execute("ROLLBACK")
            raise
        return True


class GoOnWhereTheFileSays(RebalanceListener):
    def __init__(self, consumer: GroupConsumer, totals: Totals) -> None:
        self.consumer = consumer
        self.totals = totals

    def on_assigned(self, partitions: Sequence[tuple[str, int]]) -> None:
        for topic, partition in partitions:
            offset = self.totals.next_offset(topic, partition)
            if offset is None:
                self.consumer.seek_to_beginning([(topic, partition)])
            else:
                self.consumer.seek(topic, partition, offset)


def main(servers: str, topic: str, path: str, session_s: str = "10") -> None:
    totals = Totals(path)
    with GroupConsumer(
        servers,
        "totals-in-sqlite",
        auto_commit=False,
        session_timeout_s=float(session_s),
        heartbeat_interval_s=float(session_s) / 10,
    ) as consumer:
        listener = GoOnWhereTheFileSays(consumer, totals)
        consumer.subscribe([topic], listener)
        while True:
            records = consumer.poll()
            if not totals.add(records):
                listener.on_assigned(list(consumer.assignment))


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit("usage: totals_in_sqlite.py SERVERS TOPIC FILE [SECONDS]")
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass
