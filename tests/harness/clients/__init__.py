"""Clients of all languages behind one interface, so that the same tests run with each of them."""
