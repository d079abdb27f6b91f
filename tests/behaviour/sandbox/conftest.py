"""Every back end that works on this host is tested with the same hostile commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.sandbox import Sandbox, bubblewrap, landlock

BACK_ENDS: list[Sandbox] = [*bubblewrap.candidates(), *landlock.candidates()]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o077 == 0:
            # pytest's folders; the sandlock back end cannot reach anything below a folder that is closed to others
            folder.chmod(0o711)
    place = tmp_path / "workspace"
    place.mkdir()
    return place


@pytest.fixture(params=BACK_ENDS, ids=lambda back_end: back_end.name)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    yield request.param
