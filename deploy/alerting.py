"""Forms of deploy/alertmanager/alertmanager.yml for other Alertmanagers: values for the one of
kube-prometheus-stack, an AlertmanagerConfig, and the example of a webhook."""

import copy
import re
from pathlib import Path
from typing import Any

import yaml

SHIPPED = Path(__file__).parent / "alertmanager" / "alertmanager.yml"
WEBHOOK = SHIPPED.with_name("alertmanager.webhook.yml")
STACK_VALUES = SHIPPED.with_name("kube-prometheus-stack-values.yaml")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"(.*)"')
_HOOK = "http://host.docker.internal:9095"
"""A program on the machine itself, which the stack's containers reach by this name."""
OURS = 'alertname=~"(Kvscope|Vllm|Sglang).+"'
_STOCK: list[dict[str, Any]] = [
    {
        "source_matchers": ["severity = critical"],
        "target_matchers": ["severity =~ warning|info"],
        "equal": ["namespace", "alertname"],
    },
    {
        "source_matchers": ["severity = warning"],
        "target_matchers": ["severity = info"],
        "equal": ["namespace", "alertname"],
    },
    {
        "source_matchers": ["alertname = InfoInhibitor"],
        "target_matchers": ["severity = info"],
        "equal": ["namespace"],
    },
    {"target_matchers": ["alertname = InfoInhibitor"]},
]
"""The stack's own rules of inhibition, since a list in values replaces that of the chart."""


def shipped() -> Any:
    """Our Alertmanager's configuration."""
    return yaml.safe_load(SHIPPED.read_text())


def webhook() -> Any:
    """The configuration with an address for each receiver but `page-only`."""
    config = copy.deepcopy(shipped())
    for receiver in config["receivers"]:
        if receiver["name"] != "page-only":
            address = {"url": f"{_HOOK}/{receiver['name']}", "send_resolved": True}
            receiver["webhook_configs"] = [address]
    return config


def stack_values() -> dict[str, Any]:
    """Values of kube-prometheus-stack: the stack's inhibition and ours; one message for a model,
    not for a namespace; our watchdog beside the stack's own."""
    config = shipped()
    ours = {"matchers": [OURS], "group_by": config["route"]["group_by"]}
    silent = {"receiver": "null", "matchers": ['alertname=~"Watchdog|KvscopeWatchdog"']}
    route = {"routes": [silent, ours]}
    return {
        "alertmanager": {
            "config": {"route": route, "inhibit_rules": [*_STOCK, *config["inhibit_rules"]]}
        }
    }


def alertmanager_config(labels: dict[str, str]) -> dict[str, Any]:
    """Our inhibition as an object of the operator, which limits it to alerts of its namespace
    unless the Alertmanager's `alertmanagerConfigMatcherStrategy` is None."""
    rules = [
        {
            "sourceMatch": [_matcher(text) for text in rule["source_matchers"]],
            "targetMatch": [_matcher(text) for text in rule["target_matchers"]],
            "equal": rule["equal"],
        }
        for rule in shipped()["inhibit_rules"]
    ]
    return {
        "apiVersion": "monitoring.coreos.com/v1alpha1",
        "kind": "AlertmanagerConfig",
        "metadata": {"name": "kvscope", "labels": labels},
        "spec": {"inhibitRules": rules},
    }


def _matcher(text: str) -> dict[str, str]:
    found = _MATCHER.fullmatch(text)
    if found is None:
        raise ValueError(f'{SHIPPED}: {text!r} is not a matcher: expected label="value"')
    return {"name": found[1], "matchType": found[2], "value": found[3]}
