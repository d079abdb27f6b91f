"""Writing to a file that the user named."""

from pathlib import Path

from cli.errors import CliError


def write_output(path: Path, content: str | bytes) -> None:
    try:
        # a lone surrogate in a model's text must not lose the whole file
        path.write_bytes(content.encode(errors="replace") if isinstance(content, str) else content)
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}") from None
