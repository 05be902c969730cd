"""The parts of the benchmark of the gates: its clockwork on a fake clock, its counting of bytes, its bars and candidates."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import boolit
from boolit.errors import UserError
from boolit.lab.bench import settings as candidates
from boolit.lab.bench.result import call_bar, cpu_model, kept_bar, stamp, time_bars
from boolit.lab.bench.settings import CASES, DIRECTIONS, SPECS, BenchSettings, parse_settings
from boolit.lab.bench.timing import WARM_UP, GpuEvents, TimedCall, Timing, WallClock, bytes_kept, interleave

pytestmark = pytest.mark.usefixtures("_small_heap")


class Clock:
    """Stands still but for what the tasks add to it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def task(
        self, key: str, durations: list[float], log: list[str] | None = None, reset: float = 0.0, stride: int = 1
    ) -> TimedCall[str]:
        """Takes the durations in turn, the last one ever after."""
        left = list(durations)

        def call() -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]
            if log is not None:
                log.append(key)

        def forget() -> None:
            self.now += reset

        return TimedCall(key, call, forget, stride)


class Gpu:
    """As much of torch.cuda as events need: it does what it was given to do when it is waited for."""

    def __init__(self) -> None:
        self.now, self.queue = 0.0, list[Callable[[], None]]()

    def give(self, seconds: float) -> None:
        """Some work."""
        self.queue.append(lambda: setattr(self, "now", self.now + seconds))

    def synchronize(self) -> None:
        """Does it."""
        while self.queue:
            self.queue.pop(0)()

    def Event(self, enable_timing: bool) -> Event:  # noqa: N802 (torch's name)
        """A mark in the queue."""
        assert enable_timing
        return Event(self)


