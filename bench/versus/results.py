"""What the lines of versus.py say: the times that count, pantile's factors, the floors. No page is made here."""

import json
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, field

import contenders

NO_TORCH = {"pantile", "openblas", "onnxruntime"}
BLUR = 2 << 20  # bytes by which the kernel's counters of a process are off


@dataclass
class Entry:
    """A contender on a case, with the better of its allocators."""

    name: str
    allocator: str
    turns: list
    rejected: int
    check: dict

    @property
    def best(self):
        return min(t["min"] for t in self.turns)

    @property
    def median(self):
        return statistics.median(t["median"] for t in self.turns)

    @property
    def spread(self):
        """By how much the slowest turn's fastest call exceeds the fastest turn's."""
        return max(t["min"] for t in self.turns) / self.best - 1


@dataclass
class Case:
    facts: dict
    entries: list = field(default_factory=list)  # fastest first
    checks: dict = field(default_factory=dict)  # (contender, allocator): what it said before it was timed
    failures: dict = field(default_factory=dict)  # (contender, allocator): reason
    unmeasured: list = field(default_factory=list)  # (contender, allocator): no turn counts

    @property
    def name(self):
        return self.facts["case"]

    @property
    def group(self):
        if self.facts["family"] == "nsa":
            return "NSA prefill" if "prefill" in self.name else "NSA decode"
        if self.facts["backward"]:
            return "HSTU training step"
        return "HSTU jagged" if "jagged" in self.name else "HSTU forward"

    @property
    def titles(self):
        return contenders.titles(self.facts["family"])

    def computes(self, name):
        family = contenders.HSTU if self.facts["family"] == "hstu" else contenders.NSA
        return next(c.computes for c in family if c.name == name)

    def same(self, name):
        return name != "pantile" and self.computes(name) == "the same"

    @property
    def ours(self):
        return next((e for e in self.entries if e.name == "pantile"), None)

    @property
    def rival(self):
        """The fastest that computes the same."""
        return next((e for e in self.entries if self.same(e.name)), None)

    @property
    def yardsticks(self):
        return [e for e in self.entries if self.computes(e.name) != "the same"]

    @property
    def compared(self):
        return bool(self.ours and self.rival)

    @property
    def factor(self):
        return self.rival.best / self.ours.best


def read(path):
    """The machines, and the cases by name."""
    machines, cases, turns, checks, rejected = [], {}, defaultdict(list), {}, defaultdict(int)
    for row in map(json.loads, path.open()):
        key = tuple(row.get(name) for name in ("case", "contender", "allocator"))
        if row["kind"] == "machine":
            machines.append(row)
        elif row["kind"] == "case":
            cases.setdefault(row["case"], Case(row))
        elif row["kind"] == "check":
            checks[key] = row
            cases[row["case"]].failures.pop(key[1:], None)  # an earlier run's
        elif row["kind"] == "failure":
            cases[row["case"]].failures[key[1:]] = row["reason"]
        elif row["kind"] == "turn" and row["counts"]:
            turns[key].append(row)
        elif row["kind"] == "turn":
            rejected[key] += 1
    for key, check in checks.items():
        case, contender, allocator = cases[key[0]], *key[1:]
        case.checks[contender, allocator] = check
        if not turns[key]:
            case.unmeasured.append((contender, allocator))
            continue
        entry = Entry(contender, allocator, turns[key], rejected[key], check)
        other = next((e for e in case.entries if e.name == contender), None)
        if other and other.best <= entry.best:
            continue
        if other:
            case.entries.remove(other)
        case.entries.append(entry)
    for case in cases.values():
        case.entries.sort(key=lambda e: e.best)
    return machines, cases


def peak(machine):
    return machine["probes"][str(machine["threads"])]["peak_gflops"]


# ---- Factors -------------------------------------------------------------------------------------

@dataclass
class Group:
    name: str
    dtype: str
    cases: list  # slowest factor first

    @property
    def mean(self):
        """The geometric one: twice as fast and half as fast make 1."""
        return math.exp(statistics.fmean(math.log(case.factor) for case in self.cases))

    @property
    def losses(self):
        return sum(case.factor < 1 for case in self.cases)


