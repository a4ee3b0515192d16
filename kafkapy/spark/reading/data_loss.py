"""Reports of records that no longer exist: an error, or with failOnDataLoss=false a warning."""

import logging

log = logging.getLogger("kafkapy.spark")

REMEDY = 'set the option failOnDataLoss to "false" to continue with the records that exist'


class DataLoss(RuntimeError):
    """Records that a query should read do not exist any more. The message says which, and what to do."""


def report_data_loss(fail: bool, text: str) -> None:
    """Raise DataLoss, or log a warning. `text` is a sentence without its full stop."""
    if fail:
        raise DataLoss(f"{text}. Some data may have been missed; {REMEDY}.")
    log.warning("%s. Some data may have been missed.", text)
