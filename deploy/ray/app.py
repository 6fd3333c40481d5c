"""The application: `serve run deploy.ray.app:build model=MODEL`, or a configuration file of Serve.

Replicas start and stop between `min_replicas` and `max_replicas` with the requests under way.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve.config import AutoscalingConfig, RequestRouterConfig

from deploy.ray.ingress import Ingress
from deploy.ray.replica import EngineReplica
from deploy.ray.router import CacheAwareRouter as CacheAwareRouter

ENGINES = "engines"
"""Name of the deployment whose replicas are engines."""


class Settings(BaseModel):
    """Arguments of the application."""

    model_config = ConfigDict(extra="forbid")

    model: str = "demo"
    """As in `kvscope serve --model`: a folder that every node has, a name on the hub, or `demo`."""
    options: list[str] = []
    """Further options of `kvscope serve`, but those of addresses and KV events."""
    block_size: int = Field(16, ge=1)
    """Tokens of a block: --block-size."""
    min_replicas: int = Field(1, ge=0)
    max_replicas: int = Field(4, ge=1)
    target_ongoing_requests: float = Field(16, gt=0)
    """Requests under way for each replica, on average; above that Serve starts a further one."""
    max_ongoing_requests: int = Field(64, ge=1)
    """Requests that one replica accepts; further ones go elsewhere, or wait."""
    max_queued_requests: int = Field(1000, ge=-1)
    """Requests that wait in one ingress before it answers 503; -1: any number."""
    ingress_replicas: int = Field(1, ge=1)
    cpus: float = Field(1, ge=0)
    """Cores that Ray reserves for a replica."""
    gpus: float = Field(0, ge=0)
    health_seconds: float = Field(10, gt=0)
    """Between two looks at each engine's health."""
    router: Literal["caches", "ray"] = "caches"
    """ray: Serve's own, which does not know caches, and with which `/targets` is empty."""


def build(settings: Settings) -> Any:
    """The application; Serve calls this with the arguments of its configuration."""
    routing = {}
    if settings.router == "caches":
        # Serve copies what is defined in the module that is named here, and imports the rest: only
        # an imported router has its followers in common with the ingress.
        chosen = RequestRouterConfig(request_router_class=f"{__name__}:CacheAwareRouter")
        routing = {"request_router_config": chosen}
    engines = serve.deployment(
        EngineReplica,
        name=ENGINES,
        autoscaling_config=AutoscalingConfig(
            min_replicas=settings.min_replicas,
            initial_replicas=max(1, settings.min_replicas),
            max_replicas=settings.max_replicas,
            target_ongoing_requests=settings.target_ongoing_requests,
        ),
        max_ongoing_requests=settings.max_ongoing_requests,
        max_queued_requests=settings.max_queued_requests,
        health_check_period_s=settings.health_seconds,
        ray_actor_options={"num_cpus": settings.cpus, "num_gpus": settings.gpus},
        **routing,
    )
    front = serve.deployment(
        Ingress,
        name="ingress",
        num_replicas=settings.ingress_replicas,
        max_ongoing_requests=10_000,  # the engines' limits decide
        ray_actor_options={"num_cpus": 0},
    )
    options = [
        *("--model", settings.model, "--block-size", str(settings.block_size)),
        *settings.options,
    ]
    return front.bind(engines.bind(options, settings.block_size), settings.model)
