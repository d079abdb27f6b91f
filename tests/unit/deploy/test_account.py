"""The account of PostgreSQL is made with `useradd`, whose folder may not be on the PATH."""

from pathlib import Path

import pytest

from deploy import data_dir


@pytest.mark.parametrize(("code", "failure"), [(0, ""), (9, "no such luck")])
def test_account_is_made_by_a_program_that_is_not_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, failure: str
) -> None:
    program, called = tmp_path / "sbin" / "useradd", tmp_path / "called"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho \"$@\" >{called}\nprintf '{failure}' >&2\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(data_dir, "SYSTEM_PROGRAMS", str(program.parent))
    assert data_dir._create_account() == failure
    assert called.read_text().split() == data_dir.CREATE_ACCOUNT[1:]
