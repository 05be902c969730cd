"""Decoders for the tools of quantum error correction: stim, sinter and ldpc, each imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boolit.graphs.codes import sparse_matrix
from boolit.graphs.propagation import BeliefPropagation, Decoded


def matrices_of(model: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return the checks, observables and error probabilities of a stim.DetectorErrorModel.

    Mechanisms with the same symptoms are merged.

    Returns:
        Sparse matrices of shape ``(detectors, mechanisms)`` and ``(observables, mechanisms)``, and a vector of float64.
    """
    merged: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
    for instruction in model.flattened():
        if instruction.type != "error":
            continue
        detectors: set[int] = set()
        observables: set[int] = set()
        for target in instruction.targets_copy():  # a symptom that is named twice cancels
            if target.is_relative_detector_id():
                detectors ^= {target.val}
            elif target.is_logical_observable_id():
                observables ^= {target.val}
        if detectors:
            symptom = tuple(sorted(detectors)), tuple(sorted(observables))
            p, q = merged.get(symptom, 0.0), instruction.args_copy()[0]
            merged[symptom] = p * (1 - q) + q * (1 - p)

    def matrix(part: int, rows: int) -> Tensor:
        entries = [(row, column) for column, symptom in enumerate(merged) for row in symptom[part]]
        places, columns = zip(*entries, strict=True) if entries else ((), ())
        return sparse_matrix(places, columns, (rows, len(merged)))

    probabilities = torch.tensor(list(merged.values()), dtype=torch.float64)
    return matrix(0, model.num_detectors), matrix(1, model.num_observables), probabilities


def bp_osd(H: Any, probabilities: Any, osd_method: str = "osd_0", osd_order: int = 0, **options: Any) -> BpOsd:  # noqa: N803
    """Return a decoder that hands shots on which belief propagation does not converge to ldpc's ordered-statistics decoding.

    The posterior logits order the bits. ldpc also weighs the candidates of ``osd_cs`` and ``osd_e`` by them, where
    `ldpc.BpOsdDecoder` uses the priors.

    Args:
        H: Parity-check matrix, as for `BeliefPropagation`.
        probabilities: Probability of each error.
        osd_method: ``osd_0``, ``osd_cs`` or ``osd_e``, as in ldpc.
        osd_order: Order of the search.
        options: Options of `BeliefPropagation`.
    """
    return BpOsd(H, torch.as_tensor(probabilities, dtype=torch.float64), osd_method, osd_order, options)


class BpOsd:
    """Belief propagation followed by OSD. See `bp_osd`."""

    def __init__(self, H: Any, probabilities: Tensor, osd_method: str, osd_order: int, options: dict[str, Any]) -> None:  # noqa: N803
        from ldpc import BpOsdDecoder
        from scipy import sparse

        self.propagation = BeliefPropagation(H, **options)
        self.channel = -torch.logit(probabilities).float()
        graph = self.propagation.graph
        ones, rows = torch.ones(graph.edges, dtype=torch.uint8).numpy(), graph.check_lists
        matrix = sparse.csr_matrix((ones, rows.indices.numpy(), rows.offsets.numpy()), (graph.checks, graph.variables))
        # Its own propagation only passes the logits on: one iteration of messages that are scaled down to nothing.
        passing = {"max_iter": 1, "bp_method": "minimum_sum", "ms_scaling_factor": 1e-300}
        osd = {"osd_method": osd_method, "osd_order": osd_order}
        self.osd = BpOsdDecoder(matrix, error_channel=[0.1] * graph.variables, **passing, **osd)

    def decode(self, syndrome: Any) -> Tensor:
        """Return errors of shape ``(shots, bits)`` with these syndromes, of shape ``(shots, checks)``."""
        syndrome = torch.as_tensor(syndrome)
        decoded: Decoded = self.propagation(self.channel, syndrome)
        # ldpc reads probabilities; within ±36, 1 - p is not rounded to 0.
        probabilities = torch.sigmoid(-decoded.logits.double().clamp(-36, 36)).numpy()
        for shot in (~decoded.converged).nonzero()[:, 0].tolist():
            self.osd.update_channel_probs(probabilities[shot])
            decoded.bits[shot] = torch.from_numpy(self.osd.decode(syndrome[shot].to(torch.uint8).numpy())).bool()
        return decoded.bits


def sinter_decoder(osd_method: str | None = None, osd_order: int = 0, **options: Any) -> SinterDecoder:
    """Return a decoder for sinter.

    Pass it as ``custom_decoders={"boolit": sinter_decoder()}`` to sinter.collect.

    Args:
        osd_method: If given, shots that do not converge are decoded by `bp_osd` with this method.
        osd_order: Order of the search.
        options: Options of `BeliefPropagation`.
    """
    return SinterDecoder(osd_method, osd_order, options)


@dataclass
class SinterDecoder:
    """A decoder with the interface of sinter.Decoder, which is not a base class so that sinter stays optional."""

    osd_method: str | None
    osd_order: int
    options: dict[str, Any]

    def compile_decoder_for_dem(self, *, dem: Any) -> CompiledDecoder:
        """Return the decoder for a detector error model."""
        checks, observables, probabilities = matrices_of(dem)
        if self.osd_method is None:
            propagation, channel = BeliefPropagation(checks, **self.options), -torch.logit(probabilities).float()
            return CompiledDecoder(checks.shape[0], observables, lambda syndrome: propagation(channel, syndrome).bits)
        osd = bp_osd(checks, probabilities, self.osd_method, self.osd_order, **self.options)
        return CompiledDecoder(checks.shape[0], observables, osd.decode)


@dataclass
class CompiledDecoder:
    """A decoder for one detector error model, with the interface of sinter.CompiledDecoder."""

    detectors: int
    observables: Tensor
    decode: Callable[[Tensor], Tensor]

    def decode_shots_bit_packed(self, *, bit_packed_detection_event_data: Any) -> Any:
        """Return the predicted flips of the observables, packed like the detection events."""
        import numpy as np

        events = np.unpackbits(bit_packed_detection_event_data, axis=1, count=self.detectors, bitorder="little")
        errors = self.decode(torch.from_numpy(events))
        flips = torch.sparse.mm(self.observables.float(), errors.float().T).T % 2
        return np.packbits(flips.bool().numpy(), axis=1, bitorder="little")
