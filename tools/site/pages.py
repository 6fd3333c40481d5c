"""A Sphinx extension: the navigation, and links from pages to files of the repository.

A link to a page leads to that page of the site. A link to another file of the repository leads
to the file at its host. A link to nothing is a warning, and warnings end the build.
"""

from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from nav import ROOT, contents
from pygments.lexers.promql import PromQLLexer
from pygments.token import Name
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.matching import Matcher

REPOSITORY = "https://github.com/kvscope/kvscope"


class PromQL(PromQLLexer):
    """PromQL with the colons that names of recorded series and of vLLM's metrics have."""

    tokens: ClassVar = {
        **PromQLLexer.tokens,
        "root": [(r"[a-zA-Z_]\w*:[\w:]+", Name.Variable), *PromQLLexer.tokens["root"]],
    }


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] += contents(page)


def add_front_door(app: Sphinx, error: Exception | None) -> None:
    """The address of the site itself leads to the start page."""
    if error is None and app.builder.name == "html":
        page = f'<meta http-equiv="refresh" content="0; url={ROOT}.html">'
        Path(app.outdir, "index.html").write_text(f"<!doctype html><title>kvscope</title>{page}\n")


class LinkToRepository(SphinxTransform):
    """Before MyST resolves links: those to files that are no pages lead to the repository."""

    default_priority = 1

    def apply(self, **_: Any) -> None:
        for node in list(self.document.findall(addnodes.download_reference)):
            self._lead(node, node["reftarget"])
        for node in list(self.document.findall(addnodes.pending_xref)):
            if node.get("reftype") in ("myst", "doc"):
                self._lead(node, node["reftarget"])

    def _lead(self, node: nodes.Element, target: str) -> None:
        root = Path(self.app.srcdir)
        path, _, fragment = target.partition("#")
        file = (root / path[1:] if path.startswith("/") else root / self._folder / path).resolve()
        if not file.exists():
            file = root / f"{path}.md"  # MyST names a page by its path from the root
        if not path or not file.exists() or self._is_page(file.relative_to(root)):
            return
        kind = "tree" if file.is_dir() else "blob"
        address = f"{REPOSITORY}/{kind}/main/{file.relative_to(root)}"
        reference = nodes.reference("", "", refuri=address + (f"#{fragment}" if fragment else ""))
        reference += [child.deepcopy() for child in node.children]
        node.replace_self(reference)

    @property
    def _folder(self) -> Path:
        return Path(self.env.docname).parent

    def _is_page(self, file: Path) -> bool:
        return Matcher(self.config.include_patterns)(str(file))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_contents)
    app.connect("build-finished", add_front_door)
    app.add_transform(LinkToRepository)
    app.add_lexer("promql", PromQL)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
