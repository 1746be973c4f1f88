"""Of which source package a program was built: a tarball has no commit, but a version and a sum."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

CACHE = "CMakeCache.txt"
SHOWN = 16
"""Hex digits of a sum that are shown."""


def built_from(program: str) -> str:
    """ "NAME VERSION (tarball sha256 ...)" of the Python source package whose CMake project `program` belongs to.

    Where the tarball does not lie beside its folder the sum is that of the project's files; "" where the build or its
    sources are not there.
    """
    path = Path(program).resolve()
    cache = next((folder / CACHE for folder in path.parents if (folder / CACHE).is_file()), None)
    text = cache.read_text(errors="replace") if cache is not None else ""
    home = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.+)$", text, re.MULTILINE)
    if home is None or not (project := Path(home[1])).is_dir():
        return ""
    package = next((folder for folder in (project, *project.parents) if (folder / "PKG-INFO").is_file()), None)
    if package is None:
        return f"{project.name} (files sha256 {_sum_of_files(project)})"
    head = (package / "PKG-INFO").read_text(errors="replace").partition("\n\n")[0]
    fields = dict(re.findall(r"^(Name|Version): *(.+)$", head, re.MULTILINE))
    words = f"{fields.get('Name', package.name)} {fields.get('Version', '')}".strip()
    tarball = package.with_name(f"{package.name}.tar.gz")
    if tarball.is_file():
        return f"{words} (tarball sha256 {hashlib.sha256(tarball.read_bytes()).hexdigest()[:SHOWN]})"
    return f"{words} (files sha256 {_sum_of_files(project)})"


def _sum_of_files(folder: Path) -> str:
    """Of names and contents, in the order of the names."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:SHOWN]
