"""The benchmark of the gates as a whole: who is compared with whom, and what it says to people and programs."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean

import pytest
import torch

from boolit.cli import main
from boolit.lab.bench import gates
from boolit.lab.bench import settings as candidates
from boolit.lab.bench.gates import measure_gates
from boolit.lab.bench.presentation import LEGEND, chart, headline, remarks, tables
from boolit.lab.bench.result import GatesResult, TimingGroup, stamp
from boolit.lab.bench.settings import REFERENCES, BenchSettings, Candidate, CandidateKey, TensorCase, parse_settings
from boolit.lab.bench.timing import WARM_UP, Timing
from boolit.lab.results.names import label

pytestmark = pytest.mark.usefixtures("_small_heap")
TINY = (
    "--shape",
    "8x12",
    "--shape",
    "2x12x3",
    "--repeats",
    "2",
    "--threads",
    "1",
    "--activations",
    "or_ail,xnor_il,or_and_xnor_ail_d",
)


@pytest.fixture(scope="module")
def result() -> GatesResult:
    return measure_gates(
        parse_settings(["8x12", "2x12x3"], specs=["or_ail,xnor_il", "or_and_xnor_ail_d", "tanh"], repeats=2), threads=1
    )


def test_the_chart_has_the_fastest_first_as_multiples_of_relu(result: GatesResult) -> None:
    figure = chart(result)
    groups = [group for group in result.groups if not group.call and group.direction == "forward+backward"]
    names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    specs = ["or_ail", "xnor_il", "or_and_xnor_ail_d", "tanh"]
    assert sorted(names) == sorted(label(name) for name in [*specs, *REFERENCES])
    drawn = []
    for panel, group in zip(figure.axes, groups, strict=True):
        assert panel.get_xscale() == "log"
        relu = group.timings[CandidateKey("torch", "relu")]
        lines = [line for line in panel.lines if line.get_label() in ("boolit", "torch")]
        times = {names[int(line.get_ydata()[0])]: float(line.get_xdata()[0]) for line in lines}
        for maker, own in (("boolit", specs), ("torch", REFERENCES)):
            for name in own:
                assert times[label(name)] == pytest.approx(group.timings[CandidateKey(maker, name)].ratio(relu))
        drawn.append(times)
        assert times["ReLU"] == 1
        assert any(set(line.get_xdata()) == {1} and line.get_linestyle() == "--" for line in panel.lines)
        assert sum(line.get_label() == "published package" for line in panel.lines) == 3  # it has no tanh of its own
    means = [geometric_mean([times[name] for times in drawn]) for name in names]
    assert means == sorted(means)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(LEGEND)


class TestRun:
    def test_groups(self, result: GatesResult) -> None:
        big, small = result.groups[:4], result.groups[4:]
        assert [(group.case, group.direction) for group in big] == [
            (case, direction)
            for case in (TensorCase((8, 12), -1), TensorCase((2, 12, 3), 1))
            for direction in ("forward", "forward+backward")
        ]
        assert [group.style for group in small] == ["module", "module", "function", "function"]
        assert [group.call for group in result.groups] == [False] * 4 + [True] * 4
        assert all(group.specs == ["or_ail", "xnor_il", "or_and_xnor_ail_d", "tanh"] for group in [*big, *small[:2]])

    def test_everyone_is_compared_with_everyone(self, result: GatesResult) -> None:
        for group in result.groups[:4]:
            assert set(group.ratios("or_ail")) == {*REFERENCES, "published"}
            assert set(group.ratios("tanh")) == {*REFERENCES}
            assert all(0 < timing.minimum <= timing.median for timing in group.timings.values())

    def test_the_bars_are_on_forward_with_backward_and_on_calls(self, result: GatesResult) -> None:
        bars = [[name for name, ratio in group.ratios("xnor_il").items() if ratio.bar is not None] for group in result.groups]
        assert bars == [[], ["silu", "published"]] * 2 + [[]] * 2 + [["relu"]] * 2

    def test_bytes_kept(self, result: GatesResult) -> None:
        assert result.worst_kept(CandidateKey("boolit", "xnor_il")) == 4
        assert result.kept[TensorCase((8, 12), -1)][CandidateKey("boolit", "or_ail")] == 1 / 8
        assert result.worst_kept(CandidateKey("torch", "copy")) == 0
        assert result.worst_kept(CandidateKey("compiled", "or_ail")) is None

    def test_it_leaves_torch_as_it_was(self, result: GatesResult) -> None:
        del result
        before = torch.get_num_threads()
        measure_gates(BenchSettings((TensorCase((4, 4), -1),), ("or_ail",), 1), threads=before + 1)
        assert torch.get_num_threads() == before
        assert torch.is_grad_enabled()

    def test_progress_adds_up_to_the_whole(self) -> None:
        shares: list[float] = []
        measure_gates(
            BenchSettings((TensorCase((4, 4), -1),), ("or_ail",), 2), lambda _, share: shares.append(share), threads=1
        )
        assert sum(shares) == pytest.approx(1)

    def test_forward_is_timed_without_gradients_and_a_backward_starts_from_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[tuple[bool, bool]] = []

        def watched(x: torch.Tensor) -> torch.Tensor:
            calls.append((torch.is_grad_enabled(), x.grad is None))
            return x.relu()

        monkeypatch.setattr(candidates, "boolit_modules", lambda *_: [Candidate(CandidateKey("boolit", "or_ail"), watched, 2)])
        measure_gates(BenchSettings((TensorCase((4, 4), -1),), ("or_ail",), 2), threads=1)
        backwards = [clean for enabled, clean in calls if enabled]
        assert len(backwards) == 1 + 1 + (2 + WARM_UP) * (1 + gates.SMALL_CALLS)  # counting bytes, trying, timing
        assert all(backwards)

    def test_another_type(self) -> None:
        half = measure_gates(BenchSettings((TensorCase((4, 4), -1),), ("xnor_il",), 1, torch.bfloat16), threads=1)
        assert half.kept[TensorCase((4, 4), -1)][CandidateKey("boolit", "xnor_il")] == half.kept_bar("xnor_il") == 2

    def test_a_group_that_does_not_divide_eight_gets_its_multiple(self) -> None:
        wide = measure_gates(BenchSettings((TensorCase((2, 9), -1),), ("or_ail_k3",), 1), threads=1)
        assert all("or_ail_k3" in group.specs for group in wide.groups[:4])
        assert "torch glu" in wide.skipped  # 9 channels have no halves
        assert remarks(wide)[0].startswith("left out: torch glu (RuntimeError ")

    def test_without_the_published_package_the_rest_is_measured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pytorch_logit_logic", None)
        alone = measure_gates(BenchSettings((TensorCase((4, 4), -1),), ("or_ail",), 1), threads=1)
        assert remarks(alone)[0] == "left out: published (not installed; pip install pytorch-logit-logic==1.0.0)"
        assert tables(alone)[0].headings == ["spec", "ms", "median", *REFERENCES]
        assert tables(alone)[-1].rows[0][2] == "–"

    def test_without_a_compiler_the_compiled_formulas_are_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(_: object) -> torch.Tensor:
            raise RuntimeError("backend failed:\nno compiler\nmuch more")

        found = [Candidate(CandidateKey("compiled", spec), refuse, 2) for spec in ("or_ail", "or_il")]
        monkeypatch.setattr(candidates, "compiled_formulas", lambda *_: found)
        without = measure_gates(BenchSettings((TensorCase((4, 4), -1),), ("or_ail", "or_il"), 1, compiled=True), threads=1)
        assert remarks(without)[0] == "left out: compiled or_ail, compiled or_il (RuntimeError backend failed: no compiler)"

    def test_a_failure_of_our_own_is_not_hidden(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(_: object) -> torch.Tensor:
            raise RuntimeError("a bug")

        monkeypatch.setattr(candidates, "boolit_modules", lambda *_: [Candidate(CandidateKey("boolit", "or_ail"), fail, 2)])
        with pytest.raises(RuntimeError, match="a bug"):
            measure_gates(BenchSettings((TensorCase((4, 4), -1),), ("or_ail",), 1), threads=1)


class TestVerdicts:
    """A made-up run, whose ratios are known."""

    @staticmethod
    def made_up(ours: float, paired: float = 1.0) -> GatesResult:
        rounds = {"relu": 1.0, "silu": 2.0, "gelu": 2.0, "glu": 2.0, "copy": 0.5}
        timings = {CandidateKey("torch", name): Timing({0: seconds, 1: seconds}) for name, seconds in rounds.items()}
        timings |= {
            CandidateKey("boolit", "or_ail"): Timing({0: ours, 1: ours * paired}),
            CandidateKey("published", "or_ail"): Timing({1: 15.0}),
        }
        case = TensorCase((4, 4), -1)
        groups = [TimingGroup(case, "forward+backward", timings), TimingGroup(case, "forward", timings, "function", call=True)]
        kept = {case: {CandidateKey("boolit", "or_ail"): 0.125, CandidateKey("published", "or_ail"): 8.5}}
        return GatesResult(stamp(), BenchSettings((case,), ("or_ail",), 2), groups, kept, {})

    def test_cells(self) -> None:
        times, calls = tables(self.made_up(0.5))
        assert times.title == "4×4, dim −1: forward+backward"
        assert times.rows == [["or_ail", "500", "500", "0.50 ≤0.8 ✓", "0.25", "0.25", "0.25", "1.00", "30.0× ≥20 ✓"]]
        assert times.references[1][:3] == ["silu", "2000", "2000"]
        assert calls.rows == [["or_ail", "0.125 ≤0.125 ✓", "8.5", "0.50 ✓"]]

    @pytest.mark.parametrize(
        ("ours", "met"), [(0.7, [True] * 4), (0.82, [False, False, True, True]), (3.0, [False, False, False, True])]
    )
    def test_each_bar_is_judged_by_itself(self, ours: float, met: list[bool]) -> None:
        assert self.made_up(ours).verdicts() == met

    def test_a_busy_machine_is_told(self) -> None:
        assert remarks(self.made_up(0.5)) == []
        (line,) = remarks(self.made_up(0.5, paired=2.0))
        assert "50% apart" in line


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """``boolit bench …`` in this process: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "100")

    def command(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            main(["bench", *arguments])
        captured = capsys.readouterr()
        assert isinstance(exit_.value.code, int)
        return exit_.value.code, captured.out, captured.err

    return command


class TestGpu:
    """As far as it goes without one."""

    SETTINGS = BenchSettings((TensorCase((4, 4), -1),), ("or_ail",), 2, device=torch.device("cuda", 0))

    def test_work_is_timed_by_events_and_calls_by_the_clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gates, "GpuEvents", lambda gpu, device: (gpu, device))
        waits: list[int] = []
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
        bench = gates._Bench(self.SETTINGS, lambda *_: None)
        assert bench.watch(1) == (torch.cuda, self.SETTINGS.device)
        watch = bench.watch(gates.SMALL_CALLS)
        watch.start()
        watch.stop()
        assert waits == [1, 1]

    def test_the_report_names_the_device_and_holds_no_time_against_a_bar(self) -> None:
        key = CandidateKey("boolit", "or_ail"), CandidateKey("torch", "relu")
        timings = dict.fromkeys(key, Timing({0: 1.0}))
        groups = [TimingGroup(self.SETTINGS.cases[0], "forward+backward", timings, barred=self.SETTINGS.has_bars)]
        stamped = stamp() | {"device": "cuda:0 (A GPU)", "gpu_kernels": "Triton 3.9.0", "gpu_kernels_active": True}
        result = GatesResult(stamped, self.SETTINGS, groups, {self.SETTINGS.cases[0]: {key[0]: 1 / 8}}, {})
        assert headline(result).startswith("cuda:0 (A GPU); torch ")
        assert "boolit's kernels by Triton 3.9.0" in headline(result)
        assert result.verdicts() == [True]  # bytes kept
        assert result.to_json()["settings"]["device"] == "cuda:0"  # type: ignore[index,call-overload]

    @pytest.mark.skipif(torch.cuda.is_available(), reason="here it would measure")
    def test_where_there_is_none_one_line_says_so(self, command: Run) -> None:
        code, out, err = command("gates", *TINY, "--device", "cuda")
        assert (code, out) == (2, "")
        assert err.splitlines() == ["error: there is no device 'cuda' here; torch can use cpu"]


