"""Who leads what, and the changes of topics: written to the metadata tree first, then done on this broker."""
