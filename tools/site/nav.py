"""The navigation of the site: which page stands under which heading, in this order.

Kept apart from the pages, so that they read well where they are written as well. A page that is not
listed here stands last under the heading of its folder.
"""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = "docs/index"

NAVIGATION = {
    "Start": [
        "docs/start/install",
        "docs/start/vllm",
        "docs/start/other-servers",
        "docs/start/demo",
        "docs/start/five-figures",
    ],
    "Guides": [
        "docs/guides/vllm",
        "docs/guides/sglang",
        "docs/guides/sidecar",
        "docs/guides/fleet",
        "docs/guides/ray",
        "docs/guides/kubernetes",
        "docs/guides/gitops",
        "docs/guides/stack",
        "docs/guides/live",
        "docs/guides/dashboards",
        "docs/guides/alerts",
        "docs/guides/bare-servers",
        "docs/guides/whatif",
        "docs/guides/planning",
        "docs/guides/advice",
        "docs/guides/replay",
        "docs/guides/a-night",
        "docs/guides/why",
        "docs/guides/top",
        "docs/guides/diff",
        "docs/guides/oom",
        "docs/guides/opentelemetry",
        "docs/guides/troubleshooting",
    ],
    "Reference": [
        "docs/reference/commands",
        "docs/reference/environment",
        "docs/reference/metrics",
        "docs/reference/servers",
        "docs/reference/engine",
        "docs/reference/traces",
        "docs/reference/layout",
        "docs/reference/planned-models",
        "alerts/runbooks/README",
    ],
    "Concepts": [
        "docs/concepts/architecture",
        "docs/concepts/prefix-cache",
        "docs/concepts/preemption",
        "docs/concepts/forecast",
        "docs/concepts/wire",
        "docs/concepts/kv-events",
    ],
    "Studies": ["docs/studies/benchmarks", "docs/studies/forecast", "docs/studies/sharing"],
    "Project": [
        "docs/project/tested",
        "docs/project/compatibility",
        "docs/project/names",
        "docs/project/first-hour",
        "CONTRIBUTING",
        "SECURITY",
        "CHANGELOG",
    ],
}
RUNBOOKS = "alerts/runbooks/README"
PAGES = [
    "docs/*.md",
    "docs/**/*.md",
    "alerts/runbooks/*.md",
    "alerts/runbooks/**/*.md",
    *(f"{p}.md" for p in NAVIGATION["Project"][3:]),
]


def navigation() -> dict[str, list[str]]:
    """Every page of docs/ once, and those that are listed in the order of their list."""
    listed = {page for pages in NAVIGATION.values() for page in pages} | {ROOT}
    sections = {caption: list(pages) for caption, pages in NAVIGATION.items()}
    for file in sorted((REPOSITORY / "docs").rglob("*.md")):
        page = str(file.relative_to(REPOSITORY).with_suffix(""))
        if page not in listed:
            caption = file.parent.name.capitalize()
            sections[caption if caption in sections else "Concepts"].append(page)
    return sections


def contents(page: str) -> str:
    """The suffix of a page that puts others beneath it in the navigation."""
    if page == ROOT:
        return "\n".join(_tree(caption, pages) for caption, pages in navigation().items())
    return _tree("", ["alerts/runbooks/*", "alerts/runbooks/bare/*"]) if page == RUNBOOKS else ""


def _tree(caption: str, pages: list[str]) -> str:
    options = f":caption: {caption}\n" if caption else ":glob:\n"
    lines = "\n".join(f"/{page}" for page in pages)
    return f"\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n{options}\n{lines}\n```\n"
