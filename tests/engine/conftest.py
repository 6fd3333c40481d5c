"""Tiny models on one thread: a second one only waits for the first, or for another process."""

import torch

torch.set_num_threads(1)
