"""The course of a check, in the process that may die of it: compile, run every case in several ways, compare, time.

Every finding is told as it comes: (kind, data), data plain enough for JSON.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Literal, NoReturn

import torch

from yaie_cuda import sources
from yaie_cuda.catalog import all_kernels
from yaie_cuda.compiler import compile_kernel, compiler_reason
from yaie_cuda.emulator import build
from yaie_cuda.emulator.launcher import EmulatorLauncher, Options
from yaie_cuda.errors import KernelCompileError, KernelLaunchError, ToolMissingError
from yaie_cuda.kernel import Launcher, Specialisation
from yaie_cuda.report import CompileReport

from .case import Case
from .cases import cases_of
from .entry import cubin_problem, sized, source_problem
from .request import EMULATED, CheckRequest, matches
from .result import CaseResult
from .trial import Trial

Tell = Callable[[str, Any], None]


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run, and what it is called; `sanitizer` ways need the trial's tensors named."""

    name: str
    options: Options


WAYS = (
    Way("", Options()),
    Way("with one warp far ahead of the others", Options(schedule="warp_ahead", eager_copies=True)),
    Way("with the threads in random order", Options(schedule="seeded", seed=1)),
)
SANITIZERS = (
    Way("found by the address sanitizer", Options(sanitizer="address")),
    Way("found by the thread sanitizer", Options(sanitizer="thread")),
)

AGAIN = "in a second run: the first one left something behind, such as counters that are not 0 again"


class Failed(Exception):
    """The check ends here; what is wrong has been told."""


