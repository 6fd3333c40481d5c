"""An alert of a pack: its runbook is a section of one page, and not every pack has a dashboard."""

from dataclasses import dataclass
from typing import Any

from kvscope_alerts.rule import Alert, Places
from kvscope_alerts.timing import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class PackAlert(Alert):
    """An alert for servers without kvscope."""

    pack: str
    """The runbook page below runbooks/bare/; the section is named after the alert."""
    drawn: bool
    """Whether there is a dashboard for such servers."""

    def mapping(self, timing: Timing, places: Places) -> dict[str, object]:
        whole: dict[str, Any] = Alert.mapping(self, timing, places)
        annotations = whole["annotations"]
        section = f"{self.pack}.md#{self.name.lower()}"
        annotations["runbook_url"] = f"{places.runbooks}/bare/{section}"
        if not self.drawn:
            del annotations["dashboard_url"]
        return whole
