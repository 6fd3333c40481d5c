"""Whether replicas are wanted, by kube-state-metrics: neither a release nor a scale-in is a loss.

A model's workloads are those whose pods served it; they are remembered as long as the model. Where
kube-state-metrics is not scraped, or pods have no label `pod`, nothing is known, and every loss
counts.
"""

from kvscope_alerts.rule import Record
from kvscope_alerts.scope import Scope
from kvscope_alerts.thresholds import GONE_FOR
from kvscope_alerts.timing import Timing
from kvscope_monitoring import formulas
from kvscope_monitoring.identity import clause

WORKLOADS = "model:kvscope_workloads:sum"
WORKLOADS_SEEN = f"model:kvscope_workloads:max{GONE_FOR}"
WANTED = "workload:kvscope_replicas_wanted:max"
_PLACE = "cluster, namespace, workload"


def wanted_records(timing: Timing, scope: Scope) -> list[Record]:
    pod = "cluster, namespace, pod"
    of_set = _renamed('kube_pod_owner{owner_kind="ReplicaSet"}', "owner_name", "(.+)-[^-]+")
    others = _renamed('kube_pod_owner{owner_kind!="ReplicaSet"}', "owner_name", "(.+)")
    owners = f"max by ({pod}, workload) ({of_set} or {others})"
    labels = dict.fromkeys((*scope.labels, "cluster", "namespace"))
    heard = formulas.engine_signs('pod!="",model_name!=""')
    served = f"group by ({clause(*labels, 'pod')}) ({heard})"
    by = clause(*labels, "workload")
    deployments = _renamed("kube_deployment_spec_replicas", "deployment", "(.+)")
    sets = _renamed("kube_statefulset_replicas", "statefulset", "(.+)")
    return [
        Record(
            record=WORKLOADS,
            expr=f"sum by ({by}) (\n  {served}\n  * on ({pod}) group_left (workload) {owners}\n)",
        ),
        Record(
            record=WORKLOADS_SEEN,
            expr=f"max_over_time({WORKLOADS}[{timing.range(GONE_FOR)}])",
        ),
        Record(record=WANTED, expr=f"max by ({_PLACE}) ({deployments} or {sets})"),
    ]


def _renamed(selector: str, label: str, pattern: str) -> str:
    return f'label_replace({selector}, "workload", "$1", "{label}", "{pattern}")'


def unwanted(scope: Scope) -> str:
    """Models none of whose workloads wants a replica, or whose workloads serve another by now."""
    left = f"({WORKLOADS_SEEN} and on ({_PLACE}) {WANTED} > 0)"
    same = f"on ({clause(*dict.fromkeys((*scope.labels, 'cluster', 'namespace', 'workload')))})"
    kept = f"({left} unless on ({_PLACE}) {WORKLOADS}\n  or {left} and {same} {WORKLOADS})"
    known = f"({WORKLOADS_SEEN} and on (cluster) {WANTED})"
    return f"(\n  {known} unless on ({scope.model}) {kept}\n)"


def complete(scope: Scope) -> str:
    """Models that have all the replicas that their workloads want."""
    each = f"clamp_max({WORKLOADS_SEEN}, 1)"
    all_wanted = f"sum by ({scope.model}) ({each} * on ({_PLACE}) group_left () {WANTED})"
    return f"(\n  sum by ({scope.model}) ({WORKLOADS}) >= on ({scope.model}) {all_wanted}\n)"
