"""Families of the adviser's proposals; none while it proposes nothing."""

from collections.abc import Iterator

from prometheus_client.core import Metric as Family

from exporter.answers.advice import AdviceAnswer
from exporter.collect.families import Families


def collect_advice(families: Families, advice: AdviceAnswer) -> Iterator[Family]:
    made = advice.proposals
    if made:
        yield families.column("kvscope_advice_value", {p.option: p.proposed for p in made})
        yield families.column(
            "kvscope_advice_saved_tokens_per_second",
            {p.option: p.gain.saved_tokens_per_second for p in made},
        )
