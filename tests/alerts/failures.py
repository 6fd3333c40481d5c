"""Failures of a fleet, as the series that Prometheus would have of it."""

from tests.alerts.timeline import Situation

CALM = 62.0
"""Minutes before the failure: what is compared with an hour ago has one."""
END = 112
LATE_SHARE = 0.5


class Replica:
    """One server with one engine of one model and one GPU, in a situation. place: labels of its
    target."""

    def __init__(self, situation: Situation, name: str, model: str = "llama", **place: str) -> None:
        self.situation = situation
        self.server = {"instance": f"{name}:8000", **place}
        self.engine = {**self.server, "model_name": model, "engine": "0"}
        self.card = {**self.server, "gpu": "0", "uuid": f"GPU-{situation.name}-{name}"}

    def serves(self, since: float = 0, until: float = END + 1, tokens: bool = True) -> None:
        """Is heard, and answers 60 requests a minute in that time, as it should. tokens: whether
        their latencies matter, which are most of the series."""
        here = (since, None), (until, 1), (END + 1, None)
        self.situation.add("kvscope_source_up", {**self.engine, "source": "inprocess"}, *here)
        self.situation.add("kvscope_gpu_up", self.card, *here)
        self.requests(60, since=since, until=until)
        if tokens:
            self.tokens(60, since=since, until=until)

    def answers(self, *phases: tuple[float, float | None]) -> None:
        """Scrapes."""
        self.situation.add("up", self.server, *phases)

    def requests(
        self,
        each_minute: float,
        failed_after: float = END + 1,
        since: float = 0,
        until: float = END + 1,
    ) -> None:
        """Ended requests, which fail from a minute on."""
        ended = "kvscope_requests_finished_total"
        for reason, before, after in (("stop", each_minute, 0), ("error", 0, each_minute)):
            self.situation.count(
                ended,
                {**self.engine, "reason": reason},
                *((since, None), (min(failed_after, until), before), (until, after)),
                (END + 1, None),
            )

    def tokens(
        self,
        each_minute: float,
        late_after: float = END + 1,
        since: float = 0,
        until: float = END + 1,
    ) -> None:
        """First tokens and others; from a minute on, half of them late."""
        for family, many, bound, seconds in (
            ("kvscope_time_to_first_token_seconds", each_minute, "2.5", 0.5),
            ("kvscope_inter_token_latency_seconds", 50 * each_minute, "0.5", 0.03),
        ):
            late = min(late_after, until)
            for suffix, labels, before, after in (
                ("_count", {}, many, many),
                ("_sum", {}, many * seconds, many * seconds * 10),
                ("_bucket", {"le": bound}, many, many * LATE_SHARE),
            ):
                phases = (since, None), (late, before), (until, after), (END + 1, None)
                self.situation.count(family + suffix, {**self.engine, **labels}, *phases)


def switch() -> Situation:
    """Fifty servers with two models behind one switch, which fails."""
    situation = Situation("switch", END)
    for number in range(50):
        replica = Replica(situation, f"s{number}", ("llama", "qwen")[number % 2])
        replica.answers((CALM, 1), (END + 1, 0))
        replica.serves(until=CALM, tokens=False)
    return situation


def stuck_rollout() -> Situation:
    """Half of ten pods is replaced by ones that do not start; the others serve on."""
    situation = Situation("rollout", END)
    for number in range(10):
        old = Replica(situation, f"old{number}")
        until = CALM if number < 5 else END + 1
        old.answers((until, 1), (END + 1, None))
        old.serves(until=until)
        if number < 5:
            Replica(situation, f"new{number}").answers((CALM, None), (END + 1, 0))
    return situation


def crashing_rollout() -> Situation:
    """A version that crashes after some minutes of work, on five of ten servers."""
    situation = Situation("crash", END)
    for number in range(10):
        replica = Replica(situation, f"s{number}")
        replica.serves()
        if number < 5:
            phases = [
                (CALM + 6 * turn + part, up) for turn in range(9) for part, up in ((0, 1), (2, 0))
            ]
            replica.answers(*phases, (END + 1, 1))
            lives = [
                (CALM + 6 * turn + part, start)
                for turn in range(9)
                for part, start in ((0, 100 * (turn + 1)), (2, None))
            ]
            began = "process_start_time_seconds"
            situation.add(began, replica.server, *lives, (END + 1, 1000))
        else:
            replica.answers((END + 1, 1))
    return situation


