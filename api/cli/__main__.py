"""Runs the command line: `python -m api.cli`, or `./errand` in the checkout."""

from api.cli.main import errand
from api.cli.output import PROGRAM

if __name__ == "__main__":
    errand(prog_name=PROGRAM)
