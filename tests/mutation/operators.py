"""The mistakes that are made: one small change at a time, each at one place of the syntax tree.

After DeMillo, Lipton and Sayward, "Hints on Test Data Selection: Help for the Practicing Programmer" (1978). What can
change nothing that a test should see is left alone: annotations, docstrings, decorators, imports, the texts of errors,
fault points, which do nothing until a test arms one, and `strict=True`, which only checks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.mutation.mutant import Mutant, path_of

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.Pow: ("**", "*"),
}
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}
PLAIN = (ast.Name, ast.Attribute, ast.Call, ast.Constant, ast.Subscript)


def mutants_of(module: str) -> list[Mutant]:
    """Every mutant of a module of the engine, in the order of its lines."""
    return mutants_in(path_of(module).read_bytes(), module)


def mutants_in(text: bytes, module: str) -> list[Mutant]:
    """Every mutant of the text of a module."""
    found = _Finder(module, text).all()
    return sorted(found, key=lambda mutant: (mutant.start, mutant.stop, mutant.new))


class _Finder:
    """Walks one module."""

    def __init__(self, module: str, text: bytes) -> None:
        self.module, self.text, self.where = module, text, ""
        self.lines = [0]
        for line in text.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))

    def all(self) -> list[Mutant]:
        tree = ast.parse(self.text)
        return list(dict.fromkeys(self._body(tree, tree.body)))

    # ---- places

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def _source(self, node: ast.expr) -> str:
        start, stop = self._span(node)
        text = self.text[start:stop].decode()
        return text if isinstance(node, PLAIN) else f"({text})"

    def _mutant(self, start: int, stop: int, new: str) -> Mutant:
        return Mutant(self.module, self.where, self.text, start, stop, new.encode())

    def _instead(self, node: ast.expr | ast.stmt, new: str) -> Mutant:
        return self._mutant(*self._span(node), new)

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> Mutant:
        """The operator between two operands."""
        start, stop = self._span(left)[1], self._span(right)[0]
        at = self.text.index(old.encode(), start, stop)
        return self._mutant(at, at + len(old), new)

    # ---- statements

    def _body(self, scope: ast.AST, body: list[ast.stmt]) -> Iterator[Mutant]:
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                outer = self.where
                self.where = f"{outer}.{statement.name}".lstrip(".")
                if isinstance(statement, ast.FunctionDef):
                    defaults = [*statement.args.defaults, *statement.args.kw_defaults]
                    yield from self._expressions([each for each in defaults if each is not None])
                yield from self._body(statement, statement.body)
                self.where = outer
            else:
                yield from self._statement(scope, statement)

    def _statement(self, scope: ast.AST, node: ast.stmt) -> Iterator[Mutant]:
        if isinstance(node, ast.Import | ast.ImportFrom) or _says_nothing(node) or _only_for_types(node):
            return
        if isinstance(node, ast.Raise):
            yield self._instead(node, "pass")
            return
        if _can_go(scope, node):
            yield self._instead(node, "pass")
        if isinstance(node, ast.Continue | ast.Break):
            yield self._instead(node, "break" if isinstance(node, ast.Continue) else "continue")
        if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
            yield self._instead(node, "return None")
        if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
            old, new = ARITHMETIC[type(node.op)]
            yield self._between(node.target, node.value, f"{old}=", f"{new}=")
            yield self._between(node.target, node.value, f"{old}=", "=")
        if isinstance(node, ast.If | ast.While):
            yield from self._negated(node.test)
        yield from self._expressions(_expressions_in(node))
        for part in ("body", "orelse", "finalbody"):
            yield from self._body(scope, getattr(node, part, []))
        for handler in getattr(node, "handlers", []):
            yield from self._body(scope, handler.body)

    # ---- expressions

    def _negated(self, test: ast.expr) -> Iterator[Mutant]:
        """A condition, where no operator in it says the contrary."""
        if isinstance(test, PLAIN) and not isinstance(test, ast.Constant):
            yield self._instead(test, f"(not {self._source(test)})")

    def _expressions(self, roots: list[ast.expr]) -> Iterator[Mutant]:
        for root in roots:
            yield from self._expression(root)
            yield from self._expressions(_parts(root))

    def _expression(self, node: ast.expr) -> Iterator[Mutant]:
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            for left, op, right in zip(operands, node.ops, operands[1:], strict=False):
                yield self._between(left, right, *COMPARISONS[type(op)])
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            yield self._between(node.left, node.right, *ARITHMETIC[type(node.op)])
        elif isinstance(node, ast.BoolOp):
            yield from self._bool(node)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            yield self._instead(node, self._source(node.operand))
        elif isinstance(node, ast.IfExp):
            yield from self._negated(node.test)
        elif isinstance(node, ast.Constant):
            yield from self._constant(node)
        elif isinstance(node, ast.Call) and not _names_types(node.func):
            yield from self._call(node)
        elif isinstance(node, ast.Slice):
            for end in (node.lower, node.upper):
                if end is not None:
                    yield self._instead(end, "")
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            for test in (test for part in node.generators for test in part.ifs):
                yield from self._negated(test)
                yield self._instead(test, "True")

    def _bool(self, node: ast.BoolOp) -> Iterator[Mutant]:
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        values = [self._source(value) for value in node.values]
        yield self._instead(node, "(" + f" {other} ".join(values) + ")")
        for i in range(len(values)):
            rest = values[:i] + values[i + 1 :]
            yield self._instead(node, rest[0] if len(rest) == 1 else "(" + f" {word} ".join(rest) + ")")

    def _constant(self, node: ast.Constant) -> Iterator[Mutant]:
        value = node.value
        if isinstance(value, bool):
            yield self._instead(node, str(not value))
        elif isinstance(value, int):
            yield self._instead(node, str(value + 1))
        elif isinstance(value, str):
            yield self._instead(node, repr(f"{value}XX"))
        elif isinstance(value, bytes):
            yield self._instead(node, repr(value + b"XX"))

    def _call(self, node: ast.Call) -> Iterator[Mutant]:
        if isinstance(node.func, ast.Name) and node.func.id in TWINS:
            yield self._instead(node.func, TWINS[node.func.id])
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg != "strict":
                start = self.text.rindex(keyword.arg.encode(), 0, self._span(keyword.value)[0])
                stop = self._span(keyword.value)[1]
                comma = self.text[stop:].lstrip()[:1] == b","
                stop = self.text.index(b",", stop) + 1 if comma else stop
                yield self._mutant(start, stop, "")


def _parts(node: ast.expr) -> list[ast.expr]:
    """The expressions inside of one, but for what is only text, names types or only checks."""
    if isinstance(node, ast.JoinedStr | ast.Constant) or _names_types(node):
        return []
    if isinstance(node, ast.Call) and _names_types(node.func):
        return []
    found: list[ast.expr] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            found.append(child)
        elif isinstance(child, ast.keyword) and child.arg != "strict":
            found.append(child.value)
        elif isinstance(child, ast.comprehension):
            found += [child.iter, *child.ifs]
    return found


def _names_types(node: ast.expr) -> bool:
    """`Literal["a"]`, `TypeVar`, and the first part of `dict[str, int]()`."""
    value = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(value, ast.Name) and value.id in ("Literal", "TypeVar", "dict", "list")


def _expressions_in(node: ast.stmt) -> list[ast.expr]:
    """The expressions of a statement that it evaluates itself; an annotation is none."""
    found: list[ast.expr] = []
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "body", "orelse", "finalbody", "handlers"):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.expr):
                found.append(each)
            elif isinstance(each, ast.withitem):
                found.append(each.context_expr)
    return found


def _says_nothing(node: ast.stmt) -> bool:
    """A docstring or a fault point."""
    value = node.value if isinstance(node, ast.Expr) else None
    called = value.func if isinstance(value, ast.Call) else None
    return isinstance(value, ast.Constant) or (isinstance(called, ast.Name) and called.id == "fault_point")


def _only_for_types(node: ast.stmt) -> bool:
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return True
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == "__slots__" for target in targets)


def _can_go(scope: ast.AST, node: ast.stmt) -> bool:
    """Whether the module may still run without it: not where a name would be missing at once."""
    if isinstance(node, ast.Expr | ast.AugAssign | ast.Delete):
        return True
    if isinstance(node, ast.Return) and node.value is None:
        return True
    if not isinstance(node, ast.Assign):
        return False
    names = [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
        return True
    stored = [each.id for each in ast.walk(scope) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    given = [each.arg for each in ast.walk(scope) if isinstance(each, ast.arg)]
    return all((stored + given).count(name) > 1 for name in names)
