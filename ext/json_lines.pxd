# Columns of records as JSON lines. Only Python functions: other extension modules use nothing of it.
