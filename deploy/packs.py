"""The rules for servers without kvscope as components of kustomize, one for each kind of server."""

from collections.abc import Mapping

from deploy.monitoring import prometheus_rule
from kvscope_alerts.bare.limits import Settings
from kvscope_alerts.bare.packs import groups
from kvscope_alerts.bare.server import SERVERS
from kvscope_alerts.rule import Places
from kvscope_alerts.timing import Timing


def packs(
    places: Places, release: str, jobs: Mapping[str, str]
) -> dict[str, dict[str, dict[str, object]]]:
    """Objects by component and file name. jobs: regular expression of the scrape jobs by a server's
    word, if it is not the word itself."""
    return {
        f"{server.word}-rules": {
            "prometheusrule.yaml": prometheus_rule(
                release,
                [
                    group.mapping(Timing(), places)
                    for group in groups(server, Settings(job=jobs.get(server.word, server.word)))
                ],
                name=f"kvscope-{server.word}",
            )
        }
        for server in SERVERS
    }
