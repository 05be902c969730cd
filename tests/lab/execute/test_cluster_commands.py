"""Search, compare and transfer on workers, and a cluster behind TLS: the same as in one process."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import torch
from clusters import Processes, contents, wait_until
from PIL import Image
from safetensors.torch import load_file

from boolit.cli._app import run as main
from boolit.lab.compare.config import CompareConfig, ImageCompareConfig
from boolit.lab.compare.images import ImageCompareJob
from boolit.lab.compare.job import CompareJob
from boolit.lab.execute.cluster import Cluster
from boolit.lab.execute.search import SearchSettings, search
from boolit.lab.models.resnet18 import Resnet18
from boolit.lab.results.store import Store
from boolit.lab.studies import load_study

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = ["data.train=128", "data.test=64", "training.epochs=3", "training.batch=32"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder, that of the workers too."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOOLIT_DATA", str(folder / "data"))
        yield folder


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[Cluster]:
    """One worker: with as many as there are activations, cohorts would stay whole as well."""
    with Processes(home) as started:
        started.start_scheduler()
        started.start_worker(0)
        with Cluster.open(address=str(started.file)) as opened:
            wait_until(lambda: opened.workers() == 1, "a worker")
            yield opened


def same_stores(one: Path, other: Path) -> bool:
    with Store(one, create=False) as first, Store(other, create=False) as second:
        return contents(first.records()) == contents(second.records())


def test_a_search_finds_the_same(cluster: Cluster, tmp_path: Path) -> None:
    def found(folder: Path, on: Cluster | None) -> Any:
        with Store(folder) as store:
            how = SearchSettings(store, rounds=2, trials=6, seeds=2, finalists=2, progress=False, cluster=on)
            return search(load_study("xor"), how, ["xnor_nail"], sets=SMALL)

    assert found(tmp_path / "there", cluster) == found(tmp_path / "here", None) is not None
    assert same_stores(tmp_path / "there", tmp_path / "here")


def test_a_comparison_on_a_table_is_the_same(cluster: Cluster, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "".join(f"{i % 7},{i % 5},{'odd' if (i % 7 + i % 5) % 2 else 'even'}\n" for i in range(140))
    (home / "sums.csv").write_text(f"a,b,sum\n{rows}")
    monkeypatch.chdir(home)  # the path is relative, and the worker is elsewhere
    job = CompareJob.prepare(
        CompareConfig(Path("sums.csv"), "sum", activations=("relu", "max"), splits=5, rates=(0.01,), epochs=2), False
    )
    there, here = (job.run(home / name, False, cluster=on) for name, on in (("there", cluster), ("here", None)))
    assert str(there.verdict) == str(here.verdict) != "None"
    assert same_stores(home / "there", home / "here")
    one, other = (load_file(home / name / "best.safetensors") for name in ("there", "here"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_comparison_on_pictures_is_the_same(cluster: Cluster, home: Path) -> None:
    torch.save(Resnet18().state_dict(), home / "weights.pth")
    drawn = np.random.default_rng(0)
    for name, level in (("bright", 150), ("dark", 0)):
        (home / "pictures" / name).mkdir(parents=True)
        for number in range(10):
            pixels = drawn.integers(0, 100, (16, 16, 3)) + level
            Image.fromarray(pixels.astype(np.uint8)).save(home / "pictures" / name / f"{number}.png")
    own: dict[str, Any] = {"size": 32, "views": 1, "weights": home / "weights.pth", "rate": 0.01, "epochs": 2}
    job = ImageCompareJob.prepare(ImageCompareConfig(home / "pictures", ("relu", "or_ail"), seeds=2, **own))
    there, here = (job.run(home / name, False, cluster=on) for name, on in (("heads there", cluster), ("heads here", None)))
    assert there.summary.trained == here.summary.trained == 4
    assert same_stores(home / "heads there", home / "heads here")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
def test_a_cluster_behind_tls(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=tmp_path, check=True, capture_output=True)

    new = ["-newkey", "rsa:2048", "-nodes"]
    openssl("req", "-x509", *new, "-subj", "/CN=authority", "-keyout", "authority-key.pem", "-out", "authority.pem")
    openssl("req", *new, "-subj", "/CN=boolit", "-keyout", "key.pem", "-out", "request.pem")
    signed = ["-CA", "authority.pem", "-CAkey", "authority-key.pem", "-CAcreateserial", "-out", "certificate.pem"]
    openssl("x509", "-req", "-in", "request.pem", *signed)
    tls = {"ca-file": str(tmp_path / "authority.pem")}
    own = {"cert": str(tmp_path / "certificate.pem"), "key": str(tmp_path / "key.pem")}
    variables = {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True", "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": tls["ca-file"]}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        variables |= {f"DASK_DISTRIBUTED__COMM__TLS__{role}__{name.upper()}": path for name, path in own.items()}
    sets = ["sweep.activation=['relu']", *SMALL]
    command = ["run", "parity", "--seeds", "2", *(part for each in sets for part in ("--set", each)), "--json"]
    with Processes(tmp_path, variables) as processes:
        address = processes.start_scheduler("--protocol", "tls")
        assert address.startswith("tls://")
        processes.start_worker(0)
        refused = [*command, "--out", str(tmp_path / "refused"), "--cluster", address]
        assert main(refused) == 2  # without a certificate
        assert f"error: --cluster {address} does not answer" in capfd.readouterr().err
        client = {f"distributed.comm.tls.client.{name}": path for name, path in own.items()}
        with dask.config.set({"distributed.comm.tls.ca-file": tls["ca-file"], **client}):
            assert main([*command, "--out", str(tmp_path / "there"), "--cluster", address]) == 0
    assert main([*command, "--out", str(tmp_path / "here")]) == 0
    assert same_stores(tmp_path / "there", tmp_path / "here")
