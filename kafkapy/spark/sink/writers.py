"""The sink `kafkapy`, which writes the rows of batch and streaming queries as records, at least once or exactly once.

How Spark uses a Python writer
------------------------------
(pyspark.sql.worker.write_into_data_source and python_streaming_sink_runner; Spark's PythonBatchWriterFactory,
PythonStreamingWrite, V2TableWriteExec)

- *Driver, planner process.* Once for a batch query, or once for each epoch of a stream, a Python process of the driver
  constructs the DataSource from its class and options, gets a writer from it, and pickles the writer: one copy for the
  function that tasks run, one for commit and abort of a batch.
- *Executors.* `write` runs once for each attempt of a task, in a Python worker process that is reused and runs one task
  at a time. Its return value is pickled as the task's commit message. A batch query has no id, so the sink creates one.
  A stream's query id and epoch are local properties of the job, which only tasks can read, so they are in the messages.
- *Attempts.* A failed task is retried (spark.task.maxFailures), a slow one may run twice (speculation), and a stage may
  run again after the loss of an executor. Spark lets one attempt of each task commit. The other attempts' Python
  processes are not notified, and a process may be killed at any time.
- *Driver, another process.* When every task has succeeded, `commit` gets one message of each. A stream's writer is
  constructed again for this, in another process than the planner. When tasks have failed, **or when `commit` has
  raised**, `abort` gets the messages that exist (None for the others), perhaps none.
- *Replay.* Spark stores an epoch's input before the epoch runs, and its end after `commit` has returned. If the driver
  stops in between, the next driver runs the same epoch of the same query (its id is in the checkpoint) again, with the
  same input but perhaps other tasks. Two drivers may run at the same time for a while.

Exactly once
------------
1. A task takes a transactional id that no other attempt uses, initialises its producer, and reads the new records of
   the *decision topic* (decisions.py). If its epoch is decided, it writes nothing and says so in its message.
2. The task begins a transaction, writes its rows, waits until all are stored, reads the decisions again (a late attempt
   aborts), and leaves the transaction **open**. Its message is its share: transactional id, producer id, producer
   epoch, rows. (delivery.py, worker.py)
3. The driver initialises a producer with the query's transactional id. Older drivers are fenced, and their transactions
   are completed or aborted. The driver reads the decisions to the end of the topic, which includes all of this query.
   If another query's driver has stopped while it wrote a decision, this driver waits for the end of that transaction.
4. If the epoch is undecided, the driver checks that all transactions are still open, and writes the decision that lists
   them (and deletes the record of the query's last epoch), in a transaction of its own. **At this moment the epoch is
   committed.**
5. The driver commits every transaction of the decision that it has written or found. This can be repeated.
6. The driver looks up all open transactions with ids of this query, which are those of failed or superfluous attempts.
   It writes that the epoch is done, which succeeds only while it is the query's driver. Then it aborts the transactions
   that it has found, so that they block no reader. A driver that was replaced aborts nothing that its successor may
   decide: the next epoch begins only after a driver's step 3 that follows this step. If step 4 finds that the epoch is
   already done, the next epoch may have begun, so only this driver's shares are aborted. (epochs.py)

An id is reused in a later epoch of its query, after the driver has ended its transaction.

Failures
--------
- *A task, before the driver has its share* (killed worker, lost executor, denied commit): its transaction is in no
  decision. It is aborted in step 6 of this epoch or of its replay, or by its time-out.
- *The driver before the end of step 4:* nothing is visible. The replay writes again; the old transactions are aborted
  in its step 6. If the decision's transaction was interrupted, step 3 of the replay completes or aborts it. If the
  decision exists, the replay commits what it lists and aborts its own shares; if not, its own shares count.
- *The driver in step 5:* the replay's tasks find the decision and write nothing; its driver commits all transactions
  again. Until then, readers see some transactions of the epoch and not others.
- *The driver in step 6, or before Spark has stored the epoch's end:* the replay finds "done" and writes nothing.
- *The driver is down for longer than the transactions' time-out* (kafka.transaction.timeout.ms) *between 4 and 5:* the
  broker aborts them, and the replay fails with DecidedTransactionLost, which names them. Before step 4 nothing is lost.
- *An old driver resumes after another has taken over:* it is fenced at its next write. Or it starts with step 3, finds
  the epoch decided, aborts only its own shares, and at most makes its successor start over.
- *The process that commits, but not the driver:* Spark calls `abort`, and the query fails; see the next item.
- *`commit` has raised and `abort` follows:* abort does step 3 first. If the epoch is decided, it is left to the
  replay; else the given shares are aborted. Transactions of attempts without a message are left to the replay, which
  may already be running and is the only driver that knows its transactions.
- *The decision topic is deleted or loses records:* if a task has seen a decision that the driver does not find, the
  driver raises DecisionLost. A query in new processes cannot know of the lost decision and writes its epoch again.
- *The broker:* every step is retried for kafka.delivery.timeout.ms.

A batch query is one epoch of a query with its own id. It is not replayed: if its driver stops between steps 4 and 5,
the uncommitted transactions are aborted by their time-out. When a task fails, Spark kills the others without waiting
for their end, and calls `abort`, so an attempt may begin its transaction after the others were aborted. Therefore
`abort` writes that the epoch is done, and then fences the producers of all attempts. An attempt whose producer was
initialised before that is fenced; one that comes later finds the epoch done in step 1.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timezone
from inspect import signature
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyspark.sql.datasource as spark_api
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kafkapy.arrow.row_columns import check_schema
from kafkapy.client.cluster import Cluster
from kafkapy.spark.entry_points import entry_point
from kafkapy.spark.options.given import BadOption
from kafkapy.spark.options.sink_options import SinkOptions, sink_options
from kafkapy.spark.retries import with_retries
from kafkapy.spark.sink.decisions import Share, ensure_decision_topic
from kafkapy.spark.sink.delivery import Written, write_at_least_once, write_exactly_once
from kafkapy.spark.sink.epochs import abort_epoch, commit_epoch

if TYPE_CHECKING:
    import pyarrow as pa

# Local properties of a micro-batch's job: StreamExecution.QUERY_ID_KEY and MicroBatchExecution.BATCH_ID_KEY of Spark.
QUERY_ID, EPOCH = "sql.streaming.queryId", "streaming.sql.batchId"
ROWS_AT_ONCE = 10_000

Messages = Sequence[WriterCommitMessage | None]


class BadRows(BadOption):
    """The error for rows whose columns cannot be written as records. The message says which columns and why."""


class BatchSink(DataSourceArrowWriter):
    """The writer of a batch query: tasks call `write`, and then the driver calls `commit` or `abort`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._query = str(uuid.uuid4())

    @entry_point
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        if self._options.exactly_once:
            return write_exactly_once(self._options, self._query, 0, iterator)
        return write_at_least_once(self._options, iterator)

    @entry_point
    def commit(self, messages: Any) -> None:
        if shares := _shares(messages):
            commit_epoch(self._options, self._query, 0, shares, replayable=False)

    @entry_point
    def abort(self, messages: Any) -> None:
        if self._options.exactly_once:
            abort_epoch(self._options, self._query, 0, _shares(messages), replayable=False)


