"""The scan of stored batches for aborted and open transactions."""

from kafkapy._ext.transactions import TransactionScan
from kafkapy.record.batch import build
from kafkapy.record.columns import decompress_records
from kafkapy.record.compression import GZIP
from kafkapy.record.control import ABORT, encode_key
from tests.harness.markers import encode_marker


def test_compressed_markers_end_their_transactions():
    """Brokers do not write such markers."""

    def data(producer_id, offset):
        return build([(0, None, b"v", ())], base_offset=offset, producer_id=producer_id, transactional=True)

    def marker(producer_id, offset):
        return build(
            [(0, encode_key(ABORT), encode_marker(0), ())],
            codec=GZIP,
            base_offset=offset,
            producer_id=producer_id,
            transactional=True,
            control=True,
        )

    batches = data(1, 0) + data(2, 1) + marker(1, 2) + marker(2, 3)
    scan = TransactionScan(decompress_records)
    assert scan.feed(batches) == len(batches)
    assert scan.aborted() == [(1, 0, 2), (2, 1, 3)]
    assert scan.open() == {}
