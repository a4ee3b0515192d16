"""The transaction coordinator.

transitions.py   the allowed state changes of a transactional id, as pure functions
machine.py       the state of one partition of `__transaction_state`, and the handling of requests
completion.py    writes the markers of a committed or aborted transaction
maintenance.py   aborts timed-out transactions and expires transactional ids
views.py         the data of DescribeTransactions and ListTransactions
coordinator.py   the API for the request handlers
"""
