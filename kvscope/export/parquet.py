"""The tables of a recording as Parquet files, written by DuckDB, which also queries them.

Rows go to a temporary file beside the table, as lines of JSON, and DuckDB makes a Parquet file of
each: neither holds more than a part of them in memory.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, get_args, get_type_hints

import duckdb
import msgspec

from kvscope.export.course import Course
from kvscope.export.rows import BlockLife, PreemptionRow, Request, Row, Step
from kvscope.export.tables import Tables
from kvscope_exporter.recorder.reader import RecordingFile

TABLES: dict[type[Row], str] = {
    Step: "steps",
    Request: "requests",
    BlockLife: "block_lives",
    PreemptionRow: "preemptions",
}
_MEMORY = "512MB"
_TYPES = {int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}
_TAKERS = 'STRUCT("sequence" BIGINT, blocks BIGINT)[]'


def write_tables(file: RecordingFile, folder: Path) -> Iterator[float]:
    """Write the tables into a folder; yields the share that was read. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".rows-", dir=folder) as place:
        lines = {row: Path(place, f"{name}.json") for row, name in TABLES.items()}
        with ExitStack() as files:
            given = {row: files.enter_context(path.open("wb")) for row, path in lines.items()}
            yield from Course(file, lambda hello: Tables(hello.engine, _giver(given))).play()
        for row, path in lines.items():
            _convert(row, path, folder / f"{TABLES[row]}.parquet")


def _giver(files: Mapping[type[Row], BinaryIO]) -> Callable[[Row], None]:
    encode = msgspec.json.Encoder().encode

    def give(row: Row) -> None:
        file = files[type(row)]
        file.write(encode(row))
        file.write(b"\n")

    return give


def _convert(row: type[Row], lines: Path, table: Path) -> None:
    """Raises OSError."""
    types = {name: _type(kind) for name, kind in get_type_hints(row).items()}
    columns = ", ".join(f"{name}: '{kind}'" for name, kind in types.items())
    values = ", ".join(
        f"make_timestamp({name}) AS {name}" if name.endswith("_at") else name for name in types
    )
    settings: dict[str, str | bool | list[str] | int | float] = {
        "memory_limit": _MEMORY,
        "threads": 2,
        "temp_directory": str(lines.parent),
        "autoinstall_known_extensions": False,  # nothing is fetched from the network
    }
    whole = lines.with_suffix(".parquet")
    try:
        with duckdb.connect(":memory:", config=settings) as connection:
            connection.execute(
                f"COPY (SELECT {values} FROM read_json({_quoted(lines)}, "
                f"format = 'newline_delimited', columns = {{{columns}}})) "
                f"TO {_quoted(whole)} (FORMAT parquet, COMPRESSION zstd)"
            )
    except duckdb.Error as error:  # a full disk, or a number or a time that no table holds
        raise OSError(0, str(error).partition("\n")[0], str(table)) from None
    whole.chmod(0o600)  # until now it was in a folder that only we can enter
    whole.replace(table)


def _type(kind: object) -> str:
    """DuckDB's type for a row's field, which may be None."""
    known = [each for each in (kind, *get_args(kind)) if each in _TYPES]
    return _TYPES[known[0]] if known else _TAKERS


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
