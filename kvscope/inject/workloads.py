"""The places of pods in each kind of object."""

from collections.abc import Iterator
from dataclasses import dataclass

from kvscope.inject.tree import Node, at, entry, is_mapping, mapping, plain

_TEMPLATE = ("spec/template",)
_LEADER_AND_WORKERS = tuple(f"leaderWorkerTemplate/{role}Template" for role in ("leader", "worker"))
_RAY = ("headGroupSpec/template", "workerGroupSpecs/*/template")
TEMPLATES: dict[str, tuple[str, ...]] = {
    "Pod": ("",),
    **dict.fromkeys(("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"), _TEMPLATE),
    "CronJob": ("spec/jobTemplate/spec/template",),
    "LeaderWorkerSet": tuple(f"spec/{path}" for path in _LEADER_AND_WORKERS),
    "DisaggregatedSet": tuple(f"spec/roles/*/spec/{path}" for path in _LEADER_AND_WORKERS),
    "RayCluster": tuple(f"spec/{path}" for path in _RAY),
    "RayService": tuple(f"spec/rayClusterConfig/{path}" for path in _RAY),
    "RayJob": tuple(f"spec/rayClusterSpec/{path}" for path in _RAY),
    "RayCronJob": tuple(f"spec/jobTemplate/rayClusterSpec/{path}" for path in _RAY),
}
"""Paths of objects with a pod's `metadata` and `spec`."""
_LLM = (
    *(("spec", role) for role in ("template", "worker")),
    *(("spec/prefill", role) for role in ("template", "worker")),
)
SPECS: dict[str, tuple[tuple[str, str], ...]] = {
    "InferenceService": (("spec/predictor", ""),),
    "LLMInferenceService": _LLM,
    "LLMInferenceServiceConfig": _LLM,
}
"""KServe's: paths of the mapping with the pod's `labels`, and of the pod's spec below it."""
WITHOUT_PLACE = dict.fromkeys(
    ("ServingRuntime", "ClusterServingRuntime"),
    "it has no place for init containers: inject the InferenceService that uses it",
)
"""Kinds with containers to which nothing can be added."""
_RAY_KINDS = ("RayCluster", "RayService", "RayJob", "RayCronJob")


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod in an object: the nodes that are changed."""

    spec: Node
    labelled: Node
    """Mapping with `labels`, or with `metadata` that has them."""
    has_metadata: bool
    may_lack_scheduler: bool
    """Whether it may run only workers of an engine whose scheduler is in another pod, or nothing
    yet: Ray places them."""
    kind: str


def pods_of(root: Node, kind: str) -> Iterator[Pod]:
    """The pods of an object, in their order."""
    for path in TEMPLATES.get(kind, ()):
        for template in at(root, path):
            found = entry(template, "spec")
            if found is not None and is_mapping(found[1]):
                lacks = kind in _RAY_KINDS or path.endswith("/workerTemplate")
                yield Pod(found[1], template, True, lacks, kind)
    for labels, path in SPECS.get(kind, ()):
        for labelled in at(root, labels):
            for spec in at(labelled, path):
                if is_mapping(spec) and any(
                    entry(spec, key) for key in ("containers", "model", "initContainers")
                ):
                    parallel = mapping(plain(labelled).get("parallelism"))
                    lacks = path == "worker" and "data" not in parallel
                    yield Pod(spec, labelled, False, lacks, kind)
