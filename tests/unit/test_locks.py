"""The lock files name every pin with its hashes, in the form that pip needs, and no index."""

import re

import pytest

from settings import ROOT

LOCKS = ("requirements.txt", "requirements-dev.txt", "requirements-telemetry.txt", "bench/peers/requirements.txt")
PIN = re.compile(r"([\w.-]+)(\[[^]]*\])?==(\S+)")


@pytest.mark.parametrize("file", LOCKS)
def test_every_pin_has_its_hashes_and_one_with_extras_is_also_there_without(file: str) -> None:
    """Otherwise pip 23 refuses the whole file as soon as that package has a newer release."""
    text = (ROOT / file).read_text()
    entries = [entry for entry in re.split(r"\n(?=\S)", text.strip()) if not entry.startswith("#")]
    pins = [PIN.match(entry) for entry in entries]
    assert len(pins) > 30 and all(pins) and all("--hash=sha256:" in entry for entry in entries)
    found = [pin.groups() for pin in pins if pin]
    assert {(name, version) for name, extras, version in found if not extras} >= {
        (name, version) for name, _, version in found
    }
    assert "://" not in text and "index" not in text


def test_lock_of_the_peers_has_what_is_asked_for() -> None:
    lock = (ROOT / LOCKS[-1]).read_text()
    asked = (ROOT / LOCKS[-1]).with_suffix(".in").read_text()
    pins = re.findall(r"^([a-z-]+)(?:\[[a-z,]+\])?(==\S+)", asked, re.MULTILINE)
    assert len(pins) == len(re.findall(r"^[^#\n]", asked, re.MULTILINE))
    assert all(f"\n{name}{version} " in f"\n{lock}" for name, version in pins)
