"""What /openapi.json says of the bodies: the structs that decode them, as JSON schema."""

from typing import Any

import msgspec

_REFERENCE = "#/components/schemas/"


def request_body(body: type[msgspec.Struct]) -> dict[str, Any]:
    """The OpenAPI description of a JSON body, complete in itself."""
    (schema,), components = msgspec.json.schema_components(
        [body], ref_template=_REFERENCE + "{name}"
    )
    content = {"application/json": {"schema": _inlined(schema, components)}}
    return {"requestBody": {"required": True, "content": content}}


def _inlined(schema: Any, components: dict[str, Any]) -> Any:
    """The schema with what it refers to in the place of each reference; structs have no cycles."""
    if isinstance(schema, list):
        return [_inlined(item, components) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if reference is not None:
        return _inlined(components[reference.removeprefix(_REFERENCE)], components)
    return {key: _inlined(value, components) for key, value in schema.items()}
