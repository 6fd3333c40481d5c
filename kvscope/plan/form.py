"""`GET /api/plan`: what `kvscope plan` calculates, for the form of the live page.

It takes numbers only: the name of a checkpoint would have this process read files, or ask a hub.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from kvscope.options.plan import PlanOptions
from kvscope.plan.gpus import GPUS
from kvscope.plan.report import document
from kvscope.plan.wanted import planned
from kvscope_engine.sizing import ConfigError
from kvscope_exporter.paths import ANSWERS
from kvscope_exporter.web.metrics import METHODS

_MOST_TOKENS = 100_000_000


def plan_router() -> APIRouter:
    """`GET /api/plan` has the document of `kvscope plan -o json`, `/api/plan/gpus` all GPUs."""
    router = APIRouter(prefix=ANSWERS.path.rstrip("/"), include_in_schema=False)

    @router.api_route("/plan/gpus", methods=METHODS)
    async def gpus() -> Response:
        return JSONResponse([gpu.name for gpu in GPUS])

    @router.api_route("/plan", methods=METHODS)
    def plan(  # on a worker thread
        layers: Annotated[int, Query(ge=1, le=1024)],
        kv_heads: Annotated[int, Query(ge=1, le=1024)],
        head_dim: Annotated[int, Query(ge=1, le=8192)],
        params: Annotated[float, Query(ge=1)],
        gpu: Annotated[str, Query(max_length=80)],
        max_model_len: Annotated[int, Query(ge=1, le=_MOST_TOKENS)],
        concurrency: Annotated[int, Query(ge=1, le=1_000_000)],
        dtype: Annotated[str, Query(max_length=16)] = "auto",
        kv_cache_dtype: Annotated[str, Query(max_length=16)] = "auto",
    ) -> Response:
        given = PlanOptions(
            layers=layers,
            kv_heads=kv_heads,
            head_dim=head_dim,
            params=params,
            gpu=gpu,
            max_model_len=max_model_len,
            concurrency=concurrency,
            dtype=dtype,
            kv_cache_dtype=kv_cache_dtype,
        )
        try:
            result, answer = planned(None, given)
        except (ConfigError, ValueError) as error:
            return PlainTextResponse(f"{error}\n", 400)
        return JSONResponse(document(result, answer))

    return router
