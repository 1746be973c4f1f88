"""All kernels, and the specialisations of them that are compiled ahead: in CI, and by `yaie kernels`."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from types import MappingProxyType, ModuleType

from . import specialisations
from .kernel import Kernel, Specialisation

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


def _families() -> list[ModuleType]:
    """The modules of `specialisations`, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(specialisations.__path__))
    return [importlib.import_module(f"{specialisations.__name__}.{name}") for name in names]


@functools.cache
def all_kernels() -> Mapping[str, Kernel]:
    """Every kernel by its name, in the order of names. Raises ValueError when two families claim one name."""
    found: dict[str, Kernel] = {}
    for family in _families():
        for kernel in family.KERNELS:
            if kernel.name in found:
                raise ValueError(f"{family.__name__}: there is a kernel {kernel.name!r} already")
            found[kernel.name] = kernel
    return MappingProxyType(dict(sorted(found.items())))


def ci_specialisations() -> tuple[Specialisation, ...]:
    """What CI compiles for every arch, in the order of labels."""
    return _in_order(one for family in _families() for one in family.ci())


def all_specialisations() -> tuple[Specialisation, ...]:
    """Everything that an op can ask for, in the order of labels."""
    return _in_order(one for family in _families() for one in family.everything())


def _in_order(found: Iterable[Specialisation]) -> tuple[Specialisation, ...]:
    return tuple(sorted(set(found), key=lambda one: (one.label, one.threads, one.shared_bytes)))


KERNELS = all_kernels()