def sick_card() -> Situation:
    """A card of one of ten falls off the bus: XID, lost, recovery asked for, its engine hangs."""
    situation = Situation("card", END)
    for number in range(10):
        replica = Replica(situation, f"s{number}")
        replica.answers((END + 1, 1))
        hangs = CALM if number == 0 else END + 1
        replica.serves(until=hangs)
        for state, before, after in (("running", 8, 8), ("waiting", 0, 30)):
            labels = {**replica.engine, "state": state}
            situation.add("kvscope_requests", labels, (hangs, before), (END + 1, after))
        last = "kvscope_last_step_age_seconds"
        situation.count(last, replica.engine, (hangs, 0), (END + 1, 60))
    sick = Replica(situation, "s0")
    sick.situation.add("kvscope_gpu_up", sick.card, (CALM, 1), (END + 1, 0))
    source = {**sick.engine, "source": "inprocess"}
    situation.add("kvscope_source_up", source, (END + 1, 1))
    xid = {**sick.card, "xid": "79"}
    family = "kvscope_gpu_xid_last_age_seconds"
    situation.count(family, xid, (CALM, None), (END + 1, 60))
    situation.add("kvscope_gpu_recovery_action", sick.card, (CALM + 1, 0), (END + 1, 2))
    hot = {**sick.card, "reason": "hw_thermal"}
    situation.add("kvscope_gpu_clocks_event_active", hot, (CALM - 1, 0), (END + 1, 1))
    ecc = {**sick.card, "type": "uncorrected"}
    situation.add("kvscope_gpu_ecc_errors_total", ecc, (CALM, 0), (END + 1, 3))
    return situation


def full_pools() -> Situation:
    """Twice the usual load: the pools of all ten replicas are full, and requests preempt."""
    situation = Situation("pool", END)
    for number in range(10):
        replica = Replica(situation, f"s{number}")
        replica.answers((END + 1, 1))
        replica.serves()
        replica.tokens(60, late_after=CALM)
        full = (CALM, 0.6), (END + 1, 0.99)
        situation.add("kvscope_kv_active_ratio", replica.engine, *full)
        for horizon in ("30", "60"):
            labels = {**replica.engine, "horizon_seconds": horizon}
            situation.add("kvscope_kv_exhaustion_probability", labels, (CALM, 0), (END + 1, 0.95))
        work = {**replica.engine, "phase": "prefill"}
        situation.count("kvscope_step_tokens_total", work, (END + 1, 30000))
        lost = {**replica.engine, "mode": "recompute", "cause": "out_of_blocks"}
        again = "kvscope_preemption_recomputed_tokens_total"
        situation.count(again, lost, (CALM, 0), (END + 1, 6000 if number % 2 else 1500))
    return situation


def bad_replica() -> Situation:
    """One of fifty fails every request at once."""
    situation = Situation("replica", END)
    for number in range(50):
        replica = Replica(situation, f"s{number}")
        replica.answers((END + 1, 1))
        replica.serves(tokens=False)
        if number == 0:
            replica.requests(60, failed_after=CALM)
    return situation


def bad_api(name: str, *, engine_fails: bool) -> Situation:
    """The API server of one vLLM of ten answers every request with 5xx: by itself, or because its
    engine fails them."""
    situation = Situation(name, END)
    for number in range(10):
        replica = Replica(situation, f"s{number}")
        replica.answers((END + 1, 1))
        failed_after = CALM if number == 0 else END + 1
        for status, before, after in (("2xx", 60, 0), ("5xx", 0, 60)):
            labels = {**replica.engine, "status": status}
            family = "kvscope_api_responses_total"
            situation.count(family, labels, (failed_after, before), (END + 1, after))
        if engine_fails or number:
            replica.serves(tokens=False)
        else:
            replica.serves(until=CALM, tokens=False)
            heard = {**replica.engine, "source": "inprocess"}
            situation.add("kvscope_source_up", heard, (END + 1, 1))
        if engine_fails and number == 0:
            replica.requests(60, failed_after=CALM)
    return situation


