"""A recording as one HTML file: the live page, with the recording inside at some moments.

The file loads nothing. No text of the recording is markup. Were one, it would do nothing: scripts
and styles need the file's nonce, which is drawn when it is written.
"""

import base64
import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from typing import BinaryIO

import msgspec

from kvscope.export.moments import Inside, gather
from kvscope_events.printable import quoted
from kvscope_exporter.recorder.reader import RecordingFile
from kvscope_exporter.replay.playback import Index

_IMPORTED = re.compile(r"(?<= from ')\./(?=\w+\.js';)")


def write_html(file: RecordingFile, index: Index, opens_ns: int, out: BinaryIO) -> Iterator[float]:
    """opens_ns: the moment at which the page opens. Yields the share of the recording that was
    played. Raises TooLargeError."""
    inside, moments = yield from gather(file, index, opens_ns)
    page = _page(inside).encode()
    head, end = page.split(b"</body>")
    out.write(head)
    document = msgspec.json.encode(inside).replace(b"<", b"\\u003c")
    out.write(b'<script type="application/json" id="recording">%s</script>\n' % document)
    for moment in moments:
        out.write(b'<script type="text/plain" class="moment">%s</script>\n' % moment)
    out.write(b"</body>" + end)


def _page(inside: Inside) -> str:
    """The live page with its own files in it."""
    folder = files("kvscope_exporter.live") / "page"
    nonce = secrets.token_urlsafe(16)
    texts = {each.name: each.read_text() for each in folder.iterdir()}
    # Modules name each other by bare names here, because a `data:` URL has no folder.
    modules = {
        name: _url("text/javascript", _IMPORTED.sub("", text))
        for name, text in texts.items()
        if name.endswith(".js")
    }
    imports = msgspec.json.encode({"imports": modules}).decode()
    own = f"'nonce-{nonce}'"
    policy = f"default-src 'none'; script-src {own}; style-src {own}; img-src data:"
    opens = datetime.fromtimestamp(inside.status.at, UTC)
    title = f"{quoted(inside.status.server)}, {opens:%Y-%m-%d %H:%M:%S}"
    parts = {
        '<meta charset="utf-8">': '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        "<title>kvscope live</title>": f"<title>{escape(title)}</title>",
        "live/static/icon.svg": _url("image/svg+xml", texts["icon.svg"]),
        '<link rel="stylesheet" href="live/static/style.css">': f'<style nonce="{nonce}">\n'
        f"{texts['style.css']}</style>",
        '<script type="module" src="live/static/main.js"></script>': ""
        f'<script type="importmap" nonce="{nonce}">{imports}</script>\n'
        f'<script type="module" nonce="{nonce}">import \'main.js\';</script>',
    }
    page = texts["index.html"]
    for part in parts:
        assert page.count(part) == 1, part
    return re.sub("|".join(map(re.escape, parts)), lambda found: parts[found[0]], page)


def _url(kind: str, text: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(text.encode()).decode()}"
