"""The pods of an object, found by their shape: a mapping with a list of containers.

A template, which has `metadata` and `spec`, is a pod wherever it stands and whatever the object is
called. What differs from that is known by API group and kind.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvscope.inject.tree import (
    Node,
    at,
    entry,
    is_list,
    is_mapping,
    mapping,
    plain,
    target,
)

_KSERVE, _OME = "serving.kserve.io", "ome.io"
_RAYS = ("headGroupSpec", "workerGroupSpecs")
_RECORDS = ("status", "metadata")
"""Parts of an object that are not what its owner wants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """A kind whose pods' specs are not in templates."""

    server: str = "containers"
    """Key of a container beside the list, which is the server's."""
    labels: Mapping[str, str]
    """By the key of a pod's spec, the mapping that holds the pod's `labels`, from there."""


_OF_LLM = _Form(labels={"template": "..", "worker": ".."})
_OF_RUNTIME = _Form(
    server="runner",
    labels={
        **dict.fromkeys(("engine", "decoder", "engineConfig", "decoderConfig"), ""),
        **dict.fromkeys(("leader", "worker"), ".."),
    },
)
FORMS: dict[tuple[str, str], _Form] = {
    (_KSERVE, "InferenceService"): _Form(server="model", labels={"predictor": ""}),
    (_KSERVE, "LLMInferenceService"): _OF_LLM,
    (_KSERVE, "LLMInferenceServiceConfig"): _OF_LLM,
    (_OME, "InferenceService"): _OF_RUNTIME,
    (_OME, "ServingRuntime"): _OF_RUNTIME,
    (_OME, "ClusterServingRuntime"): _OF_RUNTIME,
    ("nvidia.com", "DynamoGraphDeployment"): _Form(
        server="mainContainer", labels={"extraPodSpec": "../extraPodMetadata"}
    ),
}
_NO_INIT_CONTAINERS = (
    "it has no place for init containers: inject the InferenceService that uses it"
)
_OF_KNATIVE = (
    "Knative takes no init containers unless its config-features allow them, and no port of a "
    "second container: kvscope run, in the server's own container, works there"
)
WITHOUT_PLACE: dict[tuple[str, str], str] = {
    (_KSERVE, "ServingRuntime"): _NO_INIT_CONTAINERS,
    (_KSERVE, "ClusterServingRuntime"): _NO_INIT_CONTAINERS,
    ("serving.knative.dev", "Service"): _OF_KNATIVE,
    ("serving.knative.dev", "Configuration"): _OF_KNATIVE,
    ("serving.knative.dev", "Revision"): _OF_KNATIVE,
    ("apps", "ControllerRevision"): "it is a record of an earlier state: inject its workload",
}
"""Kinds with pods' specs to which nothing can be added, and what works instead."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod in an object: the nodes that are changed."""

    spec: Node
    holder: Node
    """The mapping that has the spec: the template, where it is in one."""
    labelled: Node | None
    """Mapping with `labels`, or with `metadata` that has them; None: not known where they are."""
    metadata: str
    """Key of the mapping between; empty: the labels are in `labelled` itself."""
    may_lack_scheduler: bool
    """Whether it may run only workers of an engine whose scheduler is in another pod, or nothing
    yet: Ray places them."""
    is_rays: bool
    """Whether KubeRay starts Ray in it, whatever the image's entry point is."""
    server: str
    """Key of a container that is the server's, beside `containers`."""
    path: str
    """The place of the spec, as `--path` takes it."""
    group: str
    kind: str

    @property
    def is_job(self) -> bool:
        return self.group == "batch"

    @property
    def is_llms(self) -> bool:
        """Whether KServe gives its container `main` the command of a vLLM."""
        return self.group == _KSERVE and self.kind.startswith("LLM")


def group_of(root: Node) -> str:
    """The API group of an object; empty: the core's."""
    version = entry(root, "apiVersion")
    return str(plain(version[1]) or "").rpartition("/")[0] if version else ""


def chosen_pods(root: Node, kind: str, path: str | None) -> dict[int, Pod]:
    """The pods of an object by number; path: those whose templates or specs are there alone."""
    named = None if path is None else {id(node) for node in at(root, path)}
    return {
        number: pod
        for number, pod in enumerate(pods_of(root, kind))
        if named is None or named & {id(pod.spec), id(pod.holder)}
    }


def pods_of(root: Node, kind: str) -> Iterator[Pod]:
    """The pods of an object, in their order."""
    group = group_of(root)
    form = FORMS.get((group, kind), _Form(labels={}))
    seen: set[int] = set()
    waiting: list[tuple[Node, Node, tuple[str, ...]]] = [(root, None, ())]
    while waiting:
        node, before, keys = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        inner = [("*", one) for one in node.value] if is_list(node) else []
        if is_mapping(node):
            inner = [(str(key.value), value) for key, value in node.value]
        inner = inner if keys else [pair for pair in inner if pair[0] not in _RECORDS]
        waiting += [(target(one), node, (*keys, key)) for key, one in reversed(inner)]
        if _has_containers(node, form.server):
            yield _pod(node, before, keys, form, group, kind)


def _pod(
    node: Node, before: Node, keys: tuple[str, ...], form: _Form, group: str, kind: str
) -> Pod:
    labelled, metadata = None, ""
    if keys and keys[-1] in form.labels:
        up, _, metadata = form.labels[keys[-1]].partition("/")
        labelled = before if up else node
    elif keys[-1:] == ("spec",) and (len(keys) > 1 or (group, kind) == ("", "Pod")):
        labelled, metadata = before, "metadata"
    parallel = entry(before, "parallelism")
    has_engines = parallel is not None and "data" in mapping(plain(parallel[1]))
    is_rays = any(key in _RAYS for key in keys)
    return Pod(
        spec=node,
        holder=before,
        labelled=labelled,
        metadata=metadata,
        may_lack_scheduler=is_rays
        or (any(key.startswith("worker") for key in keys) and not has_engines),
        is_rays=is_rays,
        server=form.server,
        path="/".join(keys),
        group=group,
        kind=kind,
    )


def _has_containers(node: Node, server: str) -> bool:
    single = entry(node, server)
    if single is not None and is_mapping(target(single[1])):
        return True
    found = entry(node, "containers")
    elements: Node = target(found[1]) if found else None
    return is_list(elements) and any(
        entry(target(one), key) for one in elements.value for key in ("name", "image")
    )
