"""Answers of a mutating admission webhook: pods that are observed from the moment they are created.

    Pod of the API server ─▶ YAML ─▶ `kvscope inject --fail-open` ─▶ what differs, as a JSON patch

A pod is always admitted. Where it cannot be observed, the answer says why and changes nothing.
Source: Kubernetes, "Dynamic Admission Control" (admission.k8s.io/v1); RFC 6902.
"""

import base64
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import yaml

from kvscope.inject.document import RefusedError, observe
from kvscope.inject.kubernetes import Wish
from kvscope.inject.options import PodOptions
from kvscope.inject.pod import LABEL, OBSERVED
from kvscope.inject.report import LEFT_ALONE, Report
from kvscope_engine.option import Setting, settings
from kvscope_events.printable import printable

OBSERVE = "kvscope.io/observe"
"""Label of pods and namespaces: `"true"` asks for the observer."""
PREFIX = "kvscope.io/"
"""Annotations of a pod that begin with it are options of its own, as `kvscope.io/user: "1000"`."""
MAX_WARNING = 250
"""Characters of a warning; kubectl cuts off more than 256."""
_OPTIONS = {
    setting.name.replace("_", "-"): setting
    for setting in settings(PodOptions())
    if setting.name != "exporter_image"
}
"""Options that a pod may set for itself."""
_ENDS = "its pod is to end (restartPolicy): add the observer to its manifest with kvscope inject"
_FLAG = re.compile(rf"--(?=({'|'.join(_OPTIONS)})\b)")
"""Before an option in a reason, which is an annotation here."""
Operation = dict[str, Any]
logger = logging.getLogger("kvscope")


class Admission(msgspec.Struct):
    """The request in an AdmissionReview, as far as it is read."""

    uid: str
    object: dict[str, Any]
    namespace: str = ""


class Review(msgspec.Struct):
    """The content of a request."""

    request: Admission
    apiVersion: str = "admission.k8s.io/v1"


def prepare(options: PodOptions) -> None:
    """Observe a pod of the smallest kind, so that the first one that is asked about does not wait
    for imports. Raises ValueError if the options leave even that one alone."""
    container = {"name": "vllm", "image": "vllm/vllm-openai", "args": ["--model=m"]}
    container |= {"name": options.container} if options.container else {}
    pod = {"spec": {"containers": [container], "securityContext": {"runAsUser": 1000}}}
    patch, problem = _observed(pod, options)
    if not patch:
        raise ValueError(problem)


def answer(body: bytes, options: PodOptions) -> bytes:
    """The AdmissionReview that answers one. Raises msgspec.DecodeError for any other body."""
    review = msgspec.json.decode(body, type=Review)
    pod, response = review.request.object, {"uid": review.request.uid, "allowed": True}
    try:
        patch, problem = _observed(pod, options)
    except Exception:  # whatever fails here, the pod is created as it was written
        logger.exception("%s: a bug; it is not observed", _name(review.request))
        patch, problem = [], "kvscope failed, and its log says how"
    if patch:
        logger.info("%s: observed", _name(review.request))
        response |= {
            "patchType": "JSONPatch",
            "patch": base64.b64encode(msgspec.json.encode(patch)).decode(),
        }
    elif problem:
        logger.warning("%s: left alone: %s", _name(review.request), problem)
        response["warnings"] = [f"kvscope: not observed: {printable(problem)}"[:MAX_WARNING]]
    head = {"apiVersion": review.apiVersion, "kind": "AdmissionReview"}
    return msgspec.json.encode(head | {"response": response})


def _observed(pod: Mapping[str, Any], options: PodOptions) -> tuple[list[Operation], str]:
    """The patch that observes a pod, or an empty one and why; no reason: nothing is to be done."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    labels = metadata.get("labels") or {}
    if labels.get(LABEL) == OBSERVED:  # by its manifest, or by this webhook's other rule
        return [], ""
    report = Report()
    try:
        wish = _wish(metadata.get("annotations") or {}, options)
        pod = {"kind": "Pod", "metadata": {"name": "pod", "labels": labels}, "spec": spec}
        before = yaml.safe_dump({"apiVersion": "v1", **pod}, sort_keys=False, width=1 << 20)
        after = observe(before, 1, wish, report)
    except (ValueError, RefusedError) as error:
        return [], str(error)
    if report.refused:
        if spec.get("restartPolicy") not in (None, "Always"):
            return [], _ENDS
        reasons = [line.partition(LEFT_ALONE)[2] for line in report.lines if LEFT_ALONE in line]
        return [], _FLAG.sub(PREFIX, reasons[0])
    if not report.done:
        names = " or ".join(report.containers)
        is_asked = labels.get(OBSERVE) == "true"
        return [], f"no vLLM or SGLang is recognised: {PREFIX}container may be {names}" * is_asked
    old, new = (yaml.safe_load(text) for text in (before, after))
    return [
        *_difference("/spec", old["spec"], new["spec"]),
        *_difference("/metadata/labels", labels or None, new["metadata"]["labels"]),
    ], ""


def _wish(annotations: Mapping[str, str], options: PodOptions) -> Wish:
    """The operator's choices, and those of a pod's annotations over them. Raises ValueError."""
    own: dict[str, Any] = {}
    for key, text in annotations.items():
        name = key.removeprefix(PREFIX)
        if name == key or key == OBSERVE:
            continue
        if name not in _OPTIONS:
            known = ", ".join(_OPTIONS)
            raise ValueError(f"there is no annotation {key}: after {PREFIX} may come {known}")
        own[_OPTIONS[name].name] = _value(key, text, _OPTIONS[name])
    return replace(options, **own).wish(is_fail_open=True)


def _value(key: str, text: str, setting: Setting) -> int | str:
    """Raises ValueError for what the command line would refuse; an API server would refuse the
    pod that it leads to."""
    if setting.kind is not int:
        return text
    least, most = setting.option.least or 0, setting.option.most or 0
    if not (re.fullmatch("[0-9]{1,9}", text) and least <= int(text) <= most):
        raise ValueError(f"annotation {key}: expected {least:.0f} to {most:.0f}, not {text!r}")
    return int(text)


def _difference(path: str, old: Any, new: Any) -> Iterator[Operation]:
    """Operations that make the new value of the old one; nothing is ever removed from it."""
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key, value in new.items():
            place = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            if key in old:
                yield from _difference(place, old[key], value)
            else:
                yield {"op": "add", "path": place, "value": value}
    elif isinstance(old, list) and isinstance(new, list) and len(old) <= len(new):
        for number, (before, after) in enumerate(zip(old, new, strict=False)):
            yield from _difference(f"{path}/{number}", before, after)
        for value in new[len(old) :]:
            yield {"op": "add", "path": f"{path}/-", "value": value}
    else:
        yield {"op": "add", "path": path, "value": new}  # also where there is a value


def _name(request: Admission) -> str:
    metadata = request.object.get("metadata") or {}
    name = metadata.get("name") or metadata.get("generateName")
    return printable(f"{request.namespace}/{name}", keep="")
