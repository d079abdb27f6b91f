"""Settings in files: `.env` with the names of variables, `errand.toml` with the names of settings."""

import difflib
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from dotenv import dotenv_values


class SettingsError(ValueError):
    """A setting has an invalid value or name; the message gives the setting and the allowed ones."""


def read_dotenv(file: Path, allowed: Collection[str]) -> dict[str, str]:
    """Names of other programs in the file are ignored, but a misspelt name of ours is an error."""
    if not file.exists():
        return {}
    try:
        with file.open(encoding="utf-8") as text:
            values = dotenv_values(stream=text, interpolate=False)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} cannot be read: {error}") from None
    check_names(file, (name for name in values if name.startswith("ERRAND_")), allowed)
    return {name: text for name, text in values.items() if text is not None and name in allowed}


def read_toml(file: Path, names: Mapping[str, str]) -> dict[str, str]:
    """`names`: the variable of each setting."""
    if not file.exists():
        return {}
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{file} cannot be read: {error}") from None
    check_names(file, values, names)
    return {names[name]: _as_text(file, name, value) for name, value in values.items()}


def _as_text(file: Path, name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    if isinstance(value, str | int | float):
        return str(value)
    raise SettingsError(f"{file}: {name} must be a text, a number, true, false or a list of texts")


def check_names(source: object, names: Iterable[str], allowed: Iterable[str]) -> None:
    """Refuse names of settings that do not exist; `source` is where they were found."""
    known = sorted(allowed)
    if unknown := sorted(set(names) - set(known)):
        meant = [(difflib.get_close_matches(name, known, 1) or [""])[0] for name in unknown]
        listed = [name + (f" (did you mean {one}?)" if one else "") for name, one in zip(unknown, meant, strict=True)]
        raise SettingsError(f"{source}: there is no setting {', '.join(listed)}; allowed are: {', '.join(known)}")
