"""What memory a process finds that it may have, from the files of control groups."""

from pathlib import Path

import pytest

from halcyon.control.runtime import memory_limit

V2, V1 = "memory.max", "memory/memory.limit_in_bytes"


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({V2: "456130560\n"}, 435 * 2**20),
        ({V1: "456130560\n"}, 435 * 2**20),
        ({V2: "max\n"}, None),
        ({V1: "9223372036854771712\n"}, None),
        ({V2: "456130560\n", V1: "9223372036854771712\n"}, 435 * 2**20),
        ({V2: ""}, None),
        ({}, None),
    ],
)
def test_the_limit_is_that_of_the_containers_control_group(
    tmp_path: Path, files: dict[str, str], limit: float | None
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert memory_limit.read(tmp_path) == limit
