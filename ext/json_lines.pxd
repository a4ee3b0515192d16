# Columns of records as JSON lines. Nothing of it is for other C modules.
