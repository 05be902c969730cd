"""The decoder next to ldpc, pymatching, stim and sinter."""

from __future__ import annotations

import pytest
import torch

from boolit.graphs import BeliefPropagation, bivariate_bicycle_code, bp_osd, channel_logit, matrices_of, sinter_decoder

pytestmark = pytest.mark.check

GROSS = bivariate_bicycle_code()[0]


def syndromes(shots: int, rate: float) -> torch.Tensor:
    torch.manual_seed(0)
    return (torch.rand(shots, 144) < rate).long() @ GROSS.T.long() % 2


@pytest.mark.parametrize(("method", "form"), [("product_sum", "il"), ("minimum_sum", "ail")])
def test_converges_where_ldpc_does(method: str, form: str) -> None:
    ldpc = pytest.importorskip("ldpc")
    syndrome = syndromes(300, 0.05)
    reference = ldpc.BpDecoder(GROSS.numpy(), error_rate=0.05, max_iter=30, bp_method=method)
    channel = torch.full((144,), channel_logit(0.05), dtype=torch.float64)
    result = BeliefPropagation(GROSS, 30, form)(channel, syndrome)
    for i, row in enumerate(syndrome.to(torch.uint8).numpy()):
        bits = reference.decode(row)
        if reference.converge:
            assert result.converged[i]
            assert result.bits[i].tolist() == bits.astype(bool).tolist()


def test_osd_satisfies_every_syndrome() -> None:
    pytest.importorskip("ldpc")
    syndrome = syndromes(200, 0.08)
    errors = bp_osd(GROSS, torch.full((144,), 0.08), iterations=20).decode(syndrome)
    assert torch.equal(errors.long() @ GROSS.T.long() % 2, syndrome)


@pytest.mark.parametrize("task", ["repetition_code:memory", "surface_code:rotated_memory_x"])
def test_sinter(task: str) -> None:
    sinter, stim = pytest.importorskip("sinter"), pytest.importorskip("stim")
    pytest.importorskip("pymatching")
    ldpc_decoders = pytest.importorskip("ldpc.sinter_decoders")
    circuit = stim.Circuit.generated(
        task, rounds=3, distance=3, after_clifford_depolarization=0.01, before_measure_flip_probability=0.01
    )
    decoders = {
        "boolit": sinter_decoder(iterations=30),
        "boolit-osd": sinter_decoder("osd_0", iterations=30),
        "ldpc": ldpc_decoders.SinterBpOsdDecoder(max_iter=30, bp_method="ps", osd_method="osd0", osd_order=0),
    }
    shots = 4000
    stats = sinter.collect(
        num_workers=1,
        tasks=[sinter.Task(circuit=circuit)],
        decoders=[*decoders, "pymatching"],
        custom_decoders=decoders,
        max_shots=shots,
    )
    rates = {each.decoder: each.errors / each.shots for each in stats}
    margin = 4 * (2 * rates["ldpc"] / shots) ** 0.5
    assert abs(rates["boolit-osd"] - rates["ldpc"]) <= margin
    assert rates["boolit-osd"] <= rates["pymatching"] * 1.5 + margin
    assert rates["boolit"] < 0.2


def test_detector_error_models() -> None:
    stim = pytest.importorskip("stim")
    model = stim.DetectorErrorModel("error(0.1) D0 D1\nerror(0.2) D1 D0\nerror(0.3) D1 L0\ndetector D2")
    checks, observables, probabilities = matrices_of(model)
    assert checks.to_dense().tolist() == [[1, 0], [1, 1], [0, 0]]
    assert observables.to_dense().tolist() == [[0, 1]]
    torch.testing.assert_close(probabilities, torch.tensor([0.26, 0.3], dtype=torch.float64))
