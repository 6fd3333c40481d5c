"""vLLM's offloading to host memory for a vLLM that runs on a CPU, where its own worker refuses.

Scheduler, manager, policy, connector, statistics and events are vLLM's; only the worker is ours,
which copies between two tensors on the host. Imported by vLLM, as `spec_module_path`.
"""

import time
from typing import Any

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec


class HostCopies(CPUOffloadingSpec):  # type: ignore[misc]
    def get_worker(self, kv_caches: Any) -> OffloadingWorker:
        if self._worker is None:
            self._worker = CopyingWorker(kv_caches, self.num_chunks)
        return self._worker


class CopyingWorker(OffloadingWorker):  # type: ignore[misc]
    """Copies at once, and reports each copy as ended when it is next asked."""

    def __init__(self, kv_caches: Any, num_blocks: int) -> None:
        self._pool = [cache.tensor for cache in kv_caches.tensors]
        self._tier = [t.new_zeros((num_blocks, *t.shape[1:])) for t in self._pool]
        self._block_bytes = sum(cache.page_size_bytes for cache in kv_caches.tensors)
        self._ended: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._copy(job_id, (self._pool, src_spec), (self._tier, dst_spec))

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._copy(job_id, (self._tier, src_spec), (self._pool, dst_spec))

    def get_finished(self) -> list[TransferResult]:
        ended, self._ended = self._ended, []
        return ended

    def wait(self, job_ids: Any) -> None:
        pass

    def _copy(self, job_id: int, source: tuple[Any, Any], target: tuple[Any, Any]) -> bool:
        began = time.perf_counter()
        tensors = zip(source[0], target[0], strict=True)
        taken, given = (torch.from_numpy(spec.block_ids).long() for _, spec in (source, target))
        assert len(taken) == len(given)
        for from_, to in tensors:
            to[given] = from_[taken]
        copied = len(taken) * self._block_bytes
        self._ended.append(TransferResult(job_id, True, copied, time.perf_counter() - began))
        return True
