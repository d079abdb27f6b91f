"""The command `errand` of an installed package: the application is in the folder `app` beside this file.

Its packages have names such as `api` and `domain`. They are put on the path of this program and of the processes that
it starts only: a program that imports `errand` does not see them.
"""

import os
import sys
from pathlib import Path


def main() -> None:
    here = Path(__file__).resolve().parent
    code = here / "app" if (here / "app").is_dir() else here.parents[1]  # in the checkout the application is at the top
    sys.path.insert(0, str(code))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(code), os.environ.get("PYTHONPATH"))))
    from cli.__main__ import main as command

    command()


if __name__ == "__main__":
    main()
