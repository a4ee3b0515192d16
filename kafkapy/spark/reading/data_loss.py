"""Reports of records that no longer exist: an error, or with failOnDataLoss=false a warning."""

import logging

log = logging.getLogger("kafkapy.spark")

REMEDY = 'set the option failOnDataLoss to "false" to continue with the records that exist'


class DataLoss(RuntimeError):
    """The error for records that no longer exist but that a query should read.

    The message says which records are missing, and what to do.
    """


def report_data_loss(fail: bool, text: str) -> None:
    """Raise DataLoss if `fail` is True, else log a warning. `text` says what is missing; it has no full stop."""
    if fail:
        raise DataLoss(f"{text}. Some data may have been missed; {REMEDY}.")
    log.warning("%s. Some data may have been missed.", text)
