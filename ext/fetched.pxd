# Nothing of `fetched` is used by other modules from C.
