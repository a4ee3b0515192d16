"""Reading a log: by offset, by timestamp, and in older message formats for old clients."""
