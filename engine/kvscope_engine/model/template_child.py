"""Renders a chat template in a process of its own: `python template_child.py SECONDS BYTES`.

A template is foreign code that can loop or fill the memory, even within one call into C, where only
the kernel can stop it. Imports jinja2 and nothing of this project. A frame is 4 bytes of length,
little-endian, and JSON; the first one in has the template, every further one a conversation.
Templates see the same as in transformers.
"""

import json
import resource
import signal
import struct
import sys
from datetime import datetime
from typing import Any, BinaryIO

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

LENGTH = struct.Struct("<I")
ROOM_BYTES = 32 * 2**20
"""Address space that any conversation may take, beyond what the process has."""
ROOM_PER_BYTE = 8
"""The same for each byte of a conversation, which becomes objects and text."""


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what a model said, for training; here its body is rendered."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller: Any) -> Any:
        return caller()


class _Dict:
    """`dict` in a template, without its attributes."""

    def __call__(self, *args: Any, **fields: Any) -> dict[Any, Any]:
        return dict(*args, **fields)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(jinja2.utils.Namespace):
    """`namespace` in a template; a name never leads to Python's internals."""

    def __init__(*args: Any, **fields: Any) -> None:
        self, *given = args
        attributes = dict(*given, **fields)
        for name in attributes:
            _refuse_internal(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_internal(name)
        super().__setitem__(name, value)


def _refuse_internal(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace stores no name like {name!r}")


def _raise_exception(message: str) -> None:
    raise jinja2.exceptions.TemplateError(message)


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def compile_template(source: str) -> jinja2.Template:
    """Raises jinja2.TemplateError."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, jinja2.ext.loopcontrols],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.globals["dict"] = _Dict()
    environment.globals["namespace"] = _Namespace
    return environment.from_string(source)


def _answer(template: jinja2.Template, variables: dict[str, Any], messages: Any) -> dict[str, str]:
    try:
        text = template.render(
            messages=messages, tools=None, documents=None, add_generation_prompt=True, **variables
        )
    except jinja2.exceptions.TemplateError as error:
        return {"refused": str(error)}
    except Exception as error:  # whatever foreign code raises; the parent reports it
        return {"failed": f"{type(error).__name__}: {error}"[:500]}
    return {"text": text}


def _read(pipe: BinaryIO, memory_bytes: int) -> Any:
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        sys.exit(0)  # the parent has ended
    length = LENGTH.unpack(head)[0]
    _limit_memory(length, memory_bytes)
    return json.loads(pipe.read(length))


def _limit_memory(length: int, memory_bytes: int) -> None:
    """Allow a short conversation less than a long one, so that many short ones do less harm."""
    with open("/proc/self/statm", encoding="ascii") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    room = held + ROOM_BYTES + ROOM_PER_BYTE * length
    resource.setrlimit(resource.RLIMIT_AS, (min(room, memory_bytes), memory_bytes))


def _write(pipe: BinaryIO, answer: dict[str, str]) -> None:
    frame = json.dumps(answer).encode()
    pipe.write(LENGTH.pack(len(frame)))
    pipe.write(frame)
    pipe.flush()


def main(seconds: float, memory_bytes: int) -> None:
    """Serve until the pipe closes. The kernel ends this process after `seconds` on one frame."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    first = _read(sys.stdin.buffer, memory_bytes)
    try:
        template = compile_template(first["template"])
    except Exception as error:  # a syntax error, an unknown filter, or nested too deeply
        _write(sys.stdout.buffer, {"broken": f"{type(error).__name__}: {error}"[:500]})
        return
    _write(sys.stdout.buffer, {})
    while True:
        messages = _read(sys.stdin.buffer, memory_bytes)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        _write(sys.stdout.buffer, _answer(template, first["variables"], messages))
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
