import json
from pathlib import Path

import pytest

from cli.commands import audit
from cli.errors import CliError


def test_a_file_grows_and_gives_its_last_head(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    assert audit.last_head(str(file)) is None
    for head in ("one", "two"):
        audit.keep(str(file), head, 3, 1)
    assert audit.last_head(str(file)) == "two"
    assert [json.loads(line)["head"] for line in file.read_text().splitlines()] == ["one", "two"]
    file.write_text("nothing\n")
    with pytest.raises(CliError, match="heads"):
        audit.last_head(str(file))
