"""Kafka's transaction coordinator.

transitions.py   the allowed state changes of a transactional id, as pure functions
machine.py       the state of one partition of `__transaction_state`, and the steps of requests
completion.py    writes the markers of a committed or aborted transaction
maintenance.py   aborts timed-out transactions and expires transactional ids
views.py         DescribeTransactions and ListTransactions
coordinator.py   what the request handlers call
"""
