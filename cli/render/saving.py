"""Writing to a file that the person named."""

from pathlib import Path

from cli.client.errors import CliError


def save(path: Path, content: str | bytes) -> None:
    try:
        path.write_bytes(content.encode(errors="replace") if isinstance(content, str) else content)
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}") from None
