"""Types of ext/keyed_records.pyx: it is used from other extension modules only."""
