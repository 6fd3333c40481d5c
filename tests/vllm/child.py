"""Work in a forked child, so that vLLM is imported once for all that is done with it."""

import json
import os
import sys
import traceback
from typing import Any

from tests.vllm.between_versions import stand_in


def in_child(work: Any) -> Any:
    """The result of `work()`, in a forked child: vLLM is imported once for all of them."""
    stand_in()
    import vllm.v1.core.sched.async_scheduler  # noqa: F401

    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as file:
                json.dump(work(), file)
            sys.stderr.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit("a child failed")
    return json.loads(text)
