"""The sink `kafkapy`: rows of a batch or of a stream become records, at least once or exactly once.

What Spark does with a Python writer
------------------------------------
(pyspark.sql.worker.write_into_data_source and python_streaming_sink_runner; Spark's PythonBatchWriterFactory,
PythonStreamingWrite, V2TableWriteExec)

- *Driver, planner process.* For a batch write once, for a stream once an epoch, a Python process beside the driver
  makes the DataSource from its class and options, asks it for a writer, and pickles the writer: one copy in the
  function that tasks run, one for commit and abort of a batch.
- *Executors.* `write` runs once an attempt of a task, in a Python worker process that is used again for later tasks and
  has one task at a time. What it returns is pickled and is the task's commit message. A batch's query has no name and
  gets one here; a stream's query and epoch are local properties of the job, which tasks can see and the driver's Python
  processes cannot, so they travel in the messages.
- *Attempts.* A failed task is tried again (spark.task.maxFailures), a slow one may run twice (speculation), and a stage
  may be run again when an executor is lost. Spark lets one attempt of a task commit; nothing tells the others' Python
  that their message was thrown away, and a process may be killed at any point.
- *Driver, another process.* When each task has a message, `commit` gets exactly one of each; a stream's writer is made
  anew for it, in a process other than the one that planned. When tasks have failed, **or when `commit` has raised**,
  `abort` gets the messages that there are (None for others), perhaps none.
- *Replay.* Spark notes an epoch's input before it runs, and its end after `commit` has returned. A driver that dies in
  between is followed by one that runs the same epoch of the same query (its id is in the checkpoint) again, with the
  same input but perhaps in other tasks. Two drivers may live at the same time for a while.

Exactly once
------------
1. A task reads what is new in the *decision topic* (decisions.py). If its epoch is decided it writes nothing, and says
   so.
2. It takes a transactional id that no other attempt has, begins a transaction, writes its rows, waits until all are
   stored, looks at the decisions again (an attempt that is late aborts), and leaves the transaction **open**. Its share
   (transactional id, producer id, producer epoch, rows) is its message. (delivery.py, worker.py)
3. The driver gets a producer with the transactional id of the query. From then on no older driver can write a decision,
   and what an older one was writing is there or never will be. It reads the decisions to their end, behind which
   nothing of this query is; where a driver of another query has died while it wrote one, it waits for that to end.
4. If the epoch is undecided, it makes sure that all transactions are still open, and writes the decision that lists
   them, in a transaction of its own. **This is the moment at which the epoch has happened.**
5. It commits every transaction of the decision (of this one, or of the one that it found). This can be done again.
6. It looks up all transactions that are open with ids of this query: attempts that died or lost. It writes that the
   epoch is done (and forgets the epoch before), which only succeeds while it is the query's driver, and then aborts
   what it had found. So they hold up no reader, and a driver that has been replaced aborts nothing that its successor
   is about to decide: the next epoch begins when a driver has done step 3 after this one. Where step 4 finds that the
   epoch is done already, the next one may have begun, and it aborts only its own shares. (epochs.py)

An id is used again in a later epoch of its query, when the driver has ended what was begun with it.

What if something dies
----------------------
- *A task before its share is with the driver* (killed worker, lost executor, denied commit): its transaction is in no
  decision. Step 6 of this epoch aborts it, or of its replay, or at last its time-out.
- *The driver before step 4 is through:* nothing is visible. The replay writes anew; the old transactions are aborted in
  its step 6. If the decision's transaction was cut off halfway, step 3 of the replay settles which: it is there, and
  the replay commits what it lists and aborts what it wrote itself; or it is not, and the replay's own shares count.
- *The driver in step 5:* the replay's tasks find the decision and write nothing; its driver commits all again. Until
  then a reader sees some transactions of the epoch and not others.
- *The driver in step 6, or before Spark has noted the epoch:* the replay finds "done" and has nothing to write.
- *The driver for longer than transactions may be open* (kafka.transaction.timeout.ms) *between 4 and 5:* the broker
  aborts them, and the replay fails with DecidedTransactionLost, which names them. Before step 4 nothing is lost.
- *An old driver that wakes up when another has taken over:* it is fenced at its next write, or, when it begins step 3
  itself, finds the epoch decided, aborts its own shares and nothing else, and at most makes its successor start over.
- *The process that commits, but not the driver:* Spark calls `abort`, and the query fails; see the next one.
- *`commit` has raised and `abort` follows:* abort does step 3 first. What is decided it leaves for the replay; else it
  aborts the shares that it was given. Those of attempts without a message are left to the replay, which may be there
  already: nobody else can tell its transactions from theirs.
- *The decision topic is deleted or loses records:* what tasks remember is more than the driver can find, which is
  DecisionLost, if any task does. A query that starts in new processes cannot know and writes its epoch anew.
- *The broker:* every step is tried again for kafka.delivery.timeout.ms.

A batch is one epoch of a query with a name of its own. Nobody replays it: when its driver dies between steps 4 and 5,
what it had not committed is aborted by its time-out.
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
from kafkapy.spark.options.given import BadOption
from kafkapy.spark.options.sink_options import SinkOptions, sink_options
from kafkapy.spark.patience import patiently
from kafkapy.spark.plainly import plainly
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
    """The columns of the rows cannot be written; the text says which and why."""


class BatchSink(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._query = str(uuid.uuid4())

    @plainly
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        if self._options.exactly_once:
            return write_exactly_once(self._options, self._query, 0, iterator)
        return write_at_least_once(self._options, iterator)

    @plainly
    def commit(self, messages: Any) -> None:
        if shares := _shares(messages):
            commit_epoch(self._options, self._query, 0, shares, replayable=False)

    @plainly
    def abort(self, messages: Any) -> None:
        if self._options.exactly_once:
            abort_epoch(self._options, self._query, 0, _shares(messages), replayable=False)


class _StreamSink:
    """Of a stream, for both ways in which Spark hands over rows."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def _write(self, batches: "Iterable[pa.RecordBatch]") -> Written:
        if not self._options.exactly_once:
            return write_at_least_once(self._options, batches)
        context = TaskContext.get()
        query, epoch = (context.getLocalProperty(name) if context else None for name in (QUERY_ID, EPOCH))
        if query is None or epoch is None:
            raise RuntimeError(
                "Spark does not tell the task its query and epoch, without which nothing is exactly once"
            )
        return write_exactly_once(self._options, query, int(epoch), batches)

    @plainly
    def commit(self, messages: Any, batchId: int) -> None:
        shares = _shares(messages)
        known = any(message.decided for message in messages)
        if shares or known:
            commit_epoch(self._options, messages[0].query, batchId, shares, known=known)

    @plainly
    def abort(self, messages: Any, batchId: int) -> None:
        # Without any message the query's name is not known: its next run aborts what this one has left open.
        queries = {message.query for message in messages if message is not None}
        if self._options.exactly_once and queries:
            abort_epoch(self._options, queries.pop(), batchId, _shares(messages))