class _StreamSink:
    """Base class of the writers of streaming queries.

    Subclasses take the rows from Spark, as batches or one by one.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def _write(self, batches: "Iterable[pa.RecordBatch]") -> Written:
        """Write the rows of one task and return the task's commit message.

        Raises RuntimeError if Spark does not tell the query and epoch, which exactly-once delivery needs.
        """
        if not self._options.exactly_once:
            return write_at_least_once(self._options, batches)
        context = TaskContext.get()
        query, epoch = (context.getLocalProperty(name) if context else None for name in (QUERY_ID, EPOCH))
        if query is None or epoch is None:
            raise RuntimeError("Spark does not tell the task its query and epoch, which exactly-once needs")
        return write_exactly_once(self._options, query, int(epoch), batches)

    @entry_point
    def commit(self, messages: Any, batchId: int) -> None:
        shares = _shares(messages)
        known = any(message.decided for message in messages)
        if shares or known:
            commit_epoch(self._options, messages[0].query, batchId, shares, known=known)

    @entry_point
    def abort(self, messages: Any, batchId: int) -> None:
        # Without a message the query id is not known. The next run of the query aborts the transactions of this run.
        queries = {message.query for message in messages if message is not None}
        if self._options.exactly_once and queries:
            abort_epoch(self._options, queries.pop(), batchId, _shares(messages))


if hasattr(spark_api, "DataSourceStreamArrowWriter"):

    class StreamSink(_StreamSink, spark_api.DataSourceStreamArrowWriter):
        """The writer of a streaming query whose rows Spark passes as record batches."""

        @entry_point
        def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
            return self._write(iterator)

else:  # PySpark 4.0 passes a stream row by row, which is about ten times slower

    class StreamSink(_StreamSink, spark_api.DataSourceStreamWriter):  # type: ignore[no-redef]
        """The writer of a streaming query whose rows Spark passes one by one."""

        def __init__(self, options: SinkOptions, schema: StructType) -> None:
            super().__init__(options)
            self._schema = schema

        @entry_point
        def write(self, iterator: Iterator[Any]) -> Written:
            return self._write(batches_of(iterator, self._schema))


def batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchSink:
    """Return the writer of a batch query. `given` has the options, and `schema` describes the rows.

    Raises:
        BadOption, BadRows: The options, the mode or the columns are invalid.
        DecisionsUnusable, ClientError, KafkaError: The decision topic cannot be used.
    """
    if overwrite:
        raise BadOption('a topic cannot be overwritten: write with .mode("append")')
    return BatchSink(_prepared(given, schema))


def stream_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamSink:
    """Return the writer of a streaming query. Raises the errors of `batch_writer`.

    With `overwrite` (output mode complete), each epoch appends the whole result, as in Spark's own sink.
    """
    options = _prepared(given, schema)
    if hasattr(spark_api, "DataSourceStreamArrowWriter"):
        return StreamSink(options)
    return StreamSink(options, schema)  # type: ignore[call-arg]


def batches_of(rows: Iterator[Any], schema: StructType) -> "Iterator[pa.RecordBatch]":
    """Yield the rows that Spark passes one by one as record batches."""
    import pyarrow as pa

    arrow = _arrow(schema)
    while some := list(islice(rows, ROWS_AT_ONCE)):
        columns = [_column(values, field.type) for values, field in zip(zip(*some, strict=True), arrow, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=arrow)


def _column(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    """Return the values of one column as an Arrow array. Timestamps are converted to UTC.

    Spark's timestamps are in the process's time zone without stating it, and Arrow assumes UTC.
    """
    import pyarrow as pa

    if pa.types.is_timestamp(kind) and kind.tz is not None:
        values = [None if value is None else value.astimezone(timezone.utc) for value in values]
    return pa.array(values, kind)


def _arrow(schema: StructType) -> "pa.Schema":
    """Return the Arrow schema for a Spark schema. PySpark 4.1 and later require a time zone for timestamps."""
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def _prepared(given: Mapping[str, str], schema: StructType) -> SinkOptions:
    """Return the checked options, after checking the schema and, with exactly-once, preparing the decision topic.

    Raises the errors of `batch_writer`.
    """
    options = sink_options(given)
    try:
        check_schema(_arrow(schema), has_topic=options.topic is not None, tombstones=options.tombstones)
    except (ValueError, TypeError) as reason:
        raise BadRows(f"these rows cannot be written to a topic: {reason}") from None
    if options.exactly_once:
        with_retries(lambda: _prepare_decisions(options), options.producer.block_s)
    return options


def _prepare_decisions(options: SinkOptions) -> None:
    """Create the decision topic, or check its settings if it exists."""
    producer = options.producer
    with Cluster(
        producer.bootstrap_servers,
        client_id=producer.client_id,
        timeout_s=producer.request_timeout_s,
        security=producer.security,
    ) as cluster:
        ensure_decision_topic(cluster, options.decision_topic)


def _shares(messages: Messages) -> list[Share]:
    """Return the shares (the tasks' open transactions) in the tasks' commit messages."""
    return [message.share for message in messages if isinstance(message, Written) and message.share is not None]
