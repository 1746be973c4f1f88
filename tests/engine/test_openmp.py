"""Threads that have computed something keep no OpenMP workers while an engine computes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, time, torch
torch.set_num_threads(2)
from yaie_engine import LLM, SamplingParams
from yaie_engine.openmp import release_workers

def tasks():
    return len(os.listdir("/proc/self/task"))

def settled(wanted):
    end = time.monotonic() + 20
    while tasks() != wanted and time.monotonic() < end:
        time.sleep(0.01)
    return tasks()

def compute():
    return float((torch.ones(1_000_000) + 1).sum())

alone = tasks()
compute()
assert tasks() == alone + 1, (alone, tasks())
release_workers()
assert settled(alone) == alone
assert compute() == 2_000_000  # they come back
llm = LLM("tiny", max_num_seqs=2, num_blocks=64)
engine = settled(tasks())
release_workers()
assert tasks() == engine, "the load kept workers of its thread"
compute()
assert tasks() == engine + 1
handle = llm.submit("one two", SamplingParams(max_tokens=4, temperature=0))
handle.result(60)
assert settled(engine) == engine, (engine, tasks())  # neither who asked nor the engine, which is idle, keeps any
llm.close()
print("ok")
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted by /proc")
def test_workers_end_with_the_work_and_come_back() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith("ok")
