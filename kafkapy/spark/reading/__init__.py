"""Reading topics: the offsets of a query, their division into tasks, and the tasks."""
