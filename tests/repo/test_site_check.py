"""The site has every page once, and its check finds what a reader would stumble over."""

from pathlib import Path

import pytest

from tests.repo.checkout import ROOT
from tools.site.check import faults
from tools.site.nav import navigation


def site(folder: Path, body: str) -> Path:
    (folder / "sub").mkdir()
    (folder / "index.html").write_text(f"<h1 id='top'>x</h1>{body}")
    (folder / "sub" / "page.html").write_text("<h2 id='part'>x</h2><a href='../index.html'>x</a>")
    (folder / "own.js").write_text("")
    return folder


@pytest.mark.parametrize(
    "body",
    [
        "<a href='sub/page.html#part'>x</a>",
        "<a href='#top'>x</a><a href='#'>x</a>",
        "<a href='https://example.com/gone'>x</a>",
        "<script src='own.js'></script>",
    ],
)
def test_what_leads_somewhere_is_no_fault(tmp_path: Path, body: str) -> None:
    assert faults(site(tmp_path, body)) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("<a href='sub/gone.html'>x</a>", "there is no such page"),
        ("<a href='sub/page.html#gone'>x</a>", "the page has no such anchor"),
        ("<a href='#gone'>x</a>", "the page has no such anchor"),
        ("<a href='../outside.html'>x</a>", "there is no such page"),
        ("<script src='https://cdn.example/x.js'></script>", "from another host"),
        ("<link rel='stylesheet' href='//fonts.example/x.css'>", "from another host"),
        ("<img src='gone.png'>", "which is not there"),
    ],
)
def test_what_leads_nowhere_is_a_fault(tmp_path: Path, body: str, fault: str) -> None:
    assert [fault in found for found in faults(site(tmp_path, body))] == [True]


def test_a_font_of_another_host_is_a_fault(tmp_path: Path) -> None:
    folder = site(tmp_path, "")
    (folder / "x.css").write_text("@font-face { src: url('https://fonts.example/x.woff2') }")
    assert len(faults(folder)) == 1


def test_the_navigation_has_every_page_once_and_no_other() -> None:
    listed = [page for pages in navigation().values() for page in pages]
    assert len(listed) == len(set(listed))
    assert [page for page in listed if not (ROOT / f"{page}.md").exists()] == []
    written = {
        str(file.relative_to(ROOT).with_suffix("")) for file in (ROOT / "docs").rglob("*.md")
    }
    assert written - set(listed) == {"docs/index"}
