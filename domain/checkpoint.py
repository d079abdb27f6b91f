"""The fixed form of a checkpoint, which replaces a context that has grown too long. A model fills it in. Headings that
it leaves out are added as empty, so that every reader knows that nothing was noted there."""

import re
from collections.abc import Sequence

HEADINGS = ("Goal", "Constraints", "Done", "Open", "Decisions", "Next")
CHILDREN = "Running children"
NOTHING = "(nothing noted)"

REQUEST = f"""\
The conversation no longer fits and will be replaced by your next reply. Write a checkpoint from which you can \
continue without it, under these headings, each on its own line as `## Heading`: {"; ".join(HEADINGS)}. Open is \
what is in progress or blocked. Keep exact names, paths, ids, figures and quotations that are still needed."""


def in_form(text: str, children: Sequence[str]) -> str:
    """The checkpoint with all of its headings. Running children are always listed, whatever the model wrote about
    them."""
    missing = [heading for heading in HEADINGS if not _has(text, heading)]
    parts = [text.strip(), *(f"## {heading}\n{NOTHING}" for heading in missing)]
    parts.append(f"## {CHILDREN}\n" + ("\n".join(f"- {child}" for child in children) or "(none)"))
    return "\n\n".join(part for part in parts if part)


def _has(text: str, heading: str) -> bool:
    return re.search(rf"^\W*{heading}\b", text, re.MULTILINE | re.IGNORECASE) is not None
