"""What the tests against running brokers share: starting brokers, finding toolchains, clients of all languages."""
