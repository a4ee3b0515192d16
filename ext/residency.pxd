# Which parts of a file are in memory. Only Python functions: a question takes longer than the call around it.
