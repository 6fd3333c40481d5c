"""The vLLM side of `benchmarks.on_a_gpu`: runs where vLLM is installed and needs nothing of ours.

PYTHON vllm_peer.py FOLDER CONTEXT STEPS MAX_MODEL_LEN SEQUENCES...
"""

import json
import sys
import time


def main() -> None:
    import vllm

    folder = sys.argv[1]
    context, steps, max_model_len, *counts = map(int, sys.argv[2:])
    llm = vllm.LLM(
        model=folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=max_model_len,
        max_num_seqs=max(counts),
        gpu_memory_utilization=0.5,
        enable_prefix_caching=False,
        disable_log_stats=True,
    )

    def seconds(count: int, tokens: int) -> float:
        batch = [{"prompt_token_ids": [7 + number] * context} for number in range(count)]
        sampling = vllm.SamplingParams(
            temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False
        )
        begin = time.perf_counter()
        llm.generate(batch, sampling, use_tqdm=False)
        return time.perf_counter() - begin

    milliseconds = {}
    for count in counts:
        seconds(count, steps)  # warms up
        longer, shorter = (
            sorted(seconds(count, tokens) for _ in range(3))[1] for tokens in (steps + 1, 1)
        )
        milliseconds[count] = (longer - shorter) / steps * 1e3
    print(json.dumps({"peer": {"version": vllm.__version__, "milliseconds": milliseconds}}))


if __name__ == "__main__":
    main()
