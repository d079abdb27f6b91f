"""The lock files name every pin in the form that pip needs, and no index."""

import re

import pytest

from settings import ROOT

LOCKS = ("requirements.txt", "requirements-dev.txt", "bench/peers/requirements.txt")
PIN = re.compile(r"^([\w.-]+)(\[[^]]*\])?==(\S+)", re.MULTILINE)


@pytest.mark.parametrize("file", LOCKS)
def test_pin_with_extras_is_also_there_without(file: str) -> None:
    """Otherwise pip 23 refuses the whole file as soon as that package has a newer release."""
    text = (ROOT / file).read_text()
    pins = PIN.findall(text)
    bare = {(name, version) for name, extras, version in pins if not extras}
    assert bare >= {(name, version) for name, _, version in pins}
    assert "--hash=sha256:" in text and "://" not in text
