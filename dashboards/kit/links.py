"""Links of panels: to the other dashboards with the same variables and time, and to runbooks."""

from typing import NamedTuple

from grafana_foundation_sdk.builders import dashboard as db
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as dm

from kvscope_monitoring.addresses import RUNBOOKS

SOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")

UIDS = OVERVIEW, KV_POOL, PREFIX_CACHE, MEMORY, LEVELS, VLLM = (
    "kvscope-overview",
    "kvscope-kv-pool",
    "kvscope-prefix-cache",
    "kvscope-memory",
    "kvscope-service-levels",
    "kvscope-vllm",
)
"""Fixed uids, since bookmarks, alerts and links depend on them: each names its board's package."""

_EVERYTHING = "${__url_time_range}&${__all_variables}"


class Link(NamedTuple):
    """A link of a panel or a table's cell."""

    title: str
    url: str

    def builder(self) -> db.DashboardLink:
        return db.DashboardLink(self.title).type(dm.DashboardLinkType.LINK).url(self.url)

    def model(self) -> dict[str, object]:
        return {"title": self.title, "url": self.url}


def to_dashboard(title: str, uid: str, panel: int | None = None) -> Link:
    """A link that keeps the variables. panel: shows only that panel, in full size."""
    view = "" if panel is None else f"&viewPanel={panel}"
    return Link(title, f"/d/{uid}?{_EVERYTHING}{view}")


def to_engine_of_row(title: str, uid: str) -> Link:
    """A link from a row of a table that selects only the engine of that row."""
    names = {"model": "model_name", "instance": "instance", "engine": "engine"}
    values = "&".join(
        f"var-{variable}=${{__data.fields.{label}}}" for variable, label in names.items()
    )
    return Link(title, f"/d/{uid}?${{__url_time_range}}&var-datasource=${{datasource}}&{values}")


WHY_OF_ROW = Link("Why?", "http://${__value.raw}/api/why")
"""A link from a cell that holds the address of a kvscope, whose answer begins with a sentence."""
RUNBOOK_OF_ROW = Link("Runbook", f"{RUNBOOKS}/${{__value.raw}}.md")
"""A link from a cell that holds an alert's name."""
RUNBOOK_OF_XIDS = Link("Runbook", f"{RUNBOOKS}/KvscopeGpuFailed.md")
