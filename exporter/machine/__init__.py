"""What the machine says beside the engines' events: its GPUs and its memory."""
