# For other extension modules only: nothing here is for Python.
