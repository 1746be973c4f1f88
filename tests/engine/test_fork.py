"""A process with an engine is forked, as other libraries do it: the copy ends, and the engine goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, signal, sys
from pathlib import Path
from tests.engine.models import save_model
from yaie_engine import LLM, EngineDeadError, SamplingParams

place = Path(sys.argv[1])
settings = {"block_size": 4, "num_blocks": 32, "dtype": "float32", "prefix_store": str(place / "store")}
llm = LLM(str(save_model(place / "model")), **settings)
params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
first = llm.generate([1, 2, 3], params, use_tqdm=False)[0].outputs[0].token_ids
child = os.fork()
if child == 0:
    signal.alarm(60)
    try:
        llm.submit([1, 2, 3], params)
    except EngineDeadError as error:
        sys.exit(7 if "fork" in str(error) else 8)
    sys.exit(9)
ended = os.waitpid(child, 0)[1]
again = llm.generate([1, 2, 3], params, use_tqdm=False)[0].outputs[0].token_ids
llm.check()
print(os.waitstatus_to_exitcode(ended), first == again, flush=True)
"""


def test_a_forked_copy_is_told_that_it_has_no_engine_and_ends(tmp_path: Path) -> None:
    """Its exit used to wait for ever for the end of a thread that only the parent has."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path)], cwd=Path(__file__).parents[2],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.stdout.split() == ["7", "True"], done.stdout + done.stderr
