"""Sphinx' configuration of the site. Its pages are Markdown, read where they lie."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from nav import PAGES, ROOT  # noqa: E402

project = "kvscope"
author = "the kvscope authors"
_declared = (HERE.parents[1] / "kvscope_events" / "__init__.py").read_text()
release = re.findall(r'^__version__ = "(.+)"$', _declared, re.MULTILINE)[0]
extensions = ["myst_parser", "pages"]
root_doc = ROOT
include_patterns = PAGES
exclude_patterns = [
    ".*",
    "benchmarks",
    "build",
    "dashboards",
    "deploy",
    "dist",
    "engine",
    "exporter",
]
exclude_patterns += ["kvscope", "kvscope_events", "monitoring", "scripts", "tests", "tools"]
nitpicky = True
smartquotes = False  # it makes a dash of the -- before an option

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
suppress_warnings = ["myst.header"]  # a page may begin its sections at any level

html_theme = "furo"
html_title = f"kvscope {release}"
html_static_path = ["static"]
html_css_files = ["kvscope.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f60c4", "color-brand-content": "#1f60c4"},
    "dark_css_variables": {"color-brand-primary": "#6e9fff", "color-brand-content": "#6e9fff"},
    "navigation_with_keys": True,
}
pygments_style = "default"
pygments_dark_style = "github-dark"
