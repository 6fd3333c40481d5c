"""`python -m tools.reference`: writes the reference of commands, of variables and of the layout."""

from tools.reference.commands import commands_page
from tools.reference.environment import ROOT, environment_page
from tools.reference.layout import layout_page

FOLDER = ROOT / "docs" / "reference"
PAGES = {
    "commands.md": commands_page,
    "environment.md": environment_page,
    "layout.md": layout_page,
}


def main() -> None:
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())


if __name__ == "__main__":
    main()
