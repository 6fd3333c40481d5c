"""Error budgets: a model that is bad from its first request on, for five hours, and a good one."""

from kvscope_alerts.bare.limits import SECONDS
from kvscope_alerts.bare.server import VLLM, Server
from kvscope_alerts.objectives import PROMISED
from tests.alerts.bare.situations import Series, Situation, Words, labels

BAD, GOOD = "_x120 0+{n}x299 {m}+0x389", "_x120 0x299 0+{n}x389"
"""A sample each minute: growth in trouble alone, and after it alone."""


def _late(words: Words, family: str, per_minute: int) -> Series:
    series: Series = {}
    limit = f"{SECONDS[family]:g}"
    base = {k: v for k, v in words.identity.items() if k not in ("model_name", "instance")}
    for model, timely in (("demo", GOOD), ("well", "0+{n}x809")):
        identity = {**base, "model_name": model, "instance": f"{model}:8000"}
        every = "_x120 0+{n}x689" if model == "demo" else "0+{n}x809"
        series[f"{family}_count{labels(**identity)}"] = every.format(n=per_minute)
        series[f"{family}_bucket{labels(**identity, le=limit)}"] = timely.format(n=per_minute)
    return series


def _errors(words: Words) -> tuple[Series, dict[str, str], str]:
    server = words.server
    bad = BAD.format(n=10, m=2990)
    good = GOOD.format(n=10)
    if server is VLLM:
        series = words.front(server.ended, bad, finished_reason="error")
        series |= words.front(server.ended, good, finished_reason="stop")
        series |= words.front(server.ended, "0+9x809", finished_reason="abort")
        refused = labels(**words.target, model_name="demo", reason="max_num_queued_reqs")
        series[f"vllm:admission_rejections_total{refused}"] = bad
        return (
            series,
            {"model_name": "demo"},
            "of the requests to demo failed or were refused by a limit of the queue",
        )
    answered = {"endpoint": "/generate", "method": "POST"}
    series = {
        server.http + labels(**words.target, **answered, status_code=code): values
        for code, values in (("503", bad), ("200", good))
    }
    who = {"job": "sglang"}
    return series, who, "of the requests to job sglang were answered with a status of 500 or above"


def budgets(server: Server) -> list[Situation]:
    words = Words(server)
    first, gap = server.first_token, server.gap
    model = {"model_name": "demo"}
    late = f"of the requests to demo had no first token within {SECONDS[first]:g} s"
    long = f"of the tokens of demo came more than {SECONDS[gap]:g} s after the one before"
    hours, days = "in the last hour or in the last six", "in the last day or in the last three"
    promised = {
        f'{PROMISED}{{model_name="demo",objective="{flag}"}}': "1x809" for flag in ("ttft", "itl")
    }
    return [
        Situation(
            name if pages else "BudgetBurnsSlowly",
            series | (promised if pages else {}),
            f"100% {said}, {windows}; {budget}% is the budget.",
            who,
            *(pending, "400m", "805m"),
            {} if pages else {"objective": flag, "sign": sign},
        )
        for name, flag, budget, (series, who, said) in (
            ("TtftBudgetBurns", "ttft", 1, (_late(words, first, 10), model, late)),
            ("ItlBudgetBurns", "itl", 1, (_late(words, gap, 600), model, long)),
            ("ErrorBudgetBurns", "errors", 0.1, _errors(words)),
        )
        for pages, sign, pending, windows in (
            (True, "", "125m", hours),
            (False, "fast", "125m", hours),
            (False, "slowly", "150m", days),
        )
        if pages or sign == "slowly" or flag != "errors"
    ]
