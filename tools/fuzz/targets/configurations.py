"""Files of an operator: a sidecar's configuration, a port's web configuration, its keys."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from kvscope_exporter.configuration import ConfigurationError, read_configuration
from kvscope_exporter.web.access.keys import read_keys
from kvscope_exporter.web.access.web_config import read_web_config
from tools.fuzz.target import Parse, Target


def _read_by(read: Callable[[Path], object]) -> Callable[[], AbstractContextManager[Parse]]:
    @contextmanager
    def opened() -> Iterator[Parse]:
        with tempfile.TemporaryDirectory(prefix="kvscope-fuzz-") as name:
            file = Path(name, "file")

            def parse(content: bytes) -> bool:
                file.write_bytes(content)
                try:
                    read(file)
                except (ConfigurationError, ValueError) as error:
                    return _refused(error)
                return True

            yield parse

    return opened


def _refused(error: Exception) -> bool:
    assert isinstance(error, ConfigurationError) or type(error) is ValueError, "as declared"
    assert str(error).isprintable(), "not one line of text"
    return False


CONFIGURATIONS = Target(
    name="configurations",
    opened=_read_by(read_configuration),
    tokens=(
        *(
            b"servers:\n",
            b"  - name: a\n",
            b"    url: http://a\n",
            b"&a ",
            b"*a",
            b"<<: ",
            b"!!int ",
            b"!!bool ",
            b"!!timestamp ",
        ),
        *(b"---\n", b"? ", b"- - - ", b"{", b"}", b": ", b"|\n", b"\t", b"0x", b"2001-13-41", b"~"),
    ),
)
WEB_CONFIGURATIONS = Target(
    name="web_configurations",
    opened=_read_by(read_web_config),
    tokens=(
        *(b"tls_server_config:\n", b"  cert_file: a\n", b"  key_file: a\n", b"basic_auth_users:\n"),
        *(b"client_ca_file: a", b"RequireAndVerifyClientCert", b"TLS13", b"$2y$10$", b"&a ", b"*a"),
    ),
)
KEY_FILES = Target(
    name="key_files", opened=_read_by(read_keys), tokens=(b"\n", b" ", b"\r\n", b"\t")
)
