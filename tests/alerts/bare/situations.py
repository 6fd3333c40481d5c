"""Half an hour of calm, an hour of trouble, an hour of calm: the series of each alert, and what it
says, for vLLM and for SGLang."""

from dataclasses import dataclass, field

from kvscope_alerts.bare.server import VLLM, Server

Series = dict[str, str]
"""Selector to values, in promtool's notation."""


def gauge(calm: float, trouble: float) -> str:
    return f"{calm}x59 {trouble}x119 {calm}x119"


def counter(calm: float, trouble: float) -> str:
    """Growth between two scrapes, half a minute apart."""
    first, second = 59 * calm + trouble, 59 * calm + 120 * trouble + calm
    return f"0+{calm}x59 {first}+{trouble}x119 {second}+{calm}x119"


def labels(**pairs: str) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in pairs.items()) + "}"


@dataclass(frozen=True)
class Words:
    """The labels of one kind of server."""

    server: Server

    @property
    def target(self) -> dict[str, str]:
        return {"instance": "a:8000", "job": self.server.word}

    @property
    def identity(self) -> dict[str, str]:
        """Labels of a series of the front end."""
        own = {"engine": "0"} if self.server is VLLM else {"engine_type": "unified"}
        return {**self.target, "model_name": "demo", **own}

    def engine(self, name: str, values: str, instance: str = "a:8000", **more: str) -> Series:
        """A series of a scheduler family; in SGLang two ranks repeat it."""
        base = {**self.identity, "instance": instance, **more}
        if self.server is VLLM:
            return {name + labels(**base): values}
        return {name + labels(**base, tp_rank=rank): values for rank in "01"}

    def front(self, name: str, values: str, instance: str = "a:8000", **more: str) -> Series:
        """A series of a front-end family."""
        base = {**self.identity, "instance": instance}
        if self.server is not VLLM and not name.startswith(self.server.gap):
            base["is_streaming"] = "true"
        return {name + labels(**base, **more): values}


@dataclass(frozen=True)
class Situation:
    """An alert from the first scrape to the last."""

    alert: str
    series: Series
    said: str
    """The description."""
    about: dict[str, str]
    """Labels of the alert's series."""
    pending: str
    firing: str
    resolved: str
    only: dict[str, str] = field(default_factory=dict)
    """Labels of the rule, for rules that share a name."""


def targets(words: Words) -> list[Situation]:
    up = "up" + labels(**words.target)
    other = {"up" + labels(job=words.server.word, instance="well:8000"): "1x300"}
    word, at = words.server.word, words.target
    return [
        Situation(
            "TargetDown",
            {up: gauge(1, 0), **other},
            f"Prometheus has had no answer from a:8000 (job {word}) for ten minutes, although it "
            "had one in the last day. Requests to it probably fail as well.",
            at,
            *("35m", "50m", "91m"),
        ),
        Situation(
            "TargetNeverUp",
            {up: "_x59 0x119 1x119", **other},
            f"Prometheus has had no answer from a:8000 (job {word}) for half an hour, nor at any "
            "time in the last day: loading a model seldom takes that long.",
            at,
            *("50m", "70m", "91m"),
        ),
        Situation(
            "TargetAbsent",
            {up: "1x59 stale _x118 1x119"},
            f"No target of a job like {word} has been there for five minutes: nothing watches "
            "these servers, and no other alert about them can fire. If the job has another name, "
            f"write rules for it with python -m kvscope_alerts.bare {word} --job.",
            {},
            *("33m", "50m", "91m"),
        ),
    ]


def standing(words: Words) -> list[Situation]:
    """Engines that compute nothing, or admit no requests."""
    server = words.server
    each = words.engine
    moving = {"mode": "decode"} if server.written_only else {}
    subject = "demo on a:8000" + (" (engine 0)" if server is VLLM else "")
    idle = {
        **each(server.running, "0x300", "idle:8000"),
        **each(server.waiting, "0x300", "idle:8000"),
        **each(server.written, "5x300", "idle:8000", **moving),
        **(each(server.tokens[0], "5x300", "idle:8000") if server is VLLM else {}),
    }
    stalled = {
        **each(server.running, "3x300"),
        **each(server.waiting, "0x300"),
        **each(server.written, counter(100, 0), **moving),
        **(each(server.tokens[0], counter(100, 0)) if server is VLLM else {}),
        **idle,
    }
    stuck = {
        **each(server.waiting, gauge(0, 5)),
        **each(server.written, counter(100, 100), **moving),
        **words.front(f"{server.first_token}_count", counter(10, 0)),
        **each(server.waiting, "9x300", "busy:8000"),
        **each(server.written, counter(100, 100), "busy:8000", **moving),
        **words.front(f"{server.first_token}_count", counter(10, 1), "busy:8000"),
    }
    return [
        Situation(
            "EngineStalled",
            stalled,
            f"{subject} has had requests for five minutes and has neither read a prompt nor "
            "written a token: its requests hang. /health may still say 200.",
            words.identity,
            *("33m", "40m", "95m"),
        ),
        Situation(
            "QueueStuck",
            stuck,
            f"5 or more requests have waited in the queue of {subject} for ten minutes, and none "
            "has had its first token, though running ones go on.",
            words.identity,
            *("37m", "45m", "95m"),
        ),
    ]


