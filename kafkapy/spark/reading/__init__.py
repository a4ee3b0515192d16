"""Reading topics: looks up the offsets of a query, divides them into tasks, and runs the tasks."""
