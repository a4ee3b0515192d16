"""What everything stands on: clock, timer, purgatory, disk pool, scheduler, counters, logging."""