class Check:
    """One check. `run` tells, in this order:

    ("report", a dict) of each specialisation, ("case", a dict) of each case, ("times", [case, milliseconds of the given
    text, of the built-in]) when all have passed; between them ("doing", what comes next) and ("running", the case, for
    which there is a time limit). A fault that ends it early is ("problem", {"words", "log"}); a ("note", words) is not.
    """

    def __init__(self, request: CheckRequest, tell: Tell) -> None:
        self._request, self._tell = request, tell
        self._text = sized(request.text)
        emulated = request.device == EMULATED
        self._device = torch.device("cpu" if emulated else request.device)
        self._ways = WAYS if emulated else WAYS[:1]

    def run(self) -> None:
        """Tell everything there is to tell."""
        try:
            if problem := source_problem(self._request.kernel, self._request.text):
                self._fail(problem)
            chosen = self._choose()
            sources.replace(self._request.kernel, self._text)
            needed = list(dict.fromkeys(each for _, found in chosen for each in found))
            self._compile(needed)
            passed = [self._case(case, found) for case, found in chosen]
            if all(passed):
                self._refuse_unrun(needed)
                self._take_times([case for case, _ in chosen])
        except Failed:
            return

    def _launcher(self, options: Options) -> Launcher:
        if self._request.device == EMULATED:
            return EmulatorLauncher(options)
        from yaie_cuda.device import launcher

        return launcher(self._device.index or 0)

    def _choose(self) -> list[tuple[Case, tuple[Specialisation, ...]]]:
        """The cases, each with the specialisations of our kernel that it launches."""
        self._tell("doing", "preparing the cases")
        launcher, request = self._launcher(Options()), self._request
        chosen, labels = [], set()
        for case in cases_of(request.kernel, request.sizes):
            launched = Trial(case, self._device).launches(launcher)
            found = tuple(each for each in launched if each.kernel.name == request.kernel)
            labels |= {each.label for each in found}
            if any(matches(request.label, each.label) for each in found):
                chosen.append((case, found))
        if not chosen:
            known = f"; the cases run {', '.join(sorted(labels))}" if labels else ""
            self._fail(f"no case runs {request.label or request.kernel}{known}")
        return chosen

    def _refuse_unrun(self, ran: Sequence[Specialisation]) -> None:
        """What an engine runs and no case did is not known to be right."""
        kernel = all_kernels()[self._request.kernel]
        also = [Specialisation(kernel, defines, threads, shared) for defines, threads, shared in self._request.also]
        if unrun := [each.label for each in also if each not in ran]:
            self._fail(f"an engine runs {', '.join(unrun)}, and no case does: not checked for it")

    def _compile(self, specialisations: Sequence[Specialisation]) -> None:
        """Compile for CUDA, for its report, and build for the emulator, several at a time."""
        if not specialisations:
            return
        arch = self._arch()
        self._tell("doing", f"compiling {', '.join(each.label for each in specialisations)}")
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            reports = [pool.submit(_report, each, arch) for each in specialisations if arch]
            built = [pool.submit(build.build, each, mode) for each in specialisations for mode in self._builds()]
            for future in reports:
                report, problem = future.result()
                self._tell("report", asdict(report))
                if problem:
                    self._fail(problem, report.log)
            try:
                for library in built:
                    library.result()
            except KernelCompileError as error:
                self._fail("it does not compile for the emulator", error.log)
            except ToolMissingError as error:
                self._fail(str(error))

    def _builds(self) -> tuple[Literal["", "address", "thread"], ...]:
        """The emulator's builds that the cases need; none on a GPU."""
        if self._device.type != "cpu":
            return ()
        return ("", "address", "thread") if self._request.sanitize else ("",)

    def _arch(self) -> str:
        """What to compile for; "" where there is no compiler of CUDA, which is told."""
        reason = compiler_reason() if self._request.arch else ""
        if reason:
            self._tell("note", f"Not compiled for {self._request.arch}: {reason}")
        return "" if reason else self._request.arch or ""

    def _case(self, case: Case, launched: Sequence[Specialisation]) -> bool:
        """Run a case in every way; tell the first that goes wrong, or the plain one.

        The sanitizers come first, since they tell causes and not only effects.
        """
        sanitizers = SANITIZERS if self._request.sanitize and self._device.type == "cpu" else ()
        ways = [*sanitizers, *self._ways]
        results: list[CaseResult] = []
        for way in ways:
            self._tell("running", f"{case.title}{f' {way.name}' if way.name else ''}")
            results.append(self._once(case, tuple(each.label for each in launched), way))
            if not results[-1].ok:
                break
        told = results[-1] if not results[-1].ok else results[len(sanitizers)]
        self._tell("case", told.to_dict())
        return told.ok

    def _once(self, case: Case, labels: tuple[str, ...], way: Way) -> CaseResult:
        """Run a case in one way; in the plain one twice on one launcher, since a kernel may leave it unfit."""
        trial, launcher = Trial(case, self._device), self._launcher(way.options)
        if isinstance(launcher, EmulatorLauncher):
            launcher.watch(*trial.tensors)
        # Under a sanitizer, whether the numbers are right is for the other ways to tell.
        result = self._run(trial, launcher, labels, way.name, compared=not way.options.sanitizer)
        if result.ok and not way.name:
            # With other values, lest what the first run left in a workspace is right.
            again = self._run(Trial(case, self._device, seed=1), launcher, labels, AGAIN, compared=True)
            return result if again.ok else again
        return result

    def _run(
        self, trial: Trial, launcher: Launcher, labels: tuple[str, ...], how: str, *, compared: bool
    ) -> CaseResult:
        """One run, and what came of it; `compared` with the reference, or only whether it came to its end."""
        title = trial.case.title
        try:
            trial.run(launcher)
        except KernelLaunchError as error:
            first, _, rest = unlabelled(str(error)).partition("\n")
            return CaseResult(title, labels, failure=first, log=rest, how=how)
        except RuntimeError as error:
            if self._device.type == "cpu":
                raise
            # What a kernel does wrong on a GPU comes to light at the wait, and nothing more runs after it.
            failure = f"the GPU stopped it: {(str(error).splitlines() or [''])[0]}"
            self._tell("case", CaseResult(title, labels, failure=failure).to_dict())
            raise Failed from None
        return CaseResult(title, labels, *trial.outcome(), how=how) if compared else CaseResult(title, labels)

    def _take_times(self, cases: Sequence[Case]) -> None:
        """Yours for all cases, then the built-in's."""
        self._tell("doing", "taking times")
        mine = [self._milliseconds(case) for case in cases]
        sources.restore([self._request.kernel])
        for index, (case, milliseconds) in enumerate(zip(cases, mine, strict=True)):
            self._tell("times", [index, milliseconds, self._milliseconds(case)])
        sources.replace(self._request.kernel, self._text)

    def _milliseconds(self, case: Case) -> float:
        trial, launcher = Trial(case, self._device), self._launcher(Options())
        trial.run(launcher)
        return trial.milliseconds(launcher)

    def _fail(self, words: str, log: str = "") -> NoReturn:
        self._tell("problem", {"words": words, "log": log})
        raise Failed


def _report(specialisation: Specialisation, arch: str) -> tuple[CompileReport, str]:
    """What the compiler of CUDA says, not `ok` where it refuses; and what is wrong with it or with what it made."""
    try:
        compiled = compile_kernel(specialisation, arch)
    except KernelCompileError as error:
        report = CompileReport(specialisation.label, arch, ok=False, log=error.log)
        return report, f"it does not compile for {arch}"
    return compiled.report, cubin_problem(specialisation, compiled.cubin)


def unlabelled(text: str) -> str:
    """A launcher's message without the specialisation it begins with: the case names that already."""
    head, found, rest = text.partition("]: ")
    return rest if found and "[" in head and "\n" not in head else text
