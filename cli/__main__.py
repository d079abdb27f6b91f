"""Runs the command line: `python -m cli`, or `./errand` in the checkout."""

from cli.commands.completion import COMPLETE_VARIABLE
from cli.main import errand
from cli.render.output import PROGRAM


def main() -> None:
    errand(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE)


if __name__ == "__main__":
    main()
