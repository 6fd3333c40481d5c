"""Why a checkpoint cannot be served: one line each, naming what, why, and what to do.

CheckpointError
├── CheckpointNotFoundError       no such folder, no such name on the hub
├── CheckpointFileError           a file is broken, cut short or missing
├── UnsafeWeightsError            only pickled weights, which can run code
├── MissingWeightsError           the files hold fewer tensors than the architecture needs
├── MissingTokenizerError         weights without a usable tokenizer
└── UnsupportedArchitectureError  paged attention would not compute what the model means
"""


class CheckpointError(Exception):
    """A checkpoint that cannot be served: the problem and the remedy."""

    def __init__(self, model: str, problem: str, remedy: str) -> None:
        super().__init__(f"{model}: {problem}; {remedy}")
        self.model = model
        self.problem = problem
        self.remedy = remedy


class CheckpointNotFoundError(CheckpointError):
    """Neither a folder nor a name the hub knows."""


class CheckpointFileError(CheckpointError):
    """A file of the checkpoint is missing, empty, cut short or malformed."""


class UnsafeWeightsError(CheckpointError):
    """Weights exist, but only as pickles."""


class MissingWeightsError(CheckpointError):
    """Tensors the architecture needs are not in the files."""


class MissingTokenizerError(CheckpointError):
    """No tokenizer that can be loaded without running the checkpoint's code."""


class UnsupportedArchitectureError(CheckpointError):
    """The model cannot run on paged attention and would give wrong output."""

    def __init__(
        self, model: str, problem: str, remedy: str = "choose a decoder-only model with attention"
    ) -> None:
        super().__init__(model, problem, remedy)


def first_line(error: BaseException) -> str:
    """The first line of another library's error, to be quoted in one of ours."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
