"""Descriptions of requests for /openapi.json, and the conversion of structs to JSON schema."""

from typing import Any

import msgspec

_REFERENCE = "#/components/schemas/"


_TRACEPARENT = {
    "name": "traceparent",
    "in": "header",
    "description": "W3C trace context; what is not valid is ignored.",
    "schema": {"type": "string"},
}


def generation_request(body: type[msgspec.Struct], model: str) -> dict[str, Any]:
    """The OpenAPI description of a call: a self-contained JSON body, and one header.

    model: the only name that is served.
    """
    described = schema_of(body)
    described["properties"]["model"] = {"enum": [model, None], "default": None}
    content = {"application/json": {"schema": described}}
    request_body = {"required": True, "content": content}
    return {"requestBody": request_body, "parameters": [_TRACEPARENT]}


def schema_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema of a struct, self-contained."""
    (schema,), components = msgspec.json.schema_components(
        [struct], ref_template=_REFERENCE + "{name}"
    )
    described: dict[str, Any] = _inlined(schema, components)
    return described


def _inlined(schema: Any, components: dict[str, Any]) -> Any:
    """The schema with each reference replaced by its target; structs have no cycles."""
    if isinstance(schema, list):
        return [_inlined(item, components) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if reference is not None:
        return _inlined(components[reference.removeprefix(_REFERENCE)], components)
    return {key: _inlined(value, components) for key, value in schema.items()}
