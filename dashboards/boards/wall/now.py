"""Wall display, first row: how is it now?"""

from dashboards.boards.wall import figures
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.links import LEVELS, OVERVIEW, to_dashboard
from dashboards.kit.panels import COUNT, RATIO, SECONDS, Q, numbers

WORDS_PER_SECOND = "suffix: tokens/s"


def row() -> Row:
    overview = to_dashboard("What is wrong?", OVERVIEW)
    return Row(
        100,
        "Is the service well?  Green: yes. Orange: slower than usual. Red: no",
        [
            numbers(
                101,
                "Servers up",
                "Engines that take requests, and those that do not: they load their model, are "
                "told to take none, or do not answer. The overview says which.",
                COUNT,
                Q(f"{figures.ready()} or vector(0)", "up"),
                Q(figures.not_up(), "not up"),
                steps=limits.AT_LEAST_ONE,
                judged={"not up": limits.SOME_ARE_WORTH_A_LOOK},
                span=5,
                height=7,
                link=overview,
            ),
            numbers(
                102,
                "An answer begins after",
                "From sending a request to its first token, for half of the people and for 19 of "
                "20. Red: many wait; see the queue at the right.",
                SECONDS,
                Q(figures.first_token(0.5), "half"),
                Q(figures.first_token(0.95), "19 of 20"),
                steps=limits.FIRST_TOKEN_SECONDS,
                span=5,
                height=7,
                decimals=1,
                when_absent="idle",
                link=overview,
            ),
            numbers(
                103,
                "Speed of writing",
                "Tokens a second that one person sees while an answer is written; a token is "
                "about three quarters of a word. Ten are read as fast as they come.",
                WORDS_PER_SECOND,
                Q(figures.speed(), ""),
                steps=limits.TOKENS_A_SECOND,
                span=4,
                height=7,
                decimals=0,
                when_absent="idle",
                link=overview,
            ),
            numbers(
                104,
                "Success",
                "Share of the requests that were answered: neither failed nor refused because the "
                "service was full. Red: try again later, and tell who runs it.",
                RATIO,
                Q(figures.succeeded(), ""),
                steps=limits.SUCCESS_SHARE,
                span=5,
                height=7,
                when_absent="idle",
                link=to_dashboard("Service levels", LEVELS),
            ),
            numbers(
                105,
                "The queue",
                "Requests that wait for their turn, and how long those whose turn has come had "
                "waited. It grows and does not shrink: more is asked for than can be served.",
                COUNT,
                Q(figures.waiting(), "waiting"),
                Q(figures.queue_seconds(), "waited"),
                steps=limits.UNJUDGED,
                judged={"waited": limits.QUEUE_SECONDS},
                units={"waited": SECONDS},
                when_absent="idle",
                span=5,
                height=7,
                link=overview,
            ),
        ],
    )
