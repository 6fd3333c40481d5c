"""`--events [NAME=]ENDPOINT`: names given and derived, engines of one server, mistakes."""

import pytest

from kvscope.options.endpoints import servers_of
from kvscope_exporter.configuration import ServerConfig

A, B = "tcp://127.0.0.1:5557", "ipc:///run/kvscope/serve-8000.sock"
U = "http://127.0.0.1:8000"


def of(options: list[str], urls: list[str] | None = None) -> dict[str, ServerConfig]:
    return {server.name: server for server in servers_of(options, urls or [])}


def events_of(options: list[str]) -> dict[str, list[str]]:
    return {name: list(server.events) for name, server in of(options).items()}


def test_names_come_from_the_socket_or_from_host_and_port() -> None:
    assert events_of([A, B]) == {"127.0.0.1:5557": [A], "serve-8000": [B]}
    assert events_of(["ipc:///run/vllm/*"]) == {"vllm": ["ipc:///run/vllm/*"]}


def test_one_name_with_several_endpoints_is_one_server() -> None:
    assert events_of([f"llama={A}", f"llama={B}"]) == {"llama": [A, B]}
    assert events_of([f"b={A}", f"a={B}"]) == {"b": [A], "a": [B]}, "in the order given"


def test_an_endpoint_may_contain_an_equals_sign() -> None:
    assert events_of(["ipc:///run/a=b/c.sock"]) == {"c": ["ipc:///run/a=b/c.sock"]}
    assert events_of(["x=ipc:///run/a=b/c.sock"]) == {"x": ["ipc:///run/a=b/c.sock"]}


def test_a_url_is_a_server_or_the_page_of_one() -> None:
    assert of([], [U])["127.0.0.1:8000"].url == U
    both = of([f"llama={B}"], [f"llama={U}"])["llama"]
    assert (both.events, both.url, both.kind) == ((B,), U, "auto")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([f"a={A}", f"b={A}"], f"--events b={A}: --events a={A} names {A} as well"),
        ([f"a={A}", f"a={A}"], "keep one"),
        (["x=ipc:///run/v/*", "y=ipc:///run/v/e.sock"], "names all sockets of"),
        ([A, A], "given twice"),
        (["llama"], "expected NAME=ENDPOINT"),
        ([f"={A}"], "'' is not a name"),
        ([f"a b={A}"], "'a b' is not a name"),
        (["tcp://10.0.0.7:5557"], "not a loopback address"),
        (["ipc:///run/a/x.sock", "ipc:///run/b/x.sock"], "is called 'x' as well"),
        ([f"x={A}", "ipc:///run/b/x.sock"], "is called 'x' as well"),
        (["ipc:///run/b/x.sock", f"x={A}"], "write x=ipc:///run/b/x.sock"),
        (["ipc:///run/-.sock"], "write NAME=ENDPOINT"),
    ],
)
def test_a_mistake_is_named(options: list[str], says: str) -> None:
    with pytest.raises(ValueError, match="--events") as caught:
        servers_of(options)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("urls", "says"),
    [
        (["llama"], "expected NAME=URL"),
        ([f"a={U}", f"a={U}1"], "has a URL already"),
        ([f"a={U}", f"b={U}/"], f"--url a={U} names {U}/metrics as well"),
        (["ftp://127.0.0.1"], "does not begin with http"),
        (["http://127.0.0.1:99999"], "no port"),
        (["a=http://me:secret@127.0.0.1"], "user or password"),
        (["a=http://[::1"], "not a URL"),
    ],
)
def test_a_mistake_in_a_url_is_named(urls: list[str], says: str) -> None:
    with pytest.raises(ValueError, match="--url") as caught:
        servers_of([], urls)
    assert says in str(caught.value)
    assert "secret" not in str(caught.value).partition("user or password")[2]


def test_something_must_be_watched() -> None:
    with pytest.raises(ValueError, match="--events ENDPOINT, --url URL or --config FILE"):
        servers_of([])
