"""A sidecar's configuration file."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exporter.configuration import ConfigurationError, read_configuration
from tests.fuzz.target import Parse, Target


@contextmanager
def _opened() -> Iterator[Parse]:
    with tempfile.TemporaryDirectory(prefix="kvscope-fuzz-") as name:
        file = Path(name, "kvscope.yaml")

        def parse(content: bytes) -> bool:
            file.write_bytes(content)
            try:
                read_configuration(file)
            except ConfigurationError as error:
                return _refused(error)
            return True

        yield parse


def _refused(error: ConfigurationError) -> bool:
    assert str(error).isprintable(), "not one line of text"
    return False


CONFIGURATIONS = Target(
    name="configurations",
    opened=_opened,
    tokens=(
        *(
            b"servers:\n",
            b"  - name: a\n",
            b"    url: http://a\n",
            b"&a ",
            b"*a",
            b"<<: ",
            b"!!int ",
        ),
        *(b"---\n", b"? ", b"- - - ", b"{", b"}", b": ", b"|\n", b"\t", b"0x", b"2001-13-41", b"~"),
    ),
)
