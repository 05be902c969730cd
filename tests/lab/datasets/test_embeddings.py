"""Features of a frozen encoder: made once, kept, added to, and drawn from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from boolit.errors import UserError
from boolit.lab.common.random import keys
from boolit.lab.datasets import load, source
from boolit.lab.datasets.features import encoder as _embedded
from boolit.lab.datasets.features import weights
from boolit.lab.datasets.features.embeddings import Embeddings, one_view
from boolit.lab.datasets.features.encoder import Features, batch_statistics, load_encoder
from boolit.lab.datasets.features.views import BATCH, ViewPlan
from boolit.lab.datasets.holdout import Holdout
from boolit.lab.datasets.images.base import normaliser
from boolit.lab.models.resnet18 import FEATURES, Resnet18

PICTURES_OF_A_CLASS = 8
Make = Callable[..., Embeddings]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights that nobody trained, and images of two classes."""
    home = tmp_path_factory.mktemp("files")
    torch.manual_seed(0)
    torch.save(Resnet18().state_dict(), home / "weights.pth")
    drawn = np.random.default_rng(0)
    for name in ("bright", "dark"):
        (home / "pictures" / name).mkdir(parents=True)
        for number in range(PICTURES_OF_A_CLASS):
            pixels = drawn.integers(0, 100, (24, 24, 3), dtype=np.uint8) + (150 if name == "bright" else 0)
            Image.fromarray(pixels.astype(np.uint8)).save(home / "pictures" / name / f"{number}.png")
    return home


@pytest.fixture
def make(files: Path, folder: Path) -> Make:  # noqa: ARG001 (what is kept is kept in the test's own folder)
    def make(**options: Any) -> Embeddings:
        of = {"name": "pictures", "path": str(files / "pictures"), "size": 24}
        table = {"name": "embeddings", "of": of, "weights": str(files / "weights.pth"), "views": 2, "size": 32}
        made = source(table | options)
        assert isinstance(made, Embeddings)
        return made

    return make


def features(wanted: Embeddings) -> torch.Tensor:
    """The table as it is kept."""
    content = np.fromfile(wanted.folder / "features", np.dtype("<f2"))
    return torch.from_numpy(content).view(-1, FEATURES)


def test_held_out_images_are_trained_on_in_none_of_their_views(make: Make) -> None:
    whole = load(make(views=3))
    samples, held = len(whole.splits["train"]), Holdout(of=make(views=3), share=0.3).load()
    assert held.draw is not None
    x, y = (values.unsqueeze(0) for values in (held.splits["train"].x, held.splits["train"].y))
    rows = torch.cat([held.draw(x, y, keys([1], "draw"), step)[0] for step in range(20)])
    seen = set((rows.flatten() % samples).tolist())
    chosen_by = set((held.splits["valid"].x % samples).tolist())
    assert len(chosen_by) == round(0.3 * samples)
    assert seen == set(range(samples)) - chosen_by


def test_rows_are_what_the_encoder_makes_of_the_views(make: Make, files: Path) -> None:
    wanted = make(refresh=False)
    dataset, images = wanted.load(), load(wanted.of)
    wanted.prepare()
    network = Features(load_encoder(files / "weights.pth"))
    plan = ViewPlan(images.splits, 32, flip=True, seed=0)
    expected = torch.cat([network(plan.views(piece)) for piece in plan.batches(2, 0)])
    assert torch.allclose(features(wanted).float(), expected.float(), rtol=2e-3)
    test = dataset.encode(dataset.splits["test"].x)
    assert test.dtype == torch.float32
    assert torch.equal(test, features(wanted)[: len(test)].float())
    assert torch.equal(dataset.splits["train"].y, images.splits["train"].y)
    assert dataset.inputs == (512,)
    assert dataset.outputs == 2


def test_nothing_is_encoded_before_it_is_wanted(make: Make) -> None:
    wanted = make()
    dataset = wanted.load()
    assert dataset.inputs == (512,)
    assert not wanted.folder.exists()
    dataset.encode(dataset.splits["train"].x[:1])
    assert (wanted.folder / "features").exists()


