"""Terms of the model vendors' protocols, and the few modules that may know them. All others use domain/messages.py."""

import re
from pathlib import Path

from tests.support.layering import imported, modules

SDKS = ("anthropic", "openai")
TERMS = re.compile(
    r"\b(?:tool_use(?:_id)?|is_error|cache_control|ephemeral|redacted_thinking|budget_tokens|stop_sequence"
    r"|(?:text|signature|input_json)_delta|partial_json|pause_turn|model_context_window_exceeded"
    r"|cache_(?:creation|read)_input_tokens|finish_reason|prompt_tokens|completion_tokens|reasoning_content)\b"
)
TRANSLATE = ("activities/model/anthropic.py", "activities/model/openai.py")
# the offline model server, the benchmark's loops, and the protocols of other vendors
SPEAK_THE_PROTOCOL = ("offline/", "bench/", "api/faces/", "activities/mcp/")


def vendor_terms(root: Path) -> list[str]:
    """The places where a module uses a vendor's term that it should not know."""
    return [
        f"{module.path}:{number}: {found[0]}"
        for module in modules(root)
        if module.path not in TRANSLATE and not module.path.startswith(SPEAK_THE_PROTOCOL)
        for number, line in enumerate(module.text.splitlines(), start=1)
        for found in TERMS.finditer(line)
    ]


def sdk_imports(root: Path) -> list[str]:
    return [
        f"{module.path}:{number}: {name}"
        for module in modules(root)
        if module.path not in TRANSLATE and not module.path.startswith(SPEAK_THE_PROTOCOL)
        for number, name in imported(module)
        if name.split(".")[0] in SDKS
    ]
