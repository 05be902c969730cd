"""The dataset iraven: the problems of its files, reordered but never altered, and nothing read before it is needed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.random import keys
from boolit.lab.datasets import Dataset, load, source
from boolit.lab.datasets.raven import files
from boolit.lab.datasets.raven.configurations import CONFIGURATIONS
from boolit.lab.datasets.raven.drawing import draw_problem
from boolit.lab.datasets.raven.files import file_name, generate
from boolit.lab.datasets.raven.problems import make_problem
from boolit.lab.datasets.raven.samples import downscale

TWO = ["distribute_four", "center_single"]
OPTIONS = {"name": "iraven", "configurations": TWO, "problems": 20, "seed": 3}
SAMPLES = {"train": 24, "valid": 8, "test": 8}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the problems made."""
    folder = tmp_path_factory.mktemp("data")
    generate(folder / "iraven" / "3-v1", TWO, 20, 3)
    return folder


@pytest.fixture
def dataset(home: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setenv("BOOLIT_DATA", str(home))
    return source(OPTIONS).load()


def refuse(*_: object) -> None:
    raise AssertionError("a problem was made or read")


def original(split: str, sample: int) -> tuple[Tensor, int]:
    """What a sample should be, by the rule of the files' names."""
    indices = [index for index in range(20) if file_name(index).endswith(f"_{'val' if split == 'valid' else split}.npz")]
    made = make_problem(TWO[sample // len(indices)], 3, indices[sample % len(indices)])
    return torch.from_numpy(draw_problem(made)).float(), made.target


def test_every_sample_is_its_problem(dataset: Dataset) -> None:
    assert (dataset.task, dataset.outputs, dataset.inputs) == ("classes", 8, (16, 160, 160))
    assert {name: len(split) for name, split in dataset.splits.items()} == SAMPLES
    for name, split in dataset.splits.items():
        seen = dataset.encode(split.x)
        assert (seen.dtype, seen.shape) == (torch.float32, (len(split), 16, 160, 160))
        for sample in range(0, len(split), 3):
            images, target = original(name, sample)
            assert torch.equal(seen[sample], images)
            assert split.y[sample] == target
        assert (split.y.dtype, split.y.shape) == (torch.int64, (len(split),))


def test_encoding_takes_any_axes_before_the_samples_own(dataset: Dataset) -> None:
    x = dataset.splits["train"].x[[5, 20, 1, 13]]
    assert torch.equal(dataset.encode(x.view(2, 2, -1)).flatten(0, 1), dataset.encode(x))
    assert torch.equal(dataset.encode(x)[1], dataset.encode(dataset.splits["train"].x)[20])


def test_nothing_is_made_before_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path))
    whole = source({"name": "iraven"}).load()
    assert {name: len(split) for name, split in whole.splits.items()} == {"train": 42_000, "valid": 14_000, "test": 14_000}
    assert whole.inputs == (16, 160, 160)
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_made_and_what_was_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path))
    few = OPTIONS | {"configurations": TWO[1:], "problems": 10, "side": 20}
    source(few).prepare()
    folder = tmp_path / "iraven" / "3-v1" / TWO[1]
    assert len(list(folder.iterdir())) == 10
    before = source(few).load()
    seen, targets = before.encode(before.splits["test"].x), before.splits["test"].y
    for path in folder.iterdir():
        path.unlink()
    with monkeypatch.context() as patched:
        patched.setattr(files, "make_problem", refuse)
        again = source(few).load()
        assert torch.equal(again.encode(again.splits["test"].x), seen)
        assert torch.equal(again.splits["test"].y, targets)
    more = source(few | {"problems": 12}).load()
    assert torch.equal(more.encode(more.splits["test"].x)[:2], seen)
    assert len(more.splits["train"].y) == 8


@pytest.mark.usefixtures("dataset")
def test_an_interrupted_reading_goes_on(home: Path) -> None:
    side = OPTIONS | {"side": 10}
    whole = source(side).load()
    seen, targets = whole.encode(whole.splits["train"].x), whole.splits["train"].y.clone()
    kept = home / "iraven" / "3-v1" / "mapped"
    (kept / "center_single-10.answers").write_bytes((kept / "center_single-10.answers").read_bytes()[:7])
    (kept / "distribute_four-10.pictures").write_bytes((kept / "distribute_four-10.pictures").read_bytes()[:5000])
    again = source(side).load()
    assert torch.equal(again.encode(again.splits["train"].x), seen)
    assert torch.equal(again.splits["train"].y, targets)