def by_factor(cases):
    return sorted((case for case in cases.values() if case.compared), key=lambda case: case.factor)


def groups(cases):
    found = {}
    for case in by_factor(cases):
        found.setdefault((case.group, case.facts["dtype"]), []).append(case)
    order = ["HSTU forward", "HSTU jagged", "HSTU training step", "NSA decode", "NSA prefill"]
    return [Group(*key, found[key]) for key in sorted(found, key=lambda key: (order.index(key[0]), key[1] != "f32"))]


# ---- Floors --------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Floor:
    """In each case of the groups the fastest of the rivals takes at least `factor` times as long as pantile. rivals:
    the same, torch (those of the same that are torch), or one contender's name."""

    promise: str
    groups: tuple
    dtype: str
    factor: float
    rivals: str
    word: str = ""  # of the case's name

    def takes(self, case):
        return (case.group in self.groups and case.facts["dtype"] == self.dtype and
                (not self.word or self.word in case.name.split()))

    def among(self, case, name):
        if self.rivals == "the same":
            return case.same(name)
        return case.same(name) and name not in NO_TORCH if self.rivals == "torch" else name == self.rivals


FORWARD, STEP = ("HSTU forward", "HSTU jagged"), ("HSTU training step",)
FLOORS = [Floor(f"{title} {dtype}, {against}", groups, dtype, factor, rivals)
          for groups, title in ((FORWARD, "HSTU forward"), (STEP, "HSTU training step"))
          for dtype, factor, rivals, against in (("f32", 2.5, "torch", "fastest torch contender"),
                                                 ("f32", 1.3, "openblas", "loop over OpenBLAS"),
                                                 ("bf16", 1.5, "the same", "fastest contender"))]
FLOORS += [Floor("HSTU jagged f32, fastest torch contender", ("HSTU jagged",), "f32", 4.0, "torch"),
           Floor("NSA decode f32, compiled NSA", ("NSA decode",), "f32", 3.0, "nsa_compiled"),
           Floor("NSA decode bf16, compiled NSA", ("NSA decode",), "bf16", 2.0, "nsa_compiled"),
           Floor("NSA prefill f32 at 64K, SDPA full attention", ("NSA prefill",), "f32", 8.0, "full_sdpa", "64K"),
           Floor("NSA prefill bf16 at 64K, SDPA full attention", ("NSA prefill",), "bf16", 8.0, "full_sdpa", "64K")]


@dataclass
class Verdict:
    promise: str
    floor: str
    weakest: str  # of the cases, with its value
    kept: int
    n: int

    @property
    def word(self):
        return "not measured" if not self.n else "met" if self.kept == self.n else "missed"


def verdict(floor, cases):
    values = []
    for case in filter(floor.takes, cases.values()):
        rival = next((e for e in case.entries if floor.among(case, e.name)), None)
        if case.ours and rival:
            values.append((rival.best / case.ours.best, case.name))
    weakest = f"{min(values)[0]:.2f}x, {min(values)[1]}" if values else "-"
    return Verdict(floor.promise, f"{floor.factor:g}x", weakest, sum(x >= floor.factor for x, _ in values), len(values))


def memory_verdict(cases):
    """Bytes of a call above its arguments, with the default allocator, under which what is freed goes back."""
    values = []
    for case in cases.values():
        extra = {name: check["extra_bytes"] for (name, kind), check in case.checks.items() if kind == "default"}
        ours, others = extra.pop("pantile", None), extra.values()
        if ours is not None and others:
            values.append((ours - min(others), ours, case.name))
    weakest = "-"
    if values:
        above, ours, name = max(values)
        weakest = f"{ours / 2**20:.1f} MiB, least other {(ours - above) / 2**20:.1f}, {name}"
    return Verdict("memory of a call, every contender", f"not above (within {BLUR >> 20} MiB)", weakest,
                   sum(above <= BLUR for above, *_ in values), len(values))


def verdicts(cases):
    return [*(verdict(floor, cases) for floor in FLOORS), memory_verdict(cases)]
