"""`--events [NAME=]ENDPOINT`: names given and derived, engines of one server, mistakes."""

import pytest

from exporter.cli.endpoints import servers_of

A, B = "tcp://127.0.0.1:5557", "ipc:///run/kvscope/serve-8000.sock"


def test_names_come_from_the_socket_or_from_host_and_port() -> None:
    assert servers_of([A, B]) == {"127.0.0.1:5557": [A], "serve-8000": [B]}


def test_one_name_with_several_endpoints_is_one_server() -> None:
    assert servers_of([f"llama={A}", f"llama={B}"]) == {"llama": [A, B]}
    assert servers_of([f"b={A}", f"a={B}"]) == {"b": [A], "a": [B]}, "in the order given"


def test_an_endpoint_may_contain_an_equals_sign() -> None:
    assert servers_of(["ipc:///run/a=b/c.sock"]) == {"c": ["ipc:///run/a=b/c.sock"]}
    assert servers_of(["x=ipc:///run/a=b/c.sock"]) == {"x": ["ipc:///run/a=b/c.sock"]}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "--events is missing"),
        ([A, A], "is given twice"),
        ([f"a={A}", f"b={A}"], "is given twice"),
        (["llama"], "no endpoint in it"),
        ([f"={A}"], "the name ''"),
        ([f"a b={A}"], "the name 'a b'"),
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
