"""Log compaction: of every key the last record stays (Kafka's LogCleaner).

    settings     what the broker's log.cleaner.* settings say
    candidates   which part of a log can be cleaned, and which log needs it most
    pieces       reading a segment piece by piece, for both passes
    codecs       entries that are compressed: their payload out, what remains of it back in
    indexing     the first pass: the last offset of each key
    grouping     which segments become one
    rewriting    the second pass: a group of segments into a new one
    swapping     the new segment in the place of the old ones
    cleaning     all of it for one log
    throttle     the limit on bytes a second
    worker       a thread that cleans one log after the other
    service      the threads, and what they share

The bytes are gone through in C, without the interpreter's lock: kafkapy._ext.key_index and kafkapy._ext.compactor.
"""
