"""Service levels, first row: is the service healthy now? Readable from across a room."""

from dashboards.boards.service_levels import figures
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.levels import judged_by_burn, used, verdict
from dashboards.kit.links import OVERVIEW, to_dashboard
from dashboards.kit.panels import COUNT, RATIO, SECONDS, Q, numbers
from dashboards.kit.queries import TILE_WINDOW, recent, worst

WORDS_PER_SECOND = "suffix: tokens/s"


def row() -> Row:
    overview = to_dashboard("What is wrong?", OVERVIEW)
    failing = worst(used(TILE_WINDOW)["answered"])
    oldest = figures.oldest_wait()
    return Row(
        100,
        "Is the service healthy?  Green: yes. Orange: slower than usual. Red: no",
        [
            numbers(
                106,
                "The service",
                "Each model in words, over five minutes; of many, the worst four. slow: "
                "more requests wait for their first token than the promise allows, at the rate "
                "that pages. fails: too many are not answered. not served: none of its servers "
                "takes requests.",
                COUNT,
                Q(figures.verdict(), "{{model_name}}"),
                steps=limits.UNJUDGED,
                words=limits.SERVICE_VERDICTS,
                span=24,
                height=4,
                when_absent="no engine",
                link=overview,
            ),
            numbers(
                101,
                "Servers up",
                "Engines that take requests, and those that do not: they load their model, are "
                "switched off for requests, or do not answer. The overview says which.",
                COUNT,
                Q(f"{figures.ready()} or vector(0)", "up"),
                Q(figures.not_up(), "not up"),
                steps=limits.AT_LEAST_ONE,
                judged={"not up": limits.SOME_ARE_WORTH_A_LOOK},
                span=4,
                height=6,
                link=overview,
            ),
            numbers(
                102,
                "Time to first word",
                "From sending a request to its first token, over five minutes. slow: longer than "
                "promised, for the model where it happens most. Red: many wait; see the queue on "
                "the right.",
                SECONDS,
                Q(recent(figures.first_token(0.5)), "typical"),
                Q(recent(figures.first_token(0.95)), "slowest 5 %"),
                *verdict("first token", "slow"),
                steps=limits.UNJUDGED,
                units={"slow": RATIO},
                span=6,
                height=6,
                decimals=1,
                when_absent="idle",
            ),
            numbers(
                103,
                "Speed of writing",
                "Tokens a second that one person sees while an answer is written; a token is "
                "about three quarters of a word. Ten are read as fast as they come.",
                WORDS_PER_SECOND,
                Q(recent(figures.speed()), ""),
                steps=limits.TOKENS_A_SECOND,
                span=4,
                height=6,
                decimals=0,
                when_absent="idle",
                link=overview,
            ),
            numbers(
                104,
                "Success",
                "Share of the requests that were answered, over five minutes: neither failed nor "
                "refused because the service was full; coloured by the model that is furthest "
                "from its promise. Red: try again later, and call the operator.",
                RATIO,
                *judged_by_burn(figures.succeeded(window=TILE_WINDOW), failing, ""),
                steps=limits.UNJUDGED,
                span=5,
                height=6,
                when_absent="idle",
            ),
            numbers(
                105,
                "The queue",
                "Requests waiting for their turn, and how long the oldest of them has waited, in "
                "five minutes. Orange: longer than a first token may take. If it keeps growing, "
                "demand exceeds what can be served.",
                COUNT,
                Q(figures.waiting(), "waiting"),
                Q(f"{oldest} <= ${{ttft:text}}", "oldest waited", limits.NEVER_A_FAULT),
                Q(f"{oldest} > ${{ttft:text}}", "oldest waited", limits.ALWAYS_WORTH_A_LOOK),
                steps=limits.UNJUDGED,
                units={"oldest waited": SECONDS},
                when_absent="idle",
                span=5,
                height=6,
                link=overview,
            ),
        ],
    )