def failing(words: Words) -> list[Situation]:
    server = words.server
    well, bad = ("2xx", "5xx") if server is VLLM else ("200", "500")
    place, code = ("handler", "status") if server is VLLM else ("endpoint", "status_code")

    def answers(status: str, values: str, instance: str = "a:8000") -> Series:
        more = {place: "/v1/completions", "method": "POST", code: status}
        return {server.http + labels(**{**words.target, "instance": instance}, **more): values}

    said = (
        "a:8000 answered 50% of the requests of the last ten minutes with a status of 500 or above."
    )
    found = [
        Situation(
            "ServerFails",
            {
                **answers(well, counter(10, 5)),
                **answers(bad, counter(0, 5)),
                **answers(well, counter(100, 100), "well:8000"),
                **answers(bad, counter(0, 5), "well:8000"),
            },
            said,
            words.target,
            *("33m", "85m", "110m"),
            {"sign": "http"},
        )
    ]
    if server is not VLLM:
        return found
    ends = {"stop": counter(10, 5), "error": counter(0, 5), "abort": counter(50, 50)}
    return [
        *found,
        Situation(
            "ServerFails",
            {
                name: values
                for reason, values in ends.items()
                for name, values in words.front(
                    server.ended, values, finished_reason=reason
                ).items()
            },
            "50% of the requests that demo on a:8000 (engine 0) ended in the last ten minutes "
            "ended with an error; those that clients gave up do not count.",
            words.identity,
            *("33m", "85m", "110m"),
            {"sign": "engine"},
        ),
    ]


def slow(words: Words) -> list[Situation]:
    server = words.server
    without = {k: v for k, v in words.identity.items() if k != "engine"}
    found = []
    for sign, family, count, calm, trouble, text in (
        (
            "first-token",
            server.first_token,
            10,
            5.0,
            50.0,
            "5s to the first token on average, more than 3",
        ),
        (
            "inter-token",
            server.gap,
            1000,
            30.0,
            60.0,
            "60ms to the next token on average, more than 1.5",
        ),
    ):
        series: Series = {}
        for instance, sums in (
            ("a:8000", counter(calm, trouble)),
            ("b:8000", counter(calm, calm)),
            ("c:8000", counter(calm, calm)),
        ):
            series |= words.front(f"{family}_sum", sums, instance)
            series |= words.front(f"{family}_count", counter(count, count), instance)
        found.append(
            Situation(
                "ServerSlow",
                series,
                f"a:8000 takes {text} times the median of the servers of demo.",
                without,
                *("40m", "80m", "120m"),
                {"sign": sign},
            )
        )
    return found


def cache(words: Words) -> list[Situation]:
    server, each = words.server, words.engine
    subject = "demo on a:8000" + (" (engine 0)" if server is VLLM else "")
    without = {k: v for k, v in words.identity.items() if k != "engine"}
    reason = {"finished_reason": "stop"} if server is VLLM else {}
    hits = words.identity | ({} if server is VLLM else {"cache_source": "device"})
    return [
        Situation(
            "KvCacheFull",
            {
                **each(server.usage, gauge(0.5, 1)),
                **each(server.waiting, gauge(0, 5)),
                **each(server.usage, "1x300", "full:8000"),
                **each(server.waiting, "0x300", "full:8000"),
            },
            f"Running requests hold 100% of the KV cache of {subject}, and others have been "
            "waiting for a quarter of an hour.",
            words.identity,
            *("40m", "60m", "120m"),
            {"sign": "full"},
        ),
        Situation(
            "KvCacheFull",
            {
                **each(server.preempted, counter(0, 5)),
                **words.front(server.ended, counter(10, 10), **reason),
                **each(server.preempted, counter(1, 1), "calm:8000"),
                **words.front(server.ended, counter(100, 100), "calm:8000", **reason),
            },
            f"About 100 {server.preemptions} on a:8000 (demo) in ten minutes, more than one for "
            "ten requests that ended: each is computed a second time.",
            without,
            *("36m", "60m", "120m"),
            {"sign": "preempts"},
        ),
        Situation(
            "PrefixHitRateCollapsed",
            {
                server.hits + labels(**hits): counter(800, 0),
                **words.front(server.queries, counter(1000, 1000)),
                server.hits
                + labels(**{**hits, "instance": "restarted:8000"}): "0+800x59 0x23 0+800x215",
                **words.front(server.queries, "0+1000x59 0+1000x239", "restarted:8000"),
            },
            f"{subject} found 0% of the prompt tokens in its prefix cache in the last ten "
            "minutes, less than half of its ratio over the six hours before.",
            words.identity,
            *("38m", "55m", "120m"),
        ),
    ]


def situations(server: Server) -> list[Situation]:
    words = Words(server)
    return [
        situation for kind in (targets, standing, failing, slow, cache) for situation in kind(words)
    ]
