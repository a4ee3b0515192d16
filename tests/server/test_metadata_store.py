"""A broker without ZooKeeper keeps its metadata in the first of log.dirs, under the path that the operator wrote."""

from kafkapy.metadata.local.tree import FILE_NAME
from tests.server.requests import start_broker


def test_the_first_directory_may_be_named_by_a_path_with_dots(tmp_path):
    server = start_broker(f"{tmp_path}/bin/../data", broker_id=0)
    server.stop()
    assert (tmp_path / "data" / FILE_NAME).exists()


def test_a_directory_that_cannot_be_looked_at_does_not_keep_the_broker_from_using_the_others(tmp_path):
    good, bad = tmp_path / "good", tmp_path / ("x" * 300)  # too long for any file system
    server = start_broker(f"{good},{bad}", broker_id=0)
    try:
        states = dict(server.services.log_manager.directories())
    finally:
        server.stop()
    assert states[good] is None
    assert isinstance(states[bad], OSError)
