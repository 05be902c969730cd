"""Which small errors the tests would notice: 60 of them, made one at a time in a copy of the repository.

A mutant is one change of one expression or statement: `+` for `-`, `<=` for `<`, `or` for `and`, a condition negated, another
constant, None returned, a call or an augmented assignment deleted, `max` for `min`. They are sampled from --rooms, folders of
the package, in proportion to their lines and at most one per function; which functions, and which change of each, depends on
--seed and their names alone, so that editing one file hardly changes the sample of the others.

Nothing is changed in texts, annotations, type aliases, decorators, assertions and what raises errors, nor in anything whose
name matches UNSEEN (or --exclude): what changes speed or display alone, or needs hardware that the tests do not have.

A mutant's own tests run first: the doctests of its file, the test files that import it, and the folder of tests of its room.
If these pass, all that `make test` runs. A mutant is killed by the first test that fails with it and passes without it (a test
that fails without it too is left out, and named at the end), or because no test ends for --limit seconds. The file --out holds
every result so far, and the same command goes on where it was stopped. The exit code is 1 unless nine in ten are killed.

    python benchmarks/mutants.py --count 60 --seed 0 --jobs 1 --out mutants.json
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import queue
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOMS = ("logic", "nn", "lab/training", "lab/results")
KILLED, LEAST_KILLED = ("killed", "timeout", "crash"), 0.9
MEMORY = 8 * 2**30  # bytes of a process: an endless loop may also fill a list
UNSEEN = (
    r"cache|chunk|timeout|thread|worker|progress|verbose|bench|stacklevel|indent|flush|fsync|sleep|warn|simplefilter|logg|cuda"
    r"|triton|__all__|^(print|strict|__repr__|extra_repr)$"
)
_PAIRS: list[tuple[Any, Any]] = [
    *[(ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.LShift, ast.RShift), (ast.And, ast.Or)],
    *[(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)],
    *[("min", "max"), ("minimum", "maximum"), ("amin", "amax"), ("argmin", "argmax")],
]
SWAP = dict(_PAIRS) | {new: old for old, new in _PAIRS}
SWAP |= {ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr}

# Added to the copy's conftest.py, which pytest and the workers of pytest-xdist read: what is tested is the copy.
CHECK = """
import importlib.util, os
if importlib.util.find_spec({package!r}).origin != {origin!r}:
    os._exit({elsewhere})
