"""`python tools/site/check.py FOLDER`: every link of the built site leads somewhere inside it.

Sphinx warns of links that it resolves itself. This reads what a browser reads: no page may load
anything from another host, and every link within the site needs its page and its anchor.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "srcset"}
_IN_STYLES = re.compile(r"(?:@import\s+|url\()[\"']?(?:https?:)?//[^)\"']+")


class Page(HTMLParser):
    """The anchors of a page, its links, and what it loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors = {""}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif values.get(LOADS.get(tag, "")) and values.get("rel") != "canonical":
            self.loads.append(values[LOADS[tag]])


def faults(site: Path) -> list[str]:
    pages = {file.resolve(): Page(file) for file in sorted(site.rglob("*.html"))}
    found = [fault for file in pages for fault in _faults_of(file, pages, site.resolve())]
    for style in sorted(site.rglob("*.css")):
        loaded = _IN_STYLES.findall(style.read_text())
        found += [f"{style.relative_to(site)}: loads {address}" for address in loaded]
    return found


def _faults_of(file: Path, pages: dict[Path, Page], site: Path) -> list[str]:
    found = []
    for address in pages[file].loads:
        if urlsplit(address).netloc:
            found.append(f"loads {address} from another host")
        elif not address.startswith("data:") and not _target(file, address).exists():
            found.append(f"loads {address}, which is not there")
    for address in pages[file].links:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = _target(file, address)
        if not target.is_relative_to(site) or not target.exists():
            found.append(f"link to {address}: there is no such page")
        elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
            found.append(f"link to {address}: the page has no such anchor")
    return [f"{file.relative_to(site)}: {fault}" for fault in found]


def _target(file: Path, address: str) -> Path:
    path = unquote(urlsplit(address).path)
    return (file.parent / path).resolve() if path else file


def main() -> int:
    site = Path(sys.argv[1])
    found = faults(site)
    for fault in found:
        print(fault, file=sys.stderr)
    if not found:
        print(f"{len(list(site.rglob('*.html')))} pages, every link and anchor leads somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
