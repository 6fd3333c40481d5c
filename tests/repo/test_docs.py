"""The documents say what is there: the metrics page is current, links lead somewhere."""

import re

import pytest

from kvscope.cli.app import every_command
from kvscope.reference.engine_options import with_table
from kvscope.reference.metrics import metrics_page
from kvscope_engine.server.protocol import NOT_SUPPORTED, ChatCompletionRequest, CompletionRequest
from tests.repo.checkout import ROOT, project_files, relative

PAGES = tuple(path for path in project_files() if path.suffix == ".md")
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
_TARGET = re.compile(r"^([a-z]+):.*##", re.MULTILINE)
_ROOT_FOLDER = r"(?:home|root|work|Users|srv|mnt|opt/(?:wheels|pypi)|tmp/[a-z]/)"
_MACHINE_PATH = re.compile(rf"(?<![\w.~:/}}-])/{_ROOT_FOLDER}/(?!kvscope\b)[\w.]+")


def test_the_table_of_engine_options_is_current() -> None:
    page = (ROOT / "docs" / "reference" / "engine.md").read_text()
    assert page == with_table(page), "docs/reference/engine.md is out of date: run `make docs`"


def test_the_metrics_page_is_current() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert page == metrics_page(), "docs/reference/metrics.md is out of date: run `make docs`"


def test_the_engine_page_has_every_flag_of_serve() -> None:
    params = [p for p in every_command()["engine serve"].params if p.param_type_name == "option"]
    flags = {flag for param in params for flag in (*param.opts, *param.secondary_opts)}
    flags = {flag for flag in flags if flag.startswith("--")}  # not the argument MODEL
    table = (
        (ROOT / "docs" / "reference" / "engine.md")
        .read_text()
        .split("## Flags")[1]
        .split("\n## ")[0]
    )
    first_cells = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)
    named = {flag for cell in first_cells for flag in re.findall(r"--[a-z][a-z-]*", cell)}
    assert named == flags


def test_the_engine_page_has_every_field_of_the_api() -> None:
    page = (
        (ROOT / "docs" / "reference" / "engine.md").read_text().split("## API")[1].split("\n## ")[0]
    )
    table, refused = page.split("Refused by name", 1)
    fields = {*CompletionRequest.__struct_fields__, *ChatCompletionRequest.__struct_fields__}
    assert fields <= set(re.findall(r"`([a-z_]+)`", table))
    refused = refused.split("A\nvalue without effect")[0]
    assert set(re.findall(r"`([a-z_]+)`", refused)) == NOT_SUPPORTED.keys()


def test_the_readme_names_every_command() -> None:
    page = (ROOT / "README.md").read_text()
    named = set(re.findall(r"`kvscope ([a-z]+(?: [a-z-]+)?)`", page))
    assert every_command().keys() - named == {"docs metrics"}


def test_links_lead_to_files(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        with subtests.test(relative(page)):
            for link in _LINK.findall(page.read_text()):
                if "://" not in link and not link.startswith("mailto:"):
                    assert (page.parent / link).exists(), f"{relative(page)}: {link}"


def test_make_targets_in_the_documents_exist() -> None:
    targets = set(_TARGET.findall((ROOT / "Makefile").read_text()))
    for page in PAGES:
        named = set(re.findall(r"\bmake ([a-z]+)`", page.read_text()))
        assert named <= targets, f"{relative(page)}: {named - targets}"


def test_every_benchmark_is_on_its_page_and_in_the_makefile() -> None:
    folder = ROOT / "benchmarks"
    runnable = {
        path.stem
        for path in folder.glob("*.py")
        if f"-m benchmarks.{path.stem}" in path.read_text()
    }
    programs = {path.parent.name for path in folder.glob("*/__main__.py")}
    for page in (ROOT / "docs" / "studies" / "benchmarks.md", ROOT / "Makefile"):
        named = set(re.findall(r"-m benchmarks\.(\w+)", page.read_text()))
        assert named - programs == runnable


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