@pytest.mark.parametrize("side", [8, 40, 64, 100])
def test_scaling_keeps_means_and_averages_areas(side: int) -> None:
    images = draw_problem(make_problem("center_single", 1, 0))
    small = downscale(images, side)
    assert (small.dtype, small.shape) == (np.uint8, (16, side, side))
    assert small.mean() == pytest.approx(images.mean(), abs=0.3)
    if 160 % side == 0:
        blocks = images.reshape(16, side, 160 // side, side, 160 // side).mean((2, 4))
        assert np.abs(small - blocks).max() <= 0.5 + 1e-3
    assert (downscale(np.full((1, 160, 160), 77, np.uint8), side) == 77).all()
    assert downscale(images, 160) is images


def test_a_draw_permutes_candidates_and_may_exchange_two_rows(dataset: Dataset) -> None:
    assert dataset.draw
    train = dataset.splits["train"]
    x, y = train.x.expand(2, -1, -1), train.y.expand(2, -1)
    new_x, new_y = dataset.draw(x, y, keys([1, 2], "draw"), 5)
    assert (new_x.shape, new_x.dtype, new_y.shape, new_y.dtype) == (x.shape, x.dtype, y.shape, y.dtype)
    seen, before = dataset.encode(new_x), dataset.encode(train.x)
    rows = [3, 4, 5, 0, 1, 2, 6, 7]
    for run in range(2):
        for sample in range(len(train)):
            now, then = seen[run, sample], before[sample]
            assert torch.equal(now[:8], then[:8]) or torch.equal(now[:8], then[rows])
            assert torch.equal(now[8 + new_y[run, sample]], then[8 + train.y[sample]])
            assert {panel.numpy().tobytes() for panel in now[8:]} == {panel.numpy().tobytes() for panel in then[8:]}


def test_draws_are_uniform_and_belong_to_run_and_step(dataset: Dataset) -> None:
    assert dataset.draw
    x = dataset.splits["train"].x[:1].expand(1, 8000, -1)
    y = torch.full((1, 8000), 6)
    new_x, new_y = dataset.draw(x, y, keys([7], "draw"), 0)
    assert ((new_y[0].bincount(minlength=8) - 1000).abs() < 4 * (1000 * 7 / 8) ** 0.5).all()
    assert (new_x[0, :, 9:].sort(1).values == torch.arange(8, 16)).all()
    assert (new_x[0].gather(1, 9 + new_y.T) == 8 + 6).all()
    assert abs((new_x[0, :, 1] == 3).float().mean() - 0.5) < 4 * 0.5 / 8000**0.5
    both = dataset.draw(x.expand(2, -1, -1), y.expand(2, -1), keys([9, 7], "draw"), 0)
    assert torch.equal(both[0][1], new_x[0])
    assert torch.equal(both[1][1], new_y[0])
    assert not torch.equal(both[0][0], new_x[0])
    assert not torch.equal(dataset.draw(x, y, keys([7], "draw"), 1)[0], new_x)


@pytest.mark.parametrize("split", ["valid", "test"])
def test_extra_metrics_count_hits_of_each_configuration(dataset: Dataset, split: str) -> None:
    assert dataset.extra_metrics
    outputs = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(0))
    outputs[1] = torch.nn.functional.one_hot(dataset.splits[split].y, 8).float()
    metrics = dataset.extra_metrics(split, outputs)
    assert set(metrics) == {"accuracy_distribute_four", "accuracy_center_single"}
    for run in range(3):
        for number, name in enumerate(TWO):
            hits = [int(outputs[run, s].argmax()) == original(split, s)[1] for s in range(4 * number, 4 * number + 4)]
            assert metrics[f"accuracy_{name}"][run] == sum(hits) / 4
    assert metrics["accuracy_center_single"][1] == 1


def test_a_folder_of_files_laid_out_by_hand(
    home: Path, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "I-RAVEN"
    for name in TWO:
        shutil.copytree(home / "iraven" / "3-v1" / name, own / name)
    (own / TWO[0] / "RAVEN_0_train.xml").write_text("<Data/>")
    monkeypatch.setattr(files, "make_problem", refuse)
    wanted = source({"name": "iraven", "configurations": TWO, "folder": str(own)})
    found = load(wanted)
    for split in SAMPLES:
        assert torch.equal(found.encode(found.splits[split].x), dataset.encode(dataset.splits[split].x))
        assert torch.equal(found.splits[split].y, dataset.splits[split].y)
    assert wanted == source(wanted.model_dump())
    (own / TWO[0] / "RAVEN_19_test.npz").unlink()
    changed = source({"name": "iraven", "configurations": TWO, "folder": str(own)})
    assert changed != wanted
    assert len(changed.load().splits["test"]) == 7


def test_a_folder_without_a_configuration_or_a_split_is_one_sentence(tmp_path: Path) -> None:
    options = {"name": "iraven", "configurations": ["center_single"], "folder": str(tmp_path)}
    with pytest.raises(UserError, match=r"center_single cannot be read .*a folder for each configuration"):
        source(options).load()
    generate(tmp_path, ["center_single"], 7, 1)
    with pytest.raises(UserError, match=r"has no file RAVEN_<number>_test\.npz"):
        source(options).load()


def test_a_broken_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path))
    generate(tmp_path / "iraven" / "3-v1", ["center_single"], 10, 3)
    broken = tmp_path / "iraven" / "3-v1" / "center_single" / file_name(4)
    whole = broken.read_bytes()
    broken.write_bytes(whole[:1000])
    wanted = source(OPTIONS | {"configurations": ["center_single"], "problems": 10, "side": 8})
    with pytest.raises(UserError, match=r"RAVEN_4_train\.npz is no problem of I-RAVEN .*delete it"):
        wanted.prepare()
    broken.unlink()
    wanted.prepare()
    assert broken.read_bytes() == whole
    assert len(wanted.load().splits["train"].y) == 6


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"configurations": ["centre"]}, "'centre' is not a configuration of I-RAVEN"),
        ({"configurations": ["center_single"] * 2}, "named twice"),
        ({"configurations": []}, "at least 1"),
        ({"problems": 9}, "greater than or equal to 10"),
        ({"side": 161}, "less than or equal to 160"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        source({"name": "iraven"} | options)


def test_all_configurations_are_the_default() -> None:
    assert source({"name": "iraven"}).model_dump()["configurations"] == tuple(CONFIGURATIONS)
