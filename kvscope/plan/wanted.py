"""A plan from options: those of the command line, or of the form in the live page."""

from dataclasses import replace

from kvscope.options.plan import PlanOptions
from kvscope.plan.adapters import Adapters
from kvscope.plan.gpus import find_gpu
from kvscope.plan.layers_file import read_layers
from kvscope.plan.parallel import Parallelism
from kvscope.plan.plan import Plan, PoolMemory, Settings
from kvscope.plan.shape import ModelShape, shape_from_config, shape_from_layers, shape_from_numbers
from kvscope.plan.source import find_checkpoint, find_config
from kvscope.plan.speculation import Speculation, speculation_of
from kvscope.plan.storage import Storage, plain_storage
from kvscope.plan.verdict import Verdict, smallest, verdict
from kvscope.plan.weights import bulk
from kvscope_engine.sizing import Dtype, parse_bytes, parse_dtype
from kvscope_engine.sizing.units import MAX_PARAMETERS

DEFAULT_MAX_MODEL_LEN = 4096
"""Used where neither an option nor the checkpoint gives one."""
_LEAST_BYTES = 2**20
"""A number without a unit that is smaller was meant in another unit."""


def planned(name: str | None, given: PlanOptions) -> tuple[Plan, Verdict | None]:
    """The plan, on the fewest GPUs that hold one sequence unless their number is given.

    name: of a checkpoint; None: `given` has the model's numbers. Raises ConfigError and ValueError.
    """
    result = _plan(_shape(name, given), given)
    free = given.tensor_parallel_size is None and given.pipeline_parallel_size == 1
    if free and result.memory.total is not None:
        result = smallest(result, 1) or result
    return result, verdict(result, _gpu_name(given))


def _shape(model: str | None, options: PlanOptions) -> ModelShape:
    numbers = {name: getattr(options, name) for name in ("layers", "kv_heads", "head_dim")}
    given = {name: number for name, number in numbers.items() if number is not None}
    layers = None if options.layers_file is None else read_layers(options.layers_file)
    if layers is not None and given:
        raise ValueError(f"--layers-file says what --{next(iter(given)).replace('_', '-')} says")
    if model is not None:
        files = find_checkpoint(model)
        dtype = _dtype(options.dtype) or Dtype.BF16
        shape = shape_from_config(
            files.config,
            model,
            given,
            stored=options.dtype == "auto",
            float_bits=dtype.bits,
            files=None if dtype.quantized else files.weights,
            layers=layers,
        )
    elif layers is not None:
        shape = shape_from_layers(layers, str(options.layers_file))
    else:
        missing = [f"--{name.replace('_', '-')}" for name in numbers if name not in given]
        if missing:
            raise ValueError(f"give a checkpoint, --layers-file, or {', '.join(missing)}")
        shape = shape_from_numbers(**given)
    if options.weights_memory is not None:
        nbytes = _bytes("--weights-memory", options.weights_memory) or 0
        weights = bulk(nbytes, shape.num_layers, bits=8)
    elif options.params is not None:
        weights = bulk(_weights(options.params), shape.num_layers)
    else:
        return shape
    return replace(shape, weights=weights, counted=None, stored_bytes=None)


def _plan(shape: ModelShape, given: PlanOptions) -> Plan:
    storage = _storage(given.dtype, shape.storage)
    settings = Settings(
        storage=storage,
        kv_dtype=_dtype(given.kv_cache_dtype) or shape.kv_dtype or storage.rest,
        state_dtype=_dtype(given.mamba_ssm_cache_dtype) or shape.state_dtype,
        block_size=given.block_size,
        max_model_len=given.max_model_len or shape.max_positions or DEFAULT_MAX_MODEL_LEN,
        concurrency=given.concurrency,
        max_num_batched_tokens=max(given.max_num_batched_tokens, given.concurrency),
        parallel=Parallelism(
            tensor=given.tensor_parallel_size or 1,
            pipeline=given.pipeline_parallel_size,
            data=given.data_parallel_size,
            context=given.decode_context_parallel_size,
            experts=given.enable_expert_parallel,
        ),
        packed_fp8=given.gpu is None or not find_gpu(given.gpu).dense_fp8,
        windows=not given.disable_hybrid_kv_cache_manager,
        prefix_caching=given.enable_prefix_caching,
        speculation=Speculation()
        if given.speculative_config is None
        else speculation_of(given.speculative_config, shape, find_config),
        adapters=Adapters(slots=given.max_loras, rank=given.max_lora_rank),
        activations=_bytes("--activation-memory", given.activation_memory),
    )
    memory = PoolMemory(
        total=_total(given.gpu, given.gpu_memory),
        pool=_bytes("--kv-cache-memory-bytes", given.kv_cache_memory_bytes),
        free_host=_bytes("--host-memory", given.host_memory),
        utilization=given.gpu_memory_utilization,
        other=_bytes("--other-memory", given.other_memory) or 0,
        tier=_bytes("--kv-offloading-size", given.kv_offloading_size) or 0,
    )
    return Plan(shape=shape, settings=settings, memory=memory)


def _storage(name: str, stored: Storage | None) -> Storage:
    if name == "auto":
        return stored or Storage(rest=Dtype.BF16)
    return plain_storage(parse_dtype(name))


def _weights(params: float) -> int:
    """Raises ValueError if it is not a number of weights."""
    if not params <= MAX_PARAMETERS:  # also refuses NaN
        raise ValueError(f"--params must be at most {MAX_PARAMETERS:g}, got {params}")
    return round(params)


def _dtype(name: str) -> Dtype | None:
    return None if name == "auto" else parse_dtype(name)


def _bytes(flag: str, text: str | None) -> int | None:
    """Raises ValueError for a bare number that cannot have been meant in bytes."""
    if text is None:
        return None
    amount = parse_bytes(text)
    if amount < _LEAST_BYTES and text.strip().isdigit():
        raise ValueError(f"{flag} {text} would be {text} bytes: say {text}GB or {text}GiB")
    return amount


def _total(name: str | None, amount: str | None) -> int | None:
    if name is not None and amount is not None:
        raise ValueError("--gpu and --gpu-memory exclude each other: give one")
    return _bytes("--gpu-memory", amount) if name is None else find_gpu(name).total_bytes


def _gpu_name(given: PlanOptions) -> str:
    if given.gpu is not None:
        return find_gpu(given.gpu).name
    return f"GPU of {given.gpu_memory}"