class TestCommand:
    def test_tables_within_100_columns(self, command: Run) -> None:
        code, out, _ = command("gates", *TINY)
        assert code == 0  # whatever the figures
        lines = out.splitlines()
        assert max(map(len, lines)) <= 100
        assert sum(line.startswith("or_and_xnor_ail_d ") for line in lines) == 5
        assert "8×12, dim −1: forward+backward" in lines
        assert "✓" in out
        assert "≤0.7" in out
        assert "≥20" in out

    def test_json_and_chart(self, command: Run, tmp_path: Path) -> None:
        file = tmp_path / "chart.png"
        code, out, err = command("gates", *TINY, "--json", "--chart", str(file))
        record = json.loads(out)
        assert (code, err.split()[0]) == (0, "wrote")
        assert (record["benchmark"], record["format"], record["stamp"]["threads"]) == ("gates", 1, 1)
        assert record["settings"]["shapes"] == [[8, 12], [2, 12, 3]]
        assert len(record["times"]) == 4 * (3 + 5 + 3) + 2 * (3 + 5) + 2 * (2 + 5)
        ratio = next(each for each in record["ratios"] if each["against"] == "relu" and each["direction"] == "forward+backward")
        assert (ratio["spec"], ratio["bar"], ratio["met"]) == ("or_ail", 0.8, ratio["ratio"] <= 0.8)
        kept = {
            entry["name"]: entry["bytes"]
            for entry in record["kept"]
            if entry["maker"] == "boolit" and entry["shape"] == [8, 12]
        }
        assert kept["or_ail"] == 1 / 8
        judged = [each["met"] for each in [*record["ratios"], *record["kept"]] if each["met"] is not None]
        assert 0 < record["bars"]["all"] <= len(judged)
        width, height = struct.unpack(">II", file.read_bytes()[16:24])
        assert width > 2 * height > 400

    def test_without_a_name_it_shows_what_there_is(self, command: Run) -> None:
        code, out, _ = command()
        assert code == 0
        assert "\n  gates " in out

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            (("gatez",), "'gatez'"),
            (("gates", "--shape", "8by8"), "'8by8'"),
            (("gates", "--shape", "0x8"), "'0x8'"),
            (("gates", "--shape", "8x7"), "got 7"),
            (("gates", "--shape", "8x8", "--dim", "2"), "--dim 2"),
            (("gates", "--dim", "1"), "--dim"),
            (("gates", "--activations", "or_bil"), "'or_bil'"),
            (("gates", "--repeats", "0"), "--repeats"),
            (("gates", "--threads", "0"), "--threads"),
            (("gates", "--dtype", "int8"), "'int8'"),
            (("gates", "--chart", "ratios.gif"), "'ratios.gif'"),
            (("gates", "--chart", "no-such-folder/ratios.png"), "no-such-folder"),
        ],
    )
    def test_bad_input_is_one_line_before_anything_is_measured(
        self, command: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], named: str
    ) -> None:
        monkeypatch.setattr(gates, "measure_gates", None)
        code, out, err = command(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert named in err
