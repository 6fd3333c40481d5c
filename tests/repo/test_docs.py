"""The documents say what is there: the metrics page is current, links lead somewhere."""

import re
from pathlib import Path

import pytest

from exporter.document import markdown
from tests.repo.checkout import ROOT, project_files, relative

PAGES = tuple(path for path in project_files() if path.suffix == ".md")
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
_TARGET = re.compile(r"^([a-z]+):.*##", re.MULTILINE)
_ROOT_FOLDER = r"(?:home|root|work|Users|srv|mnt|opt/(?:wheels|pypi)|tmp/[a-z]/)"
_MACHINE_PATH = re.compile(rf"(?<![\w.~:/}}-])/{_ROOT_FOLDER}/(?!kvscope\b)[\w.]+")


def test_the_metrics_page_is_current() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert page == markdown(), "docs/metrics.md is out of date: run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_to_files(page: Path) -> None:
    for link in _LINK.findall(page.read_text()):
        if "://" not in link and not link.startswith("mailto:"):
            assert (page.parent / link).exists(), f"{relative(page)}: {link}"


def test_make_targets_in_the_documents_exist() -> None:
    targets = set(_TARGET.findall((ROOT / "Makefile").read_text()))
    for page in PAGES:
        named = set(re.findall(r"\bmake ([a-z]+)`", page.read_text()))
        assert named <= targets, f"{relative(page)}: {named - targets}"


def test_no_file_names_a_path_of_one_machine() -> None:
    found = []
    for path in project_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for match in _MACHINE_PATH.finditer(text):
            found.append(f"{relative(path)}: {match[0]}")
    assert not found, "\n".join(found)
