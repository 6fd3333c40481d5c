"""The tokens that a sequence is penalised for: each once, with its count in the output.

Follows from the sequence's tokens alone; each step adds the new ones.
"""

from array import array


class TokenHistory:
    """Tokens in order of their first appearance; equally long arrays, that tensors can copy."""

    __slots__ = ("_indices", "_num_seen", "counts", "token_ids")

    def __init__(self, prompt: set[int], prompt_length: int) -> None:
        """prompt: the prompt tokens that count, if any."""
        self.token_ids = array("q", prompt)
        self.counts = array("f", bytes(4 * len(prompt)))
        """Counts in the output; 0 for tokens that only the prompt has."""
        self._indices = {token_id: index for index, token_id in enumerate(self.token_ids)}
        self._num_seen = prompt_length

    def follow(self, tokens: list[int]) -> None:
        """Count the output tokens that are new. tokens: those of the whole sequence."""
        indices, counts = self._indices, self.counts
        for position in range(self._num_seen, len(tokens)):
            token_id = tokens[position]
            index = indices.get(token_id)
            if index is None:
                indices[token_id] = len(counts)
                self.token_ids.append(token_id)
                counts.append(1.0)
            else:
                counts[index] += 1.0
        self._num_seen = len(tokens)
