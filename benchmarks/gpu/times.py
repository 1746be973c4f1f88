"""Part "times": kernels against the copy bandwidth of this device, attention against its matrix units, launches."""

from __future__ import annotations

from . import attention_times, cascade_times, launch_times, small_times
from .clock import QUICK_SAMPLES, SAMPLES
from .context import Context
from .yardsticks import copy_bandwidth


def run(context: Context) -> None:
    """The yardstick first; then every group by itself."""
    samples = QUICK_SAMPLES if context.quick or context.tiny else SAMPLES
    bandwidth = copy_bandwidth(context.bench, context.tiny, samples)
    context.fact("copy bandwidth of part times", f"{bandwidth / 1e12:.3f} TB/s")
    launch_times.run(context)
    attention_times.run(context, bandwidth, samples)
    cascade_times.run(context, samples)
    small_times.run(context, bandwidth, samples)