class Pod(Replica):
    """One of Kubernetes, with a sidecar: `namespace/name`, of a Deployment."""

    def __init__(self, situation: Situation, namespace: str, name: str, model: str) -> None:
        super().__init__(situation, name, model, namespace=namespace, pod=name)
        self.server["instance"] = self.engine["instance"] = f"{namespace}/{name}"
        self.place = {"namespace": namespace, "pod": name}

    def lives(self, until: float = END + 1, since: float = 0, heard_until: float = END + 1) -> None:
        """Is there, ready and owned until a minute; its sidecar answers as long as it is heard."""
        here = (since, None), (until, 1), (END + 1, None)
        heard = min(until, heard_until)
        self.answers((since, None), (heard, 1), (until, 0), (END + 1, None))
        source = {**self.engine, "source": "wire"}
        self.situation.add("kvscope_source_up", source, (since, None), (heard, 1), (END + 1, None))
        owner = {"owner_kind": "ReplicaSet", "owner_name": self.place["pod"].rpartition("-")[0]}
        self.situation.add("kube_pod_owner", {**self.place, **owner}, *here)
        self.ready(*here)

    def ready(self, *phases: tuple[float, float | None]) -> None:
        """The server's container, by kube-state-metrics."""
        container = {**self.place, "container": "vllm"}
        self.situation.add("kube_pod_container_status_ready", container, *phases)


def _wanted(
    situation: Situation, deployment: str, *phases: tuple[float, float | None], place: str = "p"
) -> None:
    labels = {"namespace": place, "deployment": deployment}
    situation.add("kube_deployment_spec_replicas", labels, *phases)


def scrape_path() -> Situation:
    """Prometheus reaches no sidecar any more: two servers in each of forty namespaces."""
    situation = Situation("scrapes", END)
    for team in range(40):
        _wanted(situation, "llm", (END + 1, 2), place=f"team{team}")
        for number in range(2):
            Pod(situation, f"team{team}", f"llm-7f-{number}", "llama").lives(heard_until=CALM)
    return situation


def silent_pod(name: str, *, node_lost: bool) -> Situation:
    """The kernel kills the sidecar of one replica of two for lack of memory, and its server serves;
    or the machine is lost, and the pod stays, not ready, until it is evicted."""
    situation = Situation(name, END)
    _wanted(situation, "llm", (END + 1, 2))
    for number in range(2):
        pod = Pod(situation, "p", f"llm-7f-{number}", "llama")
        pod.lives(heard_until=CALM if number == 0 else END + 1)
        if number == 0 and node_lost:
            pod.ready((CALM, 1), (END + 1, 0))
    return situation


def release() -> Situation:
    """Version 1 is deployed as a model of its own, version 2 beside it, then 1 is deleted."""
    situation = Situation("release", END)
    _wanted(situation, "v1", (CALM, 2), (END + 1, None))
    _wanted(situation, "v2", (END + 1, 2))
    for number in range(2):
        Pod(situation, "p", f"v1-7f-{number}", "m-v1").lives(until=CALM)
        Pod(situation, "p", f"v2-9d-{number}", "m-v2").lives(since=CALM - 20)
    return situation


def scale_in() -> Situation:
    """An autoscaler takes two of four replicas away in the evening."""
    situation = Situation("evening", END)
    _wanted(situation, "llm", (CALM, 4), (END + 1, 2))
    for number in range(4):
        pod = Pod(situation, "p", f"llm-7f-{number}", "llama")
        pod.lives(until=CALM if number < 2 else END + 1)
    return situation


def mixed_cards() -> Situation:
    """Three replicas on one card, three on a slower one with a smaller pool."""
    situation = Situation("cards", END)
    for number in range(6):
        slow = number >= 3
        replica = Replica(situation, f"s{number}")
        replica.answers((END + 1, 1))
        replica.serves(tokens=False)
        named = {**replica.card, "name": "L40S" if slow else "H200"}
        situation.add("kvscope_gpu_info", named, (END + 1, 1))
        situation.add("kvscope_kv_usable_blocks", replica.engine, (END + 1, 900 if slow else 9000))
        family = "kvscope_inter_token_latency_seconds"
        for suffix, growth in (("_count", 3000), ("_sum", 3000 * (0.06 if slow else 0.02))):
            situation.count(family + suffix, replica.engine, (END + 1, growth))
    return situation


def healthy() -> Situation:
    """Ten replicas, a plain roll-out of one of them, a scrape that fails now and then."""
    situation = Situation("healthy", END)
    for number in range(10):
        replica = Replica(situation, f"s{number}")
        if number == 0:
            replica.answers((CALM, 1), (END + 1, None))
            replica.serves(until=CALM)
            heir = Replica(situation, "heir")
            heir.answers((CALM, None), (CALM + 20, 0), (END + 1, 1))
            heir.serves(since=CALM + 20)
        else:
            gap = CALM + number
            replica.answers((gap, 1), (gap + 1, 0), (END + 1, 1))
            replica.serves()
    return situation
