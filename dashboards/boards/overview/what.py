"""Overview: which alerts fire, and which engine is it?"""

from grafana_foundation_sdk.models import units

from dashboards.boards.overview import engines
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.links import RUNBOOK_OF_ROW
from dashboards.kit.panels import COUNT, Q
from dashboards.kit.queries import ALERT, firing_by_rank
from dashboards.kit.tables import Column, rows

_FIRING = f'ALERTS{{alertstate="firing",{ALERT}}}'
_SINCE = f"{_FIRING} * ignoring (alertstate) ALERTS_FOR_STATE"


def row() -> Row:
    return Row(
        200,
        "What is wrong, and where?",
        [
            engines.table(),
            rows(
                201,
                "Alerts firing, and since when",
                "One line for each alert that fires now: the most severe first, then the one that "
                "began first, which is closest to the cause. Click its name for the runbook: what "
                "it means, how to find the cause, what to do. Servers and models that it is about "
                "are counted; the table of engines and the alert itself name them.",
                Q(firing_by_rank("max by (alertname)"), "rank"),
                Q(f"1000 * min by (alertname) ({_SINCE})", "since"),
                Q(f"count by (alertname) ({_FIRING})", "times"),
                Q(f"count by (alertname) (count by (alertname, instance) ({_FIRING}))", "servers"),
                columns={
                    "rank": Column("Severity", meanings=limits.SEVERITIES, width=85),
                    "alertname": Column("Alert", link=RUNBOOK_OF_ROW, least=120),
                    "times": Column("Firing", COUNT, width=70),
                    "servers": Column("Servers", COUNT, width=80),
                    "since": Column("Since", unit=units.DateTimeFromNow, width=140),
                },
                height=4,
                when_absent="No alert fires.",
                worst_first=("Severity",),
                least_first=("Since",),
            ),
        ],
    )
