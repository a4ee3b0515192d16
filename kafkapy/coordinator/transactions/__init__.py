"""Which transactions are open, and how each one ends: Kafka's transaction coordinator on the step machine.

`transitions` says what may follow what, as functions of a state; `machine` keeps the states of one partition of
`__transaction_state` and answers requests; `completion` writes the markers of a decided transaction; `upkeep` aborts
what timed out and forgets ids; `views` shows what there is; `coordinator` is the door to all of it.
"""
