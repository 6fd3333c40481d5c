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
        "docs/start/five-numbers",
    ],
    "Attach": [
        "docs/attach/vllm",
        "docs/attach/sglang",
        "docs/attach/sidecar",
        "docs/attach/stack",
        "docs/attach/kubernetes",
        "docs/attach/gitops",
        "docs/attach/ray",
        "docs/attach/bare-servers",
    ],
    "Investigate": [
        "docs/investigate/why",
        "docs/investigate/live",
        "docs/investigate/top",
        "docs/investigate/replay",
        "docs/investigate/diff",
        "docs/investigate/oom",
        "docs/investigate/a-night",
    ],
    "Operate": [
        "docs/operate/dashboards",
        "docs/operate/alerts",
        "alerts/runbooks/README",
        "docs/operate/sizing",
        "docs/operate/security",
        "docs/operate/upgrade",
        "docs/operate/uninstall",
        "docs/operate/opentelemetry",
        "docs/operate/troubleshooting",
        "docs/operate/faq",
    ],
    "Plan": [
        "docs/plan/planning",
        "docs/plan/whatif",
        "docs/plan/advice",
        "docs/plan/fleet",
    ],
    "Reference": [
        "docs/reference/commands",
        "docs/reference/environment",
        "docs/reference/metrics",
        "docs/reference/vllm-names",
        "docs/reference/servers",
        "docs/reference/alerts",
        "docs/reference/limits",
        "docs/reference/compatibility",
        "docs/reference/glossary",
        "docs/reference/engine",
        "docs/reference/traces",
        "docs/reference/recording-tables",
        "docs/reference/live-stream",
        "docs/reference/memory-formulas",
        "docs/reference/planned-models",
    ],
    "Internals": [
        "docs/internals/architecture",
        "docs/internals/prefix-cache",
        "docs/internals/preemption",
        "docs/internals/forecast",
        "docs/internals/wire",
        "docs/internals/kv-events",
        "docs/reference/layout",
        "docs/internals/names",
    ],
    "Studies": [
        "docs/studies/tested",
        "docs/studies/benchmarks",
        "docs/studies/sglang",
        "docs/studies/alerts",
        "docs/studies/boards",
        "docs/studies/why",
        "docs/studies/whatif",
        "docs/studies/advice",
        "docs/studies/planning",
        "docs/studies/preemption",
        "docs/studies/sharing",
        "docs/studies/forecast",
        "docs/studies/oom",
        "docs/studies/fleet",
    ],
    "Project": ["CONTRIBUTING", "SECURITY", "CHANGELOG"],
}
RUNBOOKS = "alerts/runbooks/README"
PAGES = [
    "docs/*.md",
    "docs/**/*.md",
    "alerts/runbooks/*.md",
    "alerts/runbooks/**/*.md",
    *(f"{p}.md" for p in NAVIGATION["Project"]),
]


def navigation() -> dict[str, list[str]]:
    """Every page of docs/ once, and those that are listed in the order of their list."""
    listed = {page for pages in NAVIGATION.values() for page in pages} | {ROOT}
    sections = {caption: list(pages) for caption, pages in NAVIGATION.items()}
    for file in sorted((REPOSITORY / "docs").rglob("*.md")):
        page = str(file.relative_to(REPOSITORY).with_suffix(""))
        if page not in listed:
            caption = file.parent.name.capitalize()
            sections[caption if caption in sections else "Internals"].append(page)
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
