"""The parts of servers.md about servers' own pages: written from the tables of readings."""

from collections.abc import Iterator

from kvscope_exporter.catalogue import CATALOGUE
from kvscope_exporter.scrape.detect import HOW, TITLES
from kvscope_exporter.scrape.row import Row, Table
from kvscope_exporter.scrape.tables import TABLES


def attached_pages() -> Iterator[str]:
    """Rows of the table of attachments."""
    for kind in TABLES:
        yield f"| {TITLES[kind]} | page | {HOW[kind]} |\n"


def page_rows() -> Iterator[str]:
    """Family by server: the quality of the preferred row."""
    yield "| family | " + " | ".join(TITLES[kind] for kind in TABLES) + " |\n"
    yield "|---" * (len(TABLES) + 1) + "|\n"
    for metric in CATALOGUE:
        cells = [_worths(metric.name, tables) for tables in TABLES.values()]
        if any(cells):
            yield f"| `{metric.name}` | " + " | ".join(cell or "-" for cell in cells) + " |\n"


def reasons() -> Iterator[str]:
    """For each server: sources of the families, their quality, and why others are missing."""
    printed: set[int] = set()
    for kind, tables in TABLES.items():
        yield f"\n### {TITLES[kind]}\n\n"
        notes = [table.note for table in tables if table.note]
        yield "".join(f"{note}\n\n" for note in notes)
        rows = [r for table in tables if not table.is_derived for r in table.rows]
        new = [row for row in rows if id(row) not in printed]
        printed.update(map(id, rows))
        absent = {family: why for table in tables for family, why in table.absent.items()}
        yield "| family | read from | value | note |\n|---|---|---|---|\n"
        for row in new:
            yield f"| {_series(row)} | {_cell(row.value.text())} | {row.worth} | {row.reason} |\n"
        for family, why in absent.items():
            yield f"| `{family}` | - | absent | {why} |\n"


def _worths(family: str, tables: tuple[Table, ...]) -> str:
    """From the first row of each series; a family's series can differ."""
    first: dict[tuple[str, ...], str] = {}
    for table in tables:
        for row in table.rows:
            if row.family == family:
                first.setdefault(row.key, row.worth)
    return ", ".join(dict.fromkeys(first.values()))


def _series(row: Row) -> str:
    labels = ", ".join(f'{label}="{value}"' for label, value in row.labels.items())
    return f"`{row.family}{{{labels}}}`" if labels else f"`{row.family}`"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
