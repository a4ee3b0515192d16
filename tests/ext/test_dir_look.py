"""The look at a directory: names, sizes, times and the contents of small files."""

import os

import pytest

from kafkapy._ext.dir_look import look


def test_a_look_says_what_a_listing_and_a_stat_and_a_read_of_small_files_say(tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "small").write_bytes(bytes(range(128)))
    (tmp_path / "large").write_bytes(bytes(129))
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("small")
    (tmp_path / "nowhere").symlink_to("missing")
    os.mkfifo(tmp_path / "fifo")
    os.utime(tmp_path / "small", ns=(0, 1_700_000_000_123_456_789))
    (tmp_path / "\udcff").write_bytes(b"odd")
    assert sorted(look(str(tmp_path))) == sorted(
        (
            path.name,
            path.stat().st_size,
            path.is_dir(),
            path.stat().st_mtime_ns // 1_000_000,
            path.read_bytes() if path.is_file() and 0 < path.stat().st_size <= 128 else None,
        )
        for path in tmp_path.iterdir()
        if path.exists()
    )


def test_a_look_at_many_names_has_each_of_them_once(tmp_path):
    for number in range(1000):
        (tmp_path / f"{number:0200d}").write_bytes(b"%d" % number)
    assert {(name, content) for name, _, _, _, content in look(str(tmp_path))} == {
        (f"{number:0200d}", b"%d" % number) for number in range(1000)
    }


def test_an_empty_directory_has_no_names(tmp_path):
    assert look(str(tmp_path)) == []


@pytest.mark.parametrize(("name", "error"), [("missing", FileNotFoundError), ("file", NotADirectoryError)])
def test_what_is_no_directory_is_an_error_that_names_it(tmp_path, name, error):
    (tmp_path / "file").touch()
    with pytest.raises(error) as raised:
        look(str(tmp_path / name))
    assert raised.value.filename == str(tmp_path / name)
