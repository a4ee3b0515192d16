"""What is done about records that are gone: an error, or a warning with failOnDataLoss=false."""

import logging

log = logging.getLogger("kafkapy.spark")

REMEDY = 'set the option failOnDataLoss to "false" to go on with what is there'


class DataLoss(RuntimeError):
    """Records that a query should have read are not there any more; the text says which, and what to do."""


def report_data_loss(fail: bool, text: str) -> None:
    """Raises DataLoss, or warns; `text` is a sentence without its full stop."""
    if fail:
        raise DataLoss(f"{text}. Some data may have been missed; {REMEDY}.")
    log.warning("%s. Some data may have been missed.", text)
