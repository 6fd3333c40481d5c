"""Generate the JSON of every dashboard into this folder."""

import warnings
from pathlib import Path

warnings.filterwarnings("ignore", "Prefer using dashboardv2", DeprecationWarning)

from dashboards.generate import FOLDER, write  # noqa: E402 - the SDK warns when it is imported


def main() -> None:
    for path in write(FOLDER):
        print(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


if __name__ == "__main__":
    main()
