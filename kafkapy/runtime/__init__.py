"""Building blocks without Kafka logic: clock, timer, scheduler, thread pools, purgatory, counters, settings,
logging."""
