"""The log of Kafka 0.7, Kafka's original design. Read it in this order: segment, log, retention, recovery, directory.

A log is a sequence of bytes, and an offset is a position in it. Messages are appended at the end, and removed only at
the start. The bytes are in segment files, each named by the position at which it begins:

    orders-0/00000000000000000000.kafka     positions 0 to 536870932
    orders-0/00000000000536870933.kafka     positions 536870933 to now; appends go here

A message is its length and its content: see kafkapy.record.kafka07. Nothing else is stored: no index, because an offset
is a position, no checkpoint, and nothing about readers, which keep their own offsets. So a read is a search for the
segment in a list that fits in a processor's cache, and a range of its file, which the network sends with `sendfile`.

Written bytes can be read once they are flushed (fsync). A flush is done after some number of messages, or after some
time, so that many messages share its cost. After a crash only the newest segment can be damaged, because a segment is
flushed before the next one is created. So recovery reads the newest segment, and cuts it where the first message is
incomplete or damaged.

Source: kafka.log.Log, LogManager and kafka.message.FileMessageSet of Kafka 0.7.2.
"""