def test_a_killed_start_goes_on_where_it_was(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = make()
    wanted.prepare()
    whole, file = features(wanted), wanted.folder / "features"
    with file.open("r+b") as opened:
        opened.truncate(20 * _embedded.ROW_BYTES + 7)  # in the middle of a row
    seen: list[int] = []
    plain = Features.__call__
    monkeypatch.setattr(Features, "__call__", lambda self, x: (seen.append(len(x)), plain(self, x))[1])
    monkeypatch.setattr(_embedded, "refresh", lambda *_: pytest.fail("the statistics are there already"))
    wanted.prepare()
    assert sum(seen) == len(whole) - 20
    assert torch.allclose(features(wanted).float(), whole.float(), rtol=2e-3)


def test_further_views_are_added_to_those_there_are(make: Make) -> None:
    few, more = make(views=1), make(views=3)
    assert few.folder == more.folder
    few.prepare()
    before = features(few)
    more.prepare()
    train = len(load(few.of).splits["train"])
    assert len(features(more)) == len(before) + 2 * train
    assert torch.equal(features(more)[: len(before)], before)
    views = features(more)[-3 * train :].view(3, train, FEATURES).float()
    assert (views[0] - views[1]).abs().amax(1).min() > 0
    few.prepare()
    assert len(features(few)) == len(features(more))


def test_what_is_seen_otherwise_is_kept_elsewhere(make: Make) -> None:
    kinds = [{}, {"size": 64}, {"flip": False}, {"refresh": False}, {"seed": 1}]
    assert len({make(**options).folder for options in kinds}) == len(kinds)


def test_a_step_draws_one_view_of_every_sample() -> None:
    samples, views = 5, 4
    x = torch.arange(samples).expand(2, samples).contiguous() + 100
    y = torch.zeros(2, samples)
    drawn = torch.stack([one_view(samples, views, x, y, keys([0, 1], "draw"), step)[0] for step in range(400)])
    assert torch.equal((drawn - 100) % samples, (x - 100).expand_as(drawn))
    counts = ((drawn - 100) // samples).flatten().bincount()
    assert counts.tolist() == pytest.approx([1000] * views, rel=0.12)
    assert not torch.equal(drawn[:, 0], drawn[:, 1])


def test_refreshed_statistics_are_the_mean_over_the_batches(make: Make, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boolit.lab.datasets.features.views.BATCH", 6)
    wanted = make()
    wanted.prepare()
    kept = load_file(wanted.folder / "statistics.safetensors")
    plan = ViewPlan(load(wanted.of).splits, 32, flip=True, seed=0)
    batches = plan.refresh_batches()
    assert sorted(torch.cat(batches).tolist()) == list(range(len(plan.splits["train"])))
    assert len(batches) == 2
    network = load_encoder(files / "weights.pth")
    images = [plan.refresh_views(rows) for rows in batches]
    first = [network.conv1(normaliser("imagenet")(batch)) for batch in images]
    mean = torch.stack([values.mean((0, 2, 3)) for values in first]).mean(0)
    var = torch.stack([values.transpose(0, 1).flatten(1).var(1) for values in first]).mean(0)
    assert torch.allclose(kept["bn1.running_mean"], mean, atol=1e-6)
    assert torch.allclose(kept["bn1.running_var"], var, rtol=1e-4)
    assert set(kept) == set(batch_statistics(network, images[0]))
    assert len(kept) == 40
    assert not torch.allclose(features(wanted).float(), _unrefreshed(make), rtol=0.05)


def _unrefreshed(make: Make) -> torch.Tensor:
    plain = make(refresh=False)
    plain.prepare()
    return features(plain).float()


def test_the_weights_are_part_of_a_run_s_key(make: Make, files: Path, folder: Path) -> None:
    (published,) = weights.Weights.files
    none = make(weights=None)
    assert (none.origin, none.digest) == ("published", published.sha256)
    (folder / "weights").mkdir(parents=True)
    (folder / "weights" / weights.BACKBONE).write_bytes((files / "weights.pth").read_bytes())
    assert make(weights=None).origin == "reconstructed"
    own = make()
    assert own.origin == "own"
    assert own.digest == make(weights=None).digest != published.sha256
    assert own.model_dump(mode="json")["of"]["path"] == own.of.path
    assert source(own.model_dump(mode="json")) == own


def test_other_weights_than_planned_are_refused(make: Make) -> None:
    planned = make().model_dump(mode="json") | {"digest": "0" * 64}
    with pytest.raises(UserError, match="are not those with the digest 0000"):
        source(planned).prepare()


def test_wrong_options_are_named(make: Make, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the weights file .* cannot be read"):
        make(weights=str(tmp_path / "nothing.pth"))
    with pytest.raises(UserError, match=r"parity has samples of torch\.float32"):
        make(of={"name": "parity"}).load()
    with pytest.raises(ValueError, match="a table that names a dataset, such as"):
        make(of="cifar10")


def test_a_full_disk_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_embedded, "_encode", full)
    with pytest.raises(UserError, match=r"MB of features cannot be kept in .* \(No space left on device\); make room"):
        make().prepare()


def test_pieces_are_bounded(make: Make) -> None:
    plan = ViewPlan(load(make().of).splits, 32, flip=True, seed=0)
    for done in range(plan.count(3) + 1):
        pieces = list(plan.batches(3, done))
        assert sum(len(piece.rows) for piece in pieces) == plan.count(3) - done
        assert all(len(piece.rows) <= BATCH for piece in pieces)
