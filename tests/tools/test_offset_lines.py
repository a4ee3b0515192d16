"""Files of offsets, as Kafka's ExportZkOffsets writes and ImportZkOffsets reads them."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.groups.offset_lines import read_lines, write_lines

_NAMES = st.text("aZ0._-", min_size=1, max_size=6).filter(lambda name: name not in (".", ".."))
_NUMBERS = st.integers(0, 99).map(str)
_PARTITIONS = _NUMBERS | st.tuples(_NUMBERS, _NUMBERS).map("-".join)
_OFFSETS = st.dictionaries(st.tuples(_NAMES, _PARTITIONS), st.integers(0, 2**63 - 1), min_size=1, max_size=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.dictionaries(_NAMES, _OFFSETS, min_size=1, max_size=3))
def test_written_offsets_are_read_back(tmp_path: Path, groups: dict[str, dict[tuple[str, str], int]]) -> None:
    write_lines(tmp_path / "offsets", groups)
    assert read_lines(tmp_path / "offsets") == groups


@pytest.mark.parametrize(
    "line",
    [
        "/consumers/g/offsets/t/0",
        "/consumers/g/offsets/t/0:null",
        "/consumers/g/offsets/t/0:-1",
        "/consumers/g/offsets/t/0:9223372036854775808",
        "/consumers/g/offsets/t/x:1",
        "/consumers/g/owners/t/0:1",
        "/consumers/g/offsets/../0:1",
        "consumers/g/offsets/t/0:1",
        "t,0,1",
    ],
)
def test_the_error_names_an_invalid_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "offsets"
    file.write_text(f"/consumers/g/offsets/t/1:5\n\n{line}\n")
    with pytest.raises(ToolError) as error:
        read_lines(file)
    assert str(error.value) == f"{file}, line 3: {line!r} is not /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET"


def test_two_different_offsets_of_a_partition_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "offsets"
    file.write_text("/consumers/g/offsets/t/1:5\n" * 2)
    assert read_lines(file) == {"g": {("t", "1"): 5}}
    file.write_text("/consumers/g/offsets/t/1:5\n/consumers/g/offsets/t/1:6\n")
    with pytest.raises(ToolError, match="line 2: t/1 of group 'g' has another offset above"):
        read_lines(file)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe"])
def test_a_file_without_lines_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "offsets"
    file.write_bytes(content)
    with pytest.raises(ToolError, match=r"has no line|is no file of lines"):
        read_lines(file)
    with pytest.raises(ToolError, match="cannot be read"):
        read_lines(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["a/b", "a:b", "a\nb"])
def test_a_group_whose_name_no_line_can_hold_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ToolError, match="cannot be in a file of lines"):
        write_lines(tmp_path / "offsets", {name: {("t", "0"): 1}})
