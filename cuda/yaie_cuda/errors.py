"""What goes wrong with kernels."""

from __future__ import annotations


class KernelCompileError(RuntimeError):
    """A kernel did not compile. `kernel` names it with its macros, `target` the arch or compiler, `log` is its text."""

    def __init__(self, kernel: str, target: str, log: str) -> None:
        super().__init__(f"{kernel} did not compile for {target}:\n{log.strip()}")
        self.kernel, self.target, self.log = kernel, target, log


class KernelLaunchError(RuntimeError):
    """A kernel could not be loaded or started, or it failed while it ran. The text names it."""


class EmulatorError(KernelLaunchError):
    """An emulated kernel did what it must not: the text says which thread, where, and what. The process lives on."""


class ToolMissingError(RuntimeError):
    """A compiler is not installed, or too old. The text says what to install."""
