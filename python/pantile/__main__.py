"""`pantile` and `python -m pantile`: the command that the wheel carries."""

import os
import sys

from ._library import FOLDER


def main() -> None:
    command = next(path for path in (FOLDER / "bin/pantile", FOLDER / "pantile") if path.is_file())
    os.execv(command, ["pantile", *sys.argv[1:]])


if __name__ == "__main__":
    main()
