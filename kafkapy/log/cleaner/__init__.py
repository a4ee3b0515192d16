"""Log compaction: keep the last record of every key (Kafka's LogCleaner).

    settings     the broker's log.cleaner.* settings
    candidates   which part of a log can be cleaned, and which log needs cleaning most
    pieces       reading a segment chunk by chunk, for both passes
    codecs       decompressing the payload of a batch, and compressing the records that are kept
    indexing     the first pass: the last offset of each key
    grouping     which segments are merged into one
    rewriting    the second pass: writing a group of segments as one new segment
    swapping     replacing the old segments by the new one
    cleaning     all of these steps for one log
    throttle     the limit on bytes per second
    worker       a thread that cleans one log after the other
    service      the threads and their shared state

The records are processed in C without holding the GIL: kafkapy._ext.key_index and kafkapy._ext.compactor.
"""
