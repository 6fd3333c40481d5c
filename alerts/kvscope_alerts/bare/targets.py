"""Alerts about servers that Prometheus cannot scrape."""

from kvscope_alerts.bare.pack import Pack
from kvscope_alerts.rule import Group


def target_groups(pack: Pack) -> list[Group]:
    """A server that went down pages; one that never came up may still be loading its model.

    These servers do not answer until their model is loaded, and a new one has no history.
    """
    title = pack.server.title
    up = pack.series("up")
    was_up = f"max_over_time({up}[1d]) == 1"
    alerts = [
        pack.alert(
            "TargetDown",
            severity="critical",
            topic="target",
            expr=f"{up} == 0\nand {was_up}",
            wait="10m",
            summary=f"A {title} server that used to answer does not answer scrapes.",
            description="Prometheus has had no answer from {{ $labels.instance }} (job "
            "{{ $labels.job }}) for ten minutes, although it had one in the last day. Requests to "
            "it probably fail as well.",
            by=("instance",),
        ),
        pack.alert(
            "TargetNeverUp",
            severity="warning",
            topic="target",
            expr=f"{up} == 0\nunless {was_up}",
            wait="30m",
            summary=f"A {title} server has not come up.",
            description="Prometheus has had no answer from {{ $labels.instance }} (job "
            "{{ $labels.job }}) for half an hour, nor at any time in the last day: loading a model "
            "seldom takes that long.",
            by=("instance",),
        ),
        pack.alert(
            "TargetAbsent",
            severity="warning",
            topic="target",
            expr=f"absent({up})",
            wait="5m",
            summary=f"Prometheus has no {title} server to scrape.",
            description=f"No target of a job like {pack.settings.job} has been there for five "
            "minutes: nothing watches these servers, and no other alert about them can fire. If "
            "the job has another name, write rules for it with "
            f"python -m kvscope_alerts.bare {pack.server.word} --job.",
            by=(),
        ),
    ]
    return [Group(name=f"{pack.server.word}-targets", rules=[*alerts])]
