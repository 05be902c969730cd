"""Parity-check matrices: constructions of common codes, and files in the formats alist and npz."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.graphs.propagation import read_matrix

Monomials = Sequence[tuple[int, int]]


def repetition_code(n: int) -> Tensor:
    """Return the parity-check matrix of the repetition code, which compares neighboring bits. Shape: ``(n − 1, n)``.

    Example:
        >>> repetition_code(3)
        tensor([[1, 1, 0],
                [0, 1, 1]], dtype=torch.uint8)
    """
    return (torch.eye(n, dtype=torch.uint8) + torch.eye(n, dtype=torch.uint8).roll(1, 1))[: n - 1]


def hamming_code(r: int) -> Tensor:
    """Return the Hamming code of ``r`` checks and ``2^r − 1`` bits: column i is i + 1 in binary.

    Example:
        >>> hamming_code(2)
        tensor([[1, 0, 1],
                [0, 1, 1]], dtype=torch.uint8)
    """
    numbers = torch.arange(1, 2**r)
    return (numbers >> torch.arange(r)[:, None] & 1).to(torch.uint8)


def gallager_code(n: int, column_weight: int = 3, row_weight: int = 6, seed: int = 0) -> Tensor:
    """Return a random regular code (Gallager's construction): ``column_weight`` blocks, each with every bit in one check.

    Example:
        >>> H = gallager_code(12, 3, 4)
        >>> H.shape, H.sum(0).unique(), H.sum(1).unique()
        (torch.Size([9, 12]), tensor([3]), tensor([4]))
    """
    if n % row_weight:
        raise ValueError(f"n={n} bits do not divide into checks of row_weight={row_weight} bits; use a multiple")
    block = torch.eye(n // row_weight, dtype=torch.uint8).repeat_interleave(row_weight, 1)
    generator = torch.Generator().manual_seed(seed)
    blocks = [block] + [block[:, torch.randperm(n, generator=generator)] for _ in range(column_weight - 1)]
    return torch.cat(blocks)


def bivariate_bicycle_code(
    size: tuple[int, int] = (12, 6),
    a: Monomials = ((3, 0), (0, 1), (0, 2)),
    b: Monomials = ((0, 3), (1, 0), (2, 0)),
) -> tuple[Tensor, Tensor]:
    """Return the X and Z checks of a bivariate bicycle code (Bravyi et al., Nature 627, 2024); by default the gross code.

    Args:
        size: Orders l and m of the two cyclic shifts x and y; there are 2·l·m qubits.
        a: Exponents (i, j) of the monomials xⁱyʲ in A; the X checks are [A | B] and the Z checks [Bᵀ | Aᵀ].
        b: The same for B.

    Example:
        >>> [H.shape for H in bivariate_bicycle_code()]
        [torch.Size([72, 144]), torch.Size([72, 144])]
    """
    rows, columns = size
    identity = torch.eye(rows * columns, dtype=torch.uint8).unflatten(1, size)

    def polynomial(monomials: Monomials) -> Tensor:
        shifted = [identity.roll(exponents, (1, 2)).flatten(1) for exponents in monomials]
        return torch.stack(shifted).sum(0, dtype=torch.uint8) % 2

    first, second = polynomial(a), polynomial(b)
    return torch.cat([first, second], 1), torch.cat([second.T, first.T], 1)


def surface_code(distance: int) -> tuple[Tensor, Tensor]:
    """Return the X and Z checks of the rotated surface code with ``distance²`` qubits.

    Example:
        >>> [H.shape for H in surface_code(3)]
        [torch.Size([4, 9]), torch.Size([4, 9])]
    """
    checks: tuple[list[Tensor], list[Tensor]] = ([], [])
    for row in range(-1, distance):
        for column in range(-1, distance):
            is_z = (row + column) % 2 == 0
            # Faces on the upper and lower edge measure X, those on the left and right Z; corners and the others are left out.
            inside = 0 <= row < distance - 1, 0 <= column < distance - 1
            if not any(inside) or (not all(inside) and inside[0] != is_z):
                continue
            face = torch.zeros(distance, distance, dtype=torch.uint8)
            face[max(row, 0) : row + 2, max(column, 0) : column + 2] = 1
            checks[is_z].append(face.flatten())
    return torch.stack(checks[0]), torch.stack(checks[1])


def logical_operators(checks: Tensor, stabilizers: Tensor) -> Tensor:
    """Return a basis of the errors that ``checks`` do not see and that are not products of ``stabilizers``.

    For X errors of a CSS code, ``checks`` are its Z checks and ``stabilizers`` its X checks. A correction fails if it differs
    from the error by something that anticommutes with a logical operator of the other type.

    Example:
        >>> x_checks, z_checks = bivariate_bicycle_code()
        >>> len(logical_operators(z_checks, x_checks))
        12
    """
    n = checks.shape[1]
    reduced, pivots = _eliminate(checks)
    free = [column for column in range(n) if column not in set(pivots)]
    kernel = torch.zeros(len(free), n, dtype=torch.uint8)
    kernel[range(len(free)), free] = 1
    kernel[:, pivots] = reduced[: len(pivots), free].T
    # Pivot columns of [stabilizersᵀ | kernelᵀ] that belong to the kernel are independent of the stabilizers.
    columns = _eliminate(torch.cat([stabilizers, kernel]).T)[1]
    return kernel[[column - len(stabilizers) for column in columns if column >= len(stabilizers)]]


def _eliminate(matrix: Tensor) -> tuple[Tensor, list[int]]:
    """Return the reduced row echelon form over GF(2), and its pivot columns."""
    matrix = matrix.bool().clone()
    pivots: list[int] = []
    for column in range(matrix.shape[1]):
        rank = len(pivots)
        rows = matrix[rank:, column].nonzero()
        if len(rows):
            matrix[[rank, rank + int(rows[0])]] = matrix[[rank + int(rows[0]), rank]]
            others = matrix[:, column].clone()
            others[rank] = False
            matrix[others] ^= matrix[rank]
            pivots.append(column)
    return matrix.to(torch.uint8), pivots


# ------------------------------------------------------------------------------------------------ files


def save_code(H: object, path: str | Path) -> None:  # noqa: N803
    """Write a parity-check matrix as ``.alist`` (MacKay's format) or ``.npz`` (scipy.sparse.save_npz)."""
    lists, variables = read_matrix(H)
    path, checks = Path(path), len(lists.lengths)
    rows, columns = lists.rows, lists.indices
    if path.suffix == ".npz":
        from scipy import sparse

        values = torch.ones(len(rows), dtype=torch.uint8)
        sparse.save_npz(path, sparse.csr_matrix((values.numpy(), (rows.numpy(), columns.numpy())), (checks, variables)))
        return
    _check_suffix(path)
    by_check = [part.tolist() for part in (columns + 1).split(lists.lengths.tolist())]
    by_variable: list[list[int]] = [[] for _ in range(variables)]
    for row, column in zip((rows + 1).tolist(), columns.tolist(), strict=True):
        by_variable[column].append(row)
    widths = [max(map(len, lines)) for lines in (by_variable, by_check)]
    header = [[variables, checks], widths, [len(line) for line in by_variable], [len(line) for line in by_check]]
    padded = [
        line + [0] * (width - len(line)) for lines, width in zip((by_variable, by_check), widths, strict=True) for line in lines
    ]
    path.write_text("".join(" ".join(map(str, line)) + "\n" for line in header + padded))


def load_code(path: str | Path) -> Tensor:
    """Read a parity-check matrix from ``.alist`` or ``.npz`` as a sparse tensor."""
    path = Path(path)
    if path.suffix == ".npz":
        from scipy import sparse

        try:
            matrix = sparse.load_npz(path).tocoo()
        except (ValueError, KeyError, OSError) as error:
            raise UserError(f"{path} is not a sparse matrix of scipy.sparse.save_npz: {error}") from error
        matrix.eliminate_zeros()
        return sparse_matrix(matrix.row, matrix.col, matrix.shape)
    _check_suffix(path)
    try:
        (variables, checks), _, _, _, *lines = ([int(word) for word in line.split()] for line in path.read_text().splitlines())
        entries = [(row - 1, column) for column, line in enumerate(lines[:variables]) for row in line if row > 0]
        if len(lines) < variables or not entries or max(entries)[0] >= checks:
            raise ValueError("its lists do not fit its size")
    except (ValueError, OSError) as error:
        raise UserError(f"{path} is not a parity-check matrix in the alist format: {error}") from error
    rows, columns = zip(*entries, strict=True)
    return sparse_matrix(rows, columns, (checks, variables))


def sparse_matrix(rows: Any, columns: Any, shape: tuple[int, int]) -> Tensor:
    """Return a sparse tensor with ones at these rows and columns."""
    indices = torch.stack([torch.as_tensor(part, dtype=torch.int64) for part in (rows, columns)])
    ones = torch.ones(indices.shape[1], dtype=torch.uint8)
    return torch.sparse_coo_tensor(indices, ones, shape, check_invariants=True).coalesce()


def _check_suffix(path: Path) -> None:
    if path.suffix != ".alist":
        raise UserError(f"the format of {path} is not known; name it .alist or .npz")


def channel_logit(probability: float) -> float:
    """Return the logit of a bit that is wrong with this probability: log((1 − p) / p).

    Example:
        >>> channel_logit(0.5)
        0.0
    """
    return math.log((1 - probability) / probability)
