"""One face for the clients of all languages, so that one set of scenarios runs through each of them."""
