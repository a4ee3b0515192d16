"""Reading a log: by offset, by time, and in older message formats."""