"""
ELSEWHERE = 99


@dataclass(frozen=True)
class Mutant:
    """One change: the bytes from ``start`` to ``end`` of a file, which are ``old``, become ``new``."""

    file: str
    function: str
    operator: str
    ordinal: int  # among the changes of its function by the same operator
    line: int
    start: int
    end: int
    old: str
    new: str

    @property
    def key(self) -> str:
        return json.dumps([self.file, self.function, self.operator, self.ordinal, self.old, self.new])

    def __str__(self) -> str:
        old, new = (text if len(text) < 60 else f"{text[:57]}..." for text in map(_one_line, (self.old, self.new)))
        return f"{self.file}:{self.line} {self.function} [{self.operator}] {old} → {new}"

    def splice(self, source: bytes) -> bytes:
        """The source with the change; everything else stays as it is, to the byte."""
        assert source[self.start : self.end].decode() == self.old
        return source[: self.start] + self.new.encode() + source[self.end :]


def find_mutants(root: Path, path: Path, unseen: re.Pattern[str]) -> list[Mutant]:
    """Every change that may be made to a file."""
    source, found = path.read_bytes(), []
    lines = source.splitlines(keepends=True)
    ordinals: Counter[tuple[str, str]] = Counter()
    for function, operator, node, new in _visit(ast.parse(source), "<module>", None, unseen):
        start, end = (
            sum(map(len, lines[: line - 1])) + column
            for line, column in ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        )
        text = ast.unparse(new)
        if isinstance(new, ast.BinOp | ast.BoolOp | ast.Compare | ast.UnaryOp):
            text = f"({text})"  # the new operator may bind less than the old one
        place = (path.relative_to(root).as_posix(), function, operator, ordinals[function, operator])
        found.append(Mutant(*place, node.lineno, start, end, source[start:end].decode(), text))
        ordinals[function, operator] += 1
    return found


def _visit(node: ast.AST, function: str, returns: str | None, unseen: re.Pattern[str]) -> Iterator[tuple[str, str, Any, Any]]:
    """For a node and all below it: the function it is in, the operator, what is replaced and by what."""
    if _is_left_alone(node, function, unseen):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        function = node.name if function == "<module>" else f"{function}.{node.name}"
        annotation = getattr(node, "returns", None)
        returns = ast.unparse(annotation) if annotation else None
    for operator, old, new in _changes(node, returns):
        if operator in ("return", "deletion") or not any(unseen.search(name) for name in _names(old)):
            yield function, operator, old, new
    for field, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        if field in ("annotation", "returns", "decorator_list"):
            continue
        if isinstance(node, ast.arguments) and field in ("defaults", "kw_defaults"):
            named = node.kwonlyargs if field == "kw_defaults" else [*node.posonlyargs, *node.args]
            named = named[len(named) - len(children) :]
            children = [own for argument, own in zip(named, children, strict=True) if not unseen.search(argument.arg)]
        for child in children:
            if isinstance(child, ast.AST):
                yield from _visit(child, function, returns, unseen)


def _changes(node: ast.AST, returns: str | None) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    match node:
        case ast.BinOp(left, op, right) if type(op) in SWAP and not (_is_sequence(left) or _is_sequence(right)):
            yield "arithmetic", node, ast.BinOp(left, SWAP[type(op)](), right)
        case ast.Compare(left, [op, *others], operands):
            yield "comparison", node, ast.Compare(left, [SWAP[type(op)](), *others], operands)
        case ast.BoolOp(op, values):
            yield "and-or", node, ast.BoolOp(SWAP[type(op)](), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield "negation", node, operand
        case ast.If(test) | ast.IfExp(test) if isinstance(test, ast.Name | ast.Attribute | ast.Call):
            yield "negation", test, ast.UnaryOp(ast.Not(), test)
        case ast.Constant(bool() as value):
            yield "constant", node, ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield "constant", node, ast.Constant(value * 2 if isinstance(value, float) and value > 10 else value + 1)
        case ast.Call(ast.Name(name) as called) if name in SWAP:
            yield "extremum", called, ast.Name(SWAP[name])
        case ast.Call(ast.Attribute(value, name) as called) if name in SWAP:
            yield "extremum", called, ast.Attribute(value, SWAP[name])
        case ast.Expr(ast.Call()) | ast.AugAssign():
            yield "deletion", node, ast.Pass()
        case ast.Return(ast.expr() as value) if returns not in (None, "None") and ast.unparse(value) not in ("None", "False"):
            yield "return", value, ast.Constant(None)


def _is_left_alone(node: ast.AST, function: str, unseen: re.Pattern[str]) -> bool:
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.AnnAssign(annotation=ast.Name("TypeAlias")):
            return True
        case ast.Assign(_, ast.Subscript() | ast.BinOp(op=ast.BitOr())) if function == "<module>":
            return True  # a type alias
        case ast.If(test) if {"TYPE_CHECKING", "__name__"} & set(_names(test)):
            return True
        case ast.Assign(targets):
            return any(unseen.search(name) for target in targets for name in _names(target))
        case ast.AnnAssign(target) | ast.AugAssign(target) | ast.Call(target):
            return any(unseen.search(name) for name in _names(target))
        case ast.Expr(ast.Call() as call):
            return any(unseen.search(name) for name in _names(call.func))
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name) | ast.keyword(name):
            return name is not None and unseen.search(name) is not None
    return False


def _names(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name | ast.Attribute):
            yield inner.id if isinstance(inner, ast.Name) else inner.attr


def _is_sequence(node: ast.expr) -> bool:
    return isinstance(node, ast.List | ast.Tuple | ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def sample(root: Path, rooms: Sequence[str], count: int, seed: int, unseen: re.Pattern[str]) -> list[Mutant]:
    """At most ``count`` mutants, one per function, and of each room as many as is its share of the lines."""
    package = package_of(root)
    drawn: dict[str, list[tuple[float, Mutant]]] = {room: [] for room in rooms}
    lines: Counter[str] = Counter()
    for room in rooms:
        for path in sorted((package / room).rglob("*.py")):
            if any(unseen.search(part) for part in path.relative_to(package / room).with_suffix("").parts):
                continue
            lines[room] += len(path.read_bytes().splitlines())
            functions: dict[str, dict[str, list[Mutant]]] = defaultdict(lambda: defaultdict(list))
            for mutant in find_mutants(root, path, unseen):
                functions[mutant.function][mutant.operator].append(mutant)
            for name, operators in functions.items():
                own = random.Random(f"{seed} {path.relative_to(root).as_posix()} {name}")
                drawn[room].append((own.random(), own.choice(operators[own.choice(sorted(operators))])))
        drawn[room].sort(key=lambda entry: entry[0])
    shares = {room: count * lines[room] / max(1, lines.total()) for room in rooms}
    numbers = {room: int(share) for room, share in shares.items()}
    for room in sorted(rooms, key=lambda room: numbers[room] - shares[room])[: count - sum(numbers.values())]:
        numbers[room] += 1  # what rounding down left over, to the largest remainders
    return [mutant for room in rooms for _, mutant in drawn[room][: numbers[room]]]


def package_of(root: Path) -> Path:
    return next((root / "src").glob("*/__init__.py")).parent


class Copy:
    """A copy of the repository in which one mutant at a time is made and tested."""

    def __init__(self, root: Path, folder: Path, options: argparse.Namespace, stopped: threading.Event) -> None:
        def left_out(place: str, names: list[str]) -> set[str]:
            made = {"build", "dist", "site", "results", "figures"} if Path(place) == root else set()
            return {name for name in names if name in made or name.startswith(".") or name == "__pycache__"}

        shutil.copytree(root, folder, ignore=left_out)
        self.root, self.package, self.options, self.stopped = folder, package_of(folder), options, stopped
        with (folder / "conftest.py").open("a") as file:
            file.write(CHECK.format(package=self.package.name, origin=str(self.package / "__init__.py"), elsewhere=ELSEWHERE))
        self.fails_without: dict[str, bool] = {}  # by test

    def examine(self, mutant: Mutant, stages: Sequence[str]) -> dict[str, Any]:
        """Runs the stages until one kills the mutant: its status, by what, and in how many seconds."""
        started, path = time.monotonic(), self.root / mutant.file
        source = path.read_bytes()
        status = by = ""
        for stage in stages:
            tests = self._first_tests(path) if stage == "first" else self._all_tests()
            while True:
                failing = {test for test, fails in self.fails_without.items() if fails}
                left_out = [f"--deselect={test}" for test in failing]
                self._write(path, mutant.splice(source))
                try:
                    # A file that cannot be collected, such as one that registers operators twice, is not deselected: not asked.
                    status, by = self.run([*(test for test in tests if test not in failing), *left_out])
                finally:
                    self._write(path, source)
                if status == "killed" and by not in self.fails_without:
                    self.fails_without[by] = self.run(["-p", "no:xdist", by])[0] != "passed"
                if status == "crash" and self.run([*tests, "--collect-only"])[0] != "passed":
                    raise RuntimeError(f"the tests do not start without a mutant either: {by}")
                if not (status == "killed" and self.fails_without[by]):
                    break  # else once more, without the test that fails in any case
            if status != "passed":
                break
        else:
            status = "survived" if "all" in stages else "passed the first tests"
        return {"status": status, "by": by, "stage": stage, "seconds": round(time.monotonic() - started, 1)}

    def _first_tests(self, path: Path) -> list[str]:
        """A file, the test files that import it, the tests of its room: what exists of them, in this order."""
        dotted = ".".join(path.relative_to(self.package.parent).with_suffix("").parts).removesuffix(".__init__")
        direct = [test for test in sorted((self.root / "tests").rglob("test_*.py")) if dotted in _imports(test)]
        rooms = [self.root / "tests" / room for room in self.options.rooms if path.is_relative_to(self.package / room)]
        return ["-p", "no:xdist", *(str(found.relative_to(self.root)) for found in [path, *direct, *rooms] if found.exists())]

    def _all_tests(self) -> list[str]:
        parallel = ["-n", str(self.options.workers)] if self.options.workers else []
        return [*parallel, "tests", "--pyargs", self.package.name]

    def _write(self, path: Path, source: bytes) -> None:
        path.write_bytes(source)
        for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):  # may be of the same second and size
            stale.unlink()
        shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)  # examples that another mutant failed with

    def run(self, arguments: Sequence[str]) -> tuple[str, str]:
        """Tests passed; or one killed the mutant, and which; or none ended for too long; or all ended outside of a test."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
        environment |= {"PYTHONPATH": str(self.package.parent), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
        with tempfile.TemporaryFile("w+") as output:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
            child = subprocess.Popen(command, cwd=self.root, env=environment, start_new_session=True, **streams)
            if sys.platform == "linux":
                resource.prlimit(child.pid, resource.RLIMIT_DATA, (MEMORY, resource.RLIM_INFINITY))
            size, heard = 0, time.monotonic()
            while child.poll() is None:
                time.sleep(0.1)
                if os.fstat(output.fileno()).st_size != size:  # pytest writes a dot when a test ends
                    size, heard = os.fstat(output.fileno()).st_size, time.monotonic()
                if time.monotonic() - heard > self.options.limit or self.stopped.is_set():
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
                    return "timeout", f"no test ended for {self.options.limit:g} s"
            output.seek(0)
            text = output.read()
        if child.returncode in (0, 5):  # 5: there are no tests
            return "passed", ""
        if child.returncode == ELSEWHERE:
            raise RuntimeError(f"the tests import another {self.package.name} than that of the copy")
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
        return ("killed", failed[1]) if failed else ("crash", f"exit code {child.returncode}: {_one_line(text)[-200:]}")


def _imports(path: Path) -> set[str]:
    """Every module that a file may import: `from a import b` may be of a or of a.b."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def summarise(results: Sequence[dict[str, Any]], mutants: int) -> dict[str, Any]:
    statuses = Counter(result["status"] for result in results)
    met = sum(statuses[status] for status in KILLED) >= LEAST_KILLED * mutants
    return {"mutants": mutants, "done": len(results), **{status: statuses[status] for status in sorted(statuses)}, "met": met}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a JSON file of all results, with which to go on")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="+", default=ROOMS, help="folders of the package")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at once, each in a copy of its own")
    parser.add_argument("--workers", type=int, default=2, help="processes for all tests (pytest -n), or 0")
    parser.add_argument("--limit", type=float, default=300, help="seconds without a test that ends: the mutant hangs")
    parser.add_argument("--exclude", default="", help="a regular expression of further names in which nothing is changed")
    parser.add_argument("--first-stage-only", action="store_true", help="do not run all tests; say which mutants need them")
    parser.add_argument("--again", action="store_true", help="run survivors again: there may be new tests")
    parser.add_argument("--list", action="store_true", help="show the sample and run nothing")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="the repository")
    options = parser.parse_args(arguments)
    unseen = re.compile("|".join(filter(None, (UNSEEN, options.exclude))), re.IGNORECASE)
    root, stopped = options.root.resolve(), threading.Event()
    mutants = sample(root, options.rooms, options.count, options.seed, unseen)
    if options.list:
        print(*mutants, sep="\n")
        return 0
    kept: dict[str, dict[str, Any]] = json.loads(options.out.read_text()) if options.out.exists() else {}
    unfinished = {None, "survived" if options.again else None}
    unfinished |= set() if options.first_stage_only else {"passed the first tests"}
    before = {mutant: kept.get(mutant.key, {}).get("status") for mutant in mutants}
    results = [kept[mutant.key] for mutant in mutants if before[mutant] not in unfinished]
    copies: queue.Queue[Copy] = queue.Queue()

    def work(mutant: Mutant) -> tuple[Mutant, dict[str, Any]]:
        stages = [] if before[mutant] == "passed the first tests" else ["first"]
        copy = copies.get()
        try:
            return mutant, copy.examine(mutant, stages if options.first_stage_only else [*stages, "all"])
        finally:
            copies.put(copy)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        for number in range(options.jobs):
            copies.put(Copy(root, Path(folder).resolve() / str(number), options, stopped))
        try:
            futures = [pool.submit(work, mutant) for mutant in mutants if before[mutant] in unfinished]
            for future in as_completed(futures):
                mutant, result = future.result()
                results.append(asdict(mutant) | result)
                kept[mutant.key] = results[-1]
                part = options.out.with_name(f"{options.out.name}.part")
                part.write_text(json.dumps(kept, indent=1, ensure_ascii=False))
                os.replace(part, options.out)
                print(f"{mutant}: {result['status']} {result['by']} ({result['seconds']:.0f} s)", flush=True)
                print(f"{len(results)} of {len(mutants)}: {summarise(results, len(mutants))}", file=sys.stderr, flush=True)
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)
    for mutant in mutants:
        if (status := kept[mutant.key]["status"]) not in KILLED:
            print(f"{status}: {mutant}")
    broken = {test for copy in copies.queue for test, fails in copy.fails_without.items() if fails}
    for test in sorted(broken):
        print(f"fails without a mutant too, and was left out: {test}")
    summary = summarise(results, len(mutants))
    print(json.dumps(summary))
    return 0 if summary["met"] and not broken else 1


if __name__ == "__main__":
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # a shell's & ignores SIGINT, which would be inherited by the tests of Ctrl-C
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
