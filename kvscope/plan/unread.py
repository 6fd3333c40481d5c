"""Fields of a configuration that can change sizes and that nothing here has read.

A plan that passes over one is not called exact: the next model's new field is then seen, not lost.
"""

import re
from collections.abc import Collection, Mapping

_MOST = 12
"""Names in one answer."""
_HARMLESS = re.compile(
    r"""
    _.* | .*_token_ids? | .*_tokens? | .*_version | .*_class | .*_init(ializer)?(_.*)? | .*_range
    | .*(dropout|drop_rate|_eps|epsilon|_coef|_loss|_scale|_scaling|_factor|_theta|_beta|_beta_.*)
    | .*(rope|rotary|yarn|jitter|multiplier|temperature|penalty|capping|softcap).*
    | .*(beam|length_penalty|min_length|max_length|generat|return_).*
    | output_(attentions|hidden_states|scores)
    | architectures | auto_map | id2label | label2id | num_labels | problem_type | task_.*
    | pruned_heads | bad_words_ids | suppress_.* | begin_suppress_.* | forced_.* | tokenizer_.*
    | top_k | top_p | do_sample | typical_p | use_cache | is_decoder | is_encoder_decoder
    | chunk_size_feed_forward | no_repeat_.* | encoder_no_.* | remove_invalid_values
    | add_cross_attention | cross_attention_hidden_size | torchscript | tf_.* | tie_.* | prefix
    | quantization_config | compression_config | torch_dtype | dtype | transformers_version
    | name_or_path | model_type | max_position_embeddings | n_positions | n_ctx | max_seq_len.*
    | original_max_.* | sep_token | .*_seq_length | seq_length | hidden_act.* | activation.*
    | attn_implementation | use_flash_attn.* | rescale_.* | .*_dtype | residual_in_fp32
    | (use_)?(mtp|nextn)_.* | num_(nextn_predict_layers|mtp_modules|mtp_layers) | .*_mtp_.* | mtp_.*
    | .*(vision|audio|image|video|visual|speech|mm_|talker|code2wav|thinker).*
    | swiglu_limit.* | swiglu_limits.* | norm_type | .*_norm_type | .*_soft_cap.* | hc_.*
    | index_share_for_mtp_iteration | layer_norm_.* | ep_size | pretraining_tp | parallel_attn
    | sparse_(topk|init|local|block|num|score|disable)_.* | index_(topk|n_heads)
    | attn_res_block_size | indexer_types
    | scale_.* | normalize_.* | attention_(value_scale|other_setting|multiplier|impl)
    | time_step_.* | mamba_(chunk_size|dt_.*) | chunk_size | .*kernel_impl | gate_lower_bound
    | n_group | topk_group | norm_topk_prob | seq_aux | moe_(renormalize|shared_expert_overlap)
    | num_expert_group | use_grouped_topk | mla_use_nope | use_mamba_kernels | num_logits_to_keep
    | initial_context_length | use_mtp | qk_head_dim | max_window_layers
    | num_hash_layers | cache_implementation | bias | .*_bias | query_pre_attn_scalar
    | use_(associative_scan|post_norm) | summary_.* | do_layer_norm_before
    | mamba_norm_before_gate
    """,
    re.VERBOSE,
)
"""Names of fields that no size follows from, in any model: training, sampling, positions, other
parts than the text decoder, and drafters, which are read where they are asked for."""
_SAID_BY = {
    "attention_chunk_size": ("hybrid_layer_pattern",),
    "attention_head_dim": ("head_dim",),
    "expand": ("intermediate_size", "mamba_num_heads", "num_heads"),
    "ffn_hidden_size": ("hidden_size",),
    "full_attention_interval": ("layer_types",),
    "head_dim": ("kv_lora_rank",),
    "intermediate_size": ("moe_intermediate_size",),
    "intermediate_size_mlp": ("intermediate_size",),
    "mamba_d_ssm": ("mamba_d_head",),
    "mamba_expand": ("mamba_d_head",),
    "n_shared_experts": ("moe_shared_expert_intermediate_size",),
    "num_hidden_layers": ("hybrid_override_pattern", "layers_block_type"),
    "prefix_dense_sliding_window_pattern": ("layer_types",),
    "sliding_window_pattern": ("layer_types",),
    "sliding_window_size": ("sliding_window",),
    "use_qk_norm": ("head_dim", "layer_types"),
    "vocab_size_per_layer_input": ("hidden_size_per_layer_input",),
}
"""Fields that need not be read where one of these was, which says the same or stands for it."""
_OF_WEIGHTS = re.compile(
    r""".*(moe|expert|router|topk|top_k|intermediate|ffn|mlp|feed_forward|vocab|bias|qk_norm|_rank
    |lora|gate|group|norm|emb|heads|proj|share|dense|inner|attn_dim).* | hidden_size
    | .*_(attention_heads|head|dim)""",
    re.VERBOSE,
)
"""Names of fields that change only the weights, which then come from elsewhere."""


def unread(
    config: Mapping[str, object], read: Collection[str], *, counted: bool
) -> tuple[str, ...]:
    """Names in `config`, the decoder's, that were not read though they can change sizes, sorted.

    counted: the weights were counted from it as well.
    """
    found = []
    for name, value in config.items():
        inner = any(each.startswith(f"{name}.") for each in read)
        parts = (
            {f"{name}.{key}": part for key, part in value.items()}
            if (inner and isinstance(value, Mapping))
            else {name: value}
        )
        found += [
            full
            for full, part in parts.items()
            if full not in read
            and _matters(full, part)
            and not _known(full, counted)
            and not any(other in read and other in config for other in _SAID_BY.get(full, ()))
        ]
    return tuple(sorted(found)[:_MOST])


def _known(name: str, counted: bool) -> bool:
    last = name.rsplit(".", 1)[-1]
    return bool(_HARMLESS.fullmatch(last)) or (not counted and bool(_OF_WEIGHTS.fullmatch(last)))


def _matters(name: str, value: object) -> bool:
    """Nothing, zero, a fraction and a name are no sizes; a text that lists layers is one."""
    if isinstance(value, str):
        return "pattern" in name or "layers" in name
    if isinstance(value, float):
        return value.is_integer() and value > 1
    if isinstance(value, list):
        return any(item != 1 for item in value)
    return bool(value)