class Event:
    """A mark in the queue; the time between two is in milliseconds."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.time, self.synchronize = gpu, math.nan, gpu.synchronize

    def record(self) -> None:
        """Marks the place."""
        self.gpu.queue.append(lambda: setattr(self, "time", self.gpu.now))

    def elapsed_time(self, end: Event) -> float:
        """To another mark."""
        return 1e3 * (end.time - self.time)


class TestGpuClocks:
    def test_events_tell_what_the_gpu_does_whatever_python_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(GpuEvents, "CLEARED", 8)
        gpu, clock = Gpu(), Clock()

        def call() -> None:
            clock.now += 5  # Python's own time
            gpu.give(0.25)

        task = TimedCall("a", call, reset=lambda: gpu.give(3.0))
        timing = interleave([task], rounds=2, watch=GpuEvents(gpu, torch.device("cpu")))["a"]
        assert dict(timing.rounds) == {0: 0.25, 1: 0.25}

    def test_a_call_is_over_when_the_gpu_is_done(self) -> None:
        clock, log = Clock(), list[str]()
        task = clock.task("call", [0.5], log, reset=7.0)
        timing = interleave([task], rounds=1, calls=2, watch=WallClock(clock, lambda: log.append("wait")))["call"]
        assert timing.minimum == 0.5
        assert log[-4:] == ["wait", "call", "call", "wait"]


class TestInterleaving:
    def test_minimum_median_and_both_ratios(self) -> None:
        clock = Clock()
        unmeasured = [100.0] * WARM_UP
        tasks = [clock.task("a", [*unmeasured, 6, 2, 4]), clock.task("b", [*unmeasured, 3, 2, 8])]
        a, b = interleave(tasks, rounds=3, watch=WallClock(clock)).values()
        assert (a.minimum, a.median, b.minimum, b.median) == (2, 4, 2, 3)
        assert (a.ratio(b), a.paired_ratio(b)) == (1, 1)
        assert dict(a.rounds) == {0: 6, 1: 2, 2: 4}

    def test_a_ratio_is_over_the_rounds_both_took_part_in(self) -> None:
        often, seldom = Timing({0: 1.0, 1: 2.0, 2: 4.0}), Timing({1: 8.0, 2: 8.0})
        assert (often.ratio(seldom), seldom.ratio(often)) == (0.25, 4.0)
        assert often.paired_ratio(seldom) == (0.25 + 0.5) / 2

    def test_every_round_holds_every_task_once_in_changing_order(self) -> None:
        clock, log = Clock(), []
        interleave([clock.task(key, [1.0], log) for key in "abcd"], rounds=8, watch=WallClock(clock))
        rounds = ["".join(log[start : start + 4]) for start in range(0, len(log), 4)]
        assert len(rounds) == WARM_UP + 8
        assert {"".join(sorted(each)) for each in rounds} == {"abcd"}
        assert len(set(rounds)) > 3

    def test_a_drift_of_the_machine_leaves_the_ratios_alone(self) -> None:
        clock = Clock()
        tasks = [clock.task(key, [scale * 1.1**n for n in range(40)]) for key, scale in (("slow", 3.0), ("fast", 1.0))]
        slow, fast = interleave(tasks, rounds=20, watch=WallClock(clock)).values()
        assert slow.paired_ratio(fast) == pytest.approx(3)
        assert slow.ratio(fast) == pytest.approx(3)

    def test_the_reset_is_not_timed_and_a_sample_is_the_mean_of_its_calls(self) -> None:
        clock, log = Clock(), []
        timing = interleave([clock.task("a", [0.5], log, reset=7.0)], rounds=2, calls=10, watch=WallClock(clock))["a"]
        assert timing.rounds == pytest.approx({0: 0.5, 1: 0.5})
        assert len(log) == 10 * (2 + WARM_UP)

    @pytest.mark.parametrize(("rounds", "samples"), [(1, 1), (2, 1), (12, 3), (13, 3)])
    def test_slow_tasks_take_part_in_some_rounds_and_never_in_none(self, rounds: int, samples: int) -> None:
        clock = Clock()
        tasks = [clock.task("fast", [1.0]), *(clock.task(f"slow {n}", [5.0], stride=4) for n in range(6))]
        timings = interleave(tasks, rounds, watch=WallClock(clock))
        fast = timings.pop("fast")
        assert len(fast.rounds) == rounds
        for timing in timings.values():
            assert samples <= len(timing.rounds) <= samples + 1
            assert timing.paired_ratio(fast) == 5

    def test_the_collector_sleeps_meanwhile_and_is_woken_even_by_a_failure(self) -> None:
        seen: list[bool] = []
        interleave([TimedCall("a", lambda: seen.append(gc.isenabled()))], rounds=2)
        assert seen == [False] * (2 + WARM_UP)
        assert gc.isenabled()
        with pytest.raises(ZeroDivisionError):
            interleave([TimedCall("a", lambda: 1 // 0)], rounds=1)
        assert gc.isenabled()

    def test_the_report_comes_between_rounds(self) -> None:
        clock, log = Clock(), []
        interleave(
            [clock.task(key, [1.0], log) for key in "ab"], 2, watch=WallClock(clock), after_round=lambda: log.append("|")
        )
        assert [len(part) for part in "".join(log).split("|")] == [2] * (2 + WARM_UP) + [0]


class TestBytesKept:
    X = torch.randn(64, 64, requires_grad=True)

    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            ("or_ail", 1 / 8),
            ("and_nail", 1 / 8),
            ("xnor_ail", 1 / 8),
            ("or_and_xnor_ail_d", 3 / 8),
            ("or_il", 4),
            ("xnor_nil", 4),
        ],
    )
    def test_of_our_gates_per_element(self, spec: str, expected: float) -> None:
        assert bytes_kept(boolit.activation(spec), self.X) / self.X.numel() == expected

    def test_of_an_exact_gate_in_double_precision(self) -> None:
        assert bytes_kept(boolit.activation("or_il"), self.X.detach().double().requires_grad_()) == 8 * self.X.numel()

    def test_of_what_torch_keeps(self) -> None:
        size = 4 * self.X.numel()
        assert bytes_kept(torch.clone, self.X) == 0
        assert bytes_kept(nn.ReLU(), self.X) == size  # its output
        assert bytes_kept(lambda x: x * x, self.X) == size  # its input, saved twice
        assert bytes_kept(lambda x: x[:1].sin(), self.X) == size  # a view keeps the whole
        assert bytes_kept(lambda x: x.exp() * x, self.X) == 2 * size

    def test_counts_although_gradients_are_off_outside(self) -> None:
        with torch.no_grad():
            assert bytes_kept(torch.sin, self.X) == 4 * self.X.numel()


class TestBars:
    """As issue and docs state them."""

    def test_of_the_default_specs(self) -> None:
        for spec in SPECS:
            xnor, cheap = "xnor" in spec, "ail" in spec
            for rank, of_relu in ((2, 0.8), (4, 0.72)):
                expected = {"relu": of_relu} if cheap else {"silu": 0.8 if xnor else 0.7}
                if spec == "or_and_xnor_ail_d":
                    expected = {"silu": 0.9}
                assert time_bars(spec, rank) == expected | {"published": 1 / 20 if cheap and not xnor else 1 / 10}
            assert [call_bar(spec, "function", direction) for direction in DIRECTIONS] == [1.6, 1.5]
            assert call_bar(spec, "module", "forward") is None

    def test_bytes(self) -> None:
        assert [kept_bar(spec, 4) for spec in ("or_nail", "xnor_il", "or_xnor_ail_d", "relu")] == [1 / 8, 4, None, None]

    @pytest.mark.parametrize("spec", ["relu", "max", "glu", "max+xnor_ail_d"])
    def test_baselines_have_none(self, spec: str) -> None:
        assert (time_bars(spec), call_bar(spec, "function", "forward")) == ({}, None)

    def test_other_ensembles_are_held_against_the_published_ones_only(self) -> None:
        assert time_bars("or_xnor_nail_p") == {"published": 1 / 10}
        assert time_bars("or_il+xnor_ail_d") == {}


class TestCandidates:
    @pytest.mark.parametrize("dim", [-1, 1])
    def test_the_published_ones_compute_what_ours_do(self, dim: int) -> None:
        x = torch.randn(6, 12, generator=torch.Generator().manual_seed(3))
        specs = [*(spec for spec in SPECS if "_d" not in spec), "or_ail_k3", "or_xnor_nil_p", "or_xnor_il_d"]
        found = candidates.published_modules(specs, dim)
        assert [candidate.key.name for candidate in found] == specs
        for candidate in found:
            torch.testing.assert_close(
                candidate.function(x), boolit.activation(candidate.key.name, dim)(x), atol=2e-3, rtol=1e-3
            )

    def test_what_the_published_package_lacks_is_not_among_them(self) -> None:
        assert (
            candidates.published_modules(["nand_ail", "or_ail_halves", "or_and_xnor_ail_pu", "relu", "or_il+xnor_ail_d"], -1)
            == []
        )

    def test_functions_are_those_of_the_specs(self) -> None:
        found = {candidate.key.name: candidate.function for candidate in candidates.boolit_functions(SPECS)}
        assert set(found) == set(SPECS) - {"or_and_xnor_ail_d"}
        assert found["xnor_nil"] is boolit.functional.xnor_nil

    def test_formulas_to_be_compiled_are_right_and_share_no_code_object(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch, "compile", lambda function, **_: function)
        x = torch.randn(4, 12)
        found = candidates.compiled_formulas(["or_ail", "xnor_il", "or_and_xnor_ail_d", "relu"], 1)
        assert len(found) == 3
        assert len({id(candidate.function.__code__) for candidate in found}) == 3  # type: ignore[attr-defined]
        for candidate in found:
            torch.testing.assert_close(candidate.function(x), boolit.activation(candidate.key.name, 1)(x))


class TestSettings:
    def test_defaults_are_what_the_bars_are_set_for(self) -> None:
        assert parse_settings() == BenchSettings(CASES, SPECS)
        assert [(case.shape, case.dim) for case in CASES] == [((1024, 1024), -1), ((64, 64, 32, 32), 1)]
        assert len(SPECS) == len(set(SPECS)) == 13

    def test_specs_are_spelt_one_way_and_kept_once(self) -> None:
        assert parse_settings(["4x4"], specs=["or_ail_k2,or_ail", "or_ail"]).specs == ("or_ail",)

    def test_one_dim_a_shape(self) -> None:
        assert [case.dim for case in parse_settings(["4x4", "4x4x4"], [0, -2]).cases] == [0, -2]
        with pytest.raises(UserError, match="1 times --dim do not go with 2 shapes"):
            parse_settings(["4x4", "4x4"], [0])


def test_the_stamp_says_how_both_sides_were_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    monkeypatch.setenv("BOOLIT_INSTRUCTIONS", "x86-64-v3")
    stamped = stamp()
    environment = stamped["environment"]
    assert isinstance(environment, dict)
    assert (environment["ATEN_CPU_CAPABILITY"], environment["BOOLIT_INSTRUCTIONS"]) == ("avx2", "x86-64-v3")
    assert {"date", "cpu", "threads", "torch", "boolit", "published", "kernels", "torch_instructions"} <= set(stamped)
    assert "/" not in json.dumps({name: stamped[name] for name in ("cpu", "system", "environment")})


def test_the_processor_is_known_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nmodel name\t: A Fine CPU @ 3 GHz\nprocessor\t: 1\nmodel name\t: Another\n")
    assert cpu_model(file) == "A Fine CPU @ 3 GHz"
    assert cpu_model(tmp_path / "none")


def test_the_readme_says_of_speed_what_was_measured() -> None:
    root = Path(__file__).parents[3]
    ratios = [
        own["ratio"]
        for name in ("gates-avx2", "gates-avx512", "gates-zen3")
        for own in json.loads((root / "benchmarks" / "results" / f"{name}.json").read_text())["ratios"]
        if own["kind"] == "tensor" and own["against"] == "relu" and own["direction"] == "forward+backward"
        if own["style"] == "module" and own["spec"].endswith("ail")
    ]
    text = " ".join((root / "README.md").read_text(encoding="utf-8").split())
    assert f"a million numbers and more | 1 | AIL gates {min(ratios):.2f} to {max(ratios):.2f} |" in text
    assert "cheaper than ReLU" not in text, "without the condition it is not so"
