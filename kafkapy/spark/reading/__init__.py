"""Reading topics: which offsets a query has, how they become tasks, and what a task does."""
