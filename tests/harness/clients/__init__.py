"""One interface for the clients of all languages, so that the same tests run with each of them."""
