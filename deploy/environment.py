"""Settings as environment variables, for the processes of the embedded stack."""

from pathlib import Path

from settings import CLI_ONLY, VARIABLES, Settings, field_of


def variables(settings: Settings) -> dict[str, str]:
    """The inverse of Settings.from_env, without the command line's own settings.

    Paths become absolute, because the processes run in another folder.
    """
    values = {name: getattr(settings, field_of(name)) for name in VARIABLES if name not in CLI_ONLY}
    return {name: text_of(value) for name, value in values.items() if value is not None}


def text_of(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.absolute() if isinstance(value, Path) else value)
