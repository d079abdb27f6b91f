"""Only the vendor's module contains the terms of the vendor's requests and replies."""

from pathlib import Path

import pytest

from settings import ROOT
from tests.support.vendor import CALLS_THE_SDK, TRANSLATES, sdk_imports, vendor_terms


def test_one_module_knows_the_terms_of_the_vendor() -> None:
    assert vendor_terms(ROOT) == []


def test_few_modules_import_the_sdk_of_the_vendor() -> None:
    assert sdk_imports(ROOT) == []


def test_every_exception_is_needed() -> None:
    assert all((ROOT / path).exists() and "anthropic" in (ROOT / path).read_text() for path in CALLS_THE_SDK)
    assert "tool_use" in (ROOT / TRANSLATES).read_text()


def write(root: Path, path: str, text: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("domain/messages.py", 'calls = [block for block in content if block["type"] == "tool_use"]'),
        ("store/messages.py", 'body["tool_use_id"]'),
        ("activities/model/call_model.py", 'request["cache_control"] = {}'),
        ("domain/limits.py", 'reply.stop_reason == "pause_turn"'),
    ],
)
def test_terms_of_the_vendor_elsewhere_are_found(tmp_path: Path, path: str, line: str) -> None:
    assert len(vendor_terms(write(tmp_path, path, line))) == 1


@pytest.mark.parametrize("line", ["import anthropic", "from anthropic import AsyncAnthropic", "import anthropic.types"])
def test_imports_of_the_sdk_elsewhere_are_found(tmp_path: Path, line: str) -> None:
    assert len(sdk_imports(write(tmp_path, "activities/sessions/acceptance.py", line))) == 1


@pytest.mark.parametrize("path", ["offline/wire.py", "bench/bare_worker.py", TRANSLATES])
def test_modules_of_the_protocol_may_use_its_terms(tmp_path: Path, path: str) -> None:
    root = write(tmp_path, path, 'import anthropic\nkind = "tool_use"')
    assert vendor_terms(root) == sdk_imports(root) == []
