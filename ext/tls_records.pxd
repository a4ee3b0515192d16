# Finds the whole TLS records in received bytes. Only a Python function: one call finds all of a receive.
