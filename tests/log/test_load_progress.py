"""A long start logs its progress from time to time, and a line at its end."""

import logging

from kafkapy.log.loading.load_progress import DirProgress, LoadReport

MIB = 1 << 20


class Time:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_line_comes_every_ten_seconds_and_one_at_the_end(caplog):
    time = Time()
    progress = DirProgress("/data", 1, 5, time)
    progress.bytes = progress.bytes_left = 100 * MIB
    with caplog.at_level(logging.INFO):
        for second in range(1, 31):
            time.now = 100.0 + second
            progress.logs_left = 5 - second // 10
            progress.bytes_left = (100 - 3 * second) * MIB
            progress.maybe_log()
        progress.logs_left = progress.bytes_left = 0
        progress.log_end(1)
    assert [record.message for record in caplog.records] == [
        "/data: loaded 1 of 5 partitions, 30 of 100 MiB checked",
        "/data: loaded 2 of 5 partitions, 60 of 100 MiB checked",
        "/data: loaded 3 of 5 partitions, 90 of 100 MiB checked",
        "/data: loaded 4 partitions in 30.00 s, 100 of 100 MiB checked; not recovered: 1",
    ]


def test_a_report_stays_one_line_of_bounded_length(caplog):
    report = LoadReport()
    for number in range(1000):
        report.note(f"note {number}", serious=False)
    with caplog.at_level(logging.INFO):
        report.log("t-0", 3, 9, 1.25, recovered=True)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.message.startswith("t-0: recovered offsets 3 to 9 in 1.2 ms; note 0; note 1; ")
    assert record.message.endswith("; and 992 more of the kind")


def test_a_load_without_repairs_logs_nothing(caplog):
    with caplog.at_level(logging.INFO):
        LoadReport().log("t-0", 0, 9, 1.0, recovered=False)
    assert caplog.records == []
