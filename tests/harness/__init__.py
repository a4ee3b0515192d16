"""Helpers of the tests with running brokers: starting brokers, finding toolchains, clients of all languages."""