if hasattr(spark_api, "DataSourceStreamArrowWriter"):

    class StreamSink(_StreamSink, spark_api.DataSourceStreamArrowWriter):
        @plainly
        def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
            return self._write(iterator)

else:  # PySpark 4.0: a stream comes row by row, which is some ten times slower

    class StreamSink(_StreamSink, spark_api.DataSourceStreamWriter):  # type: ignore[no-redef]
        def __init__(self, options: SinkOptions, schema: StructType) -> None:
            super().__init__(options)
            self._schema = schema

        @plainly
        def write(self, iterator: Iterator[Any]) -> Written:
            return self._write(batches_of(iterator, self._schema))


def batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchSink:
    """The writer of a batch.

    Raises:
        BadOption, BadRows: what is wrong with the options, the mode, or the columns.
        DecisionsUnusable, ClientError, KafkaError: the decision topic.
    """
    if overwrite:
        raise BadOption('a topic cannot be overwritten: write with .mode("append")')
    return BatchSink(_prepared(given, schema))


def stream_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamSink:
    """The writer of a stream; with `overwrite` (output mode complete) each epoch appends the whole result, as Spark's
    own sink does. Raises as `batch_writer`."""
    options = _prepared(given, schema)
    if hasattr(spark_api, "DataSourceStreamArrowWriter"):
        return StreamSink(options)
    return StreamSink(options, schema)  # type: ignore[call-arg]


def batches_of(rows: Iterator[Any], schema: StructType) -> "Iterator[pa.RecordBatch]":
    """Rows of Spark, put into record batches."""
    import pyarrow as pa

    arrow = _arrow(schema)
    while some := list(islice(rows, ROWS_AT_ONCE)):
        columns = [_column(values, field.type) for values, field in zip(zip(*some, strict=True), arrow, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=arrow)


def _column(values: Sequence[Any], kind: "pa.DataType") -> "pa.Array":
    """Spark gives timestamps in the time zone of the process, without saying so; Arrow would take them for UTC."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind) and kind.tz is not None:
        values = [None if value is None else value.astimezone(timezone.utc) for value in values]
    return pa.array(values, kind)


def _arrow(schema: StructType) -> "pa.Schema":
    """In Arrow's types; PySpark 4.1 and later want to be told the zone of timestamps."""
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def _prepared(given: Mapping[str, str], schema: StructType) -> SinkOptions:
    options = sink_options(given)
    try:
        check_schema(_arrow(schema), has_topic=options.topic is not None)
    except (ValueError, TypeError) as reason:
        raise BadRows(f"these rows cannot be written to a topic: {reason}") from None
    if options.exactly_once:
        patiently(lambda: _prepare_decisions(options), options.producer.block_s)
    return options


def _prepare_decisions(options: SinkOptions) -> None:
    servers, timeout_s = options.producer.bootstrap_servers, options.producer.request_timeout_s
    with Cluster(servers, client_id=options.producer.client_id, timeout_s=timeout_s) as cluster:
        ensure_decision_topic(cluster, options.decision_topic)


def _shares(messages: Messages) -> list[Share]:
    return [message.share for message in messages if isinstance(message, Written) and message.share is not None]
