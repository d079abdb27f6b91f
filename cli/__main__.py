"""Runs the command line: `python -m cli`, or `./errand` in the checkout."""

import signal


def main() -> None:
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not in the background of a script
    if interruptible:  # the imports take a moment, and Ctrl-C in it would show where they were
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cli.commands.completion import COMPLETE_VARIABLE
    from cli.main import errand
    from cli.render.output import PROGRAM

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    errand(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE)


if __name__ == "__main__":
    main()
