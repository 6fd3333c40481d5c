"""The checkpoint that is attacked: a tiny model whose chat template does what a message asks for.

A real template cannot be chosen by a client, but it can be as slow, as large and as broken as this
one for a conversation of the right kind.
"""

import json
from pathlib import Path

MAX_MODEL_LEN = 2048
# Each depends on the messages: jinja2 computes what is constant when it compiles.
_TRAPS = {
    "endless": "{% for number in range(10**9) %}{{ number }}{% endfor %}",
    "nested": "{% for a in range(3000) %}{% for b in range(3000) %}{{ a * b }}{% endfor %}"
    "{% endfor %}",
    "large": "{{ ('a' * (3000000000 * messages | length)) | length }}",
    "heavy": "{{ ('a' * (250000000 * messages | length)) | length }}",
    "power": "{{ 9 ** (9 ** (6 + messages | length)) }}",
    "type": "{{ messages | length + 'a' }}",
    "division": "{{ 1 / (messages | length - 1) }}",
    "include": "{% include message['content'] %}",
    "raised": "{{ raise_exception('the roles must alternate') }}",
}
TRAPS = tuple(_TRAPS)
"""Contents of a message that spring a trap of the template."""


def make_trapped_checkpoint(folder: Path) -> Path:
    """Write the checkpoint; imports torch and transformers. Returns the folder."""
    from transformers.utils import logging

    from tests.support.checkpoints import make_checkpoint

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    make_checkpoint(folder, "llama", max_position_embeddings=MAX_MODEL_LEN)
    for leftover in folder.glob("chat_template*"):
        leftover.unlink()
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"chat_template": _template()}))
    return folder


def _template() -> str:
    traps = "".join(
        f"{{% if message['content'] == '{name}' %}}{trap}{{% endif %}}"
        for name, trap in _TRAPS.items()
    )
    said = "{{ message['role'] }}: {{ message['content'] }}\n"
    return f"{{% for message in messages %}}{traps}{said}{{% endfor %}}assistant: "
