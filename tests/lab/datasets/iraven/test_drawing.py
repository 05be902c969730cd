"""Panels as pictures: what their pixels must be."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from scipy.ndimage import label

from boolit.lab.datasets.iraven.drawing import (
    CIRCLE,
    HEXAGON,
    PENTAGON,
    SIDE,
    SQUARE,
    TRIANGLE,
    Bytes,
    Frame,
    draw_panel,
    draw_problem,
    vertices,
)
from boolit.lab.datasets.iraven.problems import Entity, make_problem
from boolit.lab.datasets.iraven.rules import ANGLES, COLORS, LAYOUTS, SIZES, Layout

CENTRE = LAYOUTS["center_single"]
IN_OUT = LAYOUTS["in_center_single_out_center_single"]
SHAPES = (TRIANGLE, SQUARE, PENTAGON, HEXAGON, CIRCLE)
UPRIGHT = ANGLES.index(0)
WHITE, BLACK = 255, 0
MIDDLE = SIDE // 2


def alone(shape: int, size: int = 5, color: int = 0, angle: int = UPRIGHT) -> Bytes:
    return draw_panel(((Entity(0, shape, size, color, angle),),), CENTRE)


def full(configuration: Layout, shape: int, color: int, angle: int) -> Bytes:
    """The largest shape in every slot."""
    return draw_panel(
        tuple(
            tuple(Entity(slot, shape, 5, min(color, part.limits["Color"][-1]), angle) for slot in range(len(part.slots)))
            for part in configuration.components
        ),
        configuration,
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("color", range(1, len(COLORS)))
def test_the_inside_has_the_grey_and_the_background_is_white(shape: int, color: int) -> None:
    picture = alone(shape, color=color)
    assert (picture.shape, picture.dtype) == ((SIDE, SIDE), np.uint8)
    assert picture[MIDDLE - 10 : MIDDLE + 10, MIDDLE - 10 : MIDDLE + 10].tolist() == [[COLORS[color]] * 20] * 20
    assert (np.concatenate([picture[:4].ravel(), picture[-4:].ravel(), picture[:, :4].ravel()]) == WHITE).all()


def test_a_square_has_the_half_side_and_the_stroke_it_should() -> None:
    picture = alone(SQUARE, size=3)
    half = int(80 * SIZES[3] / np.sqrt(2))
    across = picture[MIDDLE, : MIDDLE + 1].astype(int)
    stroke = np.flatnonzero(across < WHITE)
    assert stroke.tolist() == [MIDDLE - half - 1, MIDDLE - half, MIDDLE - half + 1]
    assert across[MIDDLE - half] == BLACK
    assert (WHITE - across).sum() / WHITE == pytest.approx(2, abs=0.01)  # two pixels of ink


@pytest.mark.parametrize("angle", range(len(ANGLES)))
@pytest.mark.parametrize("shape", SHAPES)
def test_the_stroke_has_two_pixels_of_ink_along_the_whole_outline(shape: int, angle: int) -> None:
    corners = vertices(shape, SIZES[5], Frame(0.0, 0.0, 80.0)) if shape != CIRCLE else None
    around = 2 * np.pi * 72 if corners is None else np.hypot(*(np.roll(corners, 1, 0) - corners).T).sum()
    ink = (WHITE - alone(shape, angle=angle).astype(float)).sum() / WHITE
    assert ink / around == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize("shape", SHAPES)
def test_outlines_are_anti_aliased(shape: int) -> None:
    greys = np.unique(alone(shape, angle=ANGLES.index(45)))
    assert len(greys) > 10 or shape == SQUARE
    assert {BLACK, WHITE} <= set(alone(shape).ravel().tolist())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("angle", range(len(ANGLES)))
def test_a_larger_size_is_larger_and_reaches_as_far_as_it_should(shape: int, angle: int) -> None:
    black = len(COLORS) - 1
    inked = [alone(shape, size, black, angle) < 128 for size in range(len(SIZES))]
    assert all((small <= large).all() and small.sum() < large.sum() for small, large in pairwise(inked))
    rows, columns = np.nonzero(inked[-1])
    reach = np.hypot(rows - MIDDLE, columns - MIDDLE).max()
    assert reach == pytest.approx(72, abs=2)


def test_apexes_are_where_they_should_be() -> None:
    for shape, below in ((TRIANGLE, 36), (PENTAGON, 58), (HEXAGON, 72)):
        rows, columns = np.nonzero(alone(shape) < 128)
        top = rows.min()
        assert abs(top - (MIDDLE - 72)) <= 1
        assert abs(columns[rows == top].mean() - MIDDLE) <= 1
        assert abs(rows.max() - (MIDDLE + below)) <= 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("degrees", [-90, 90, 180])
def test_turning_by_right_angles_moves_pixels_counter_clockwise(shape: int, degrees: int) -> None:
    about = alone(shape, 5, 4)[1:, 1:]  # pixel (80, 80) in the middle
    assert (alone(shape, 5, 4, ANGLES.index(degrees))[1:, 1:] == np.rot90(about, degrees // 90)).all()


def test_level_0_shows_what_is_below_and_the_others_hide_it() -> None:
    out = Entity(0, SQUARE, 5, 0, UPRIGHT)
    # Within the outer square nothing but the inner shape may be hidden or changed.
    below = draw_panel(((Entity(0, CIRCLE, 5, 9, UPRIGHT),),), CENTRE)
    inner, hidden = (draw_panel(((out,), (Entity(0, CIRCLE, 5, color, UPRIGHT),)), IN_OUT) for color in (0, 5))
    assert below[MIDDLE, MIDDLE] == BLACK
    assert (inner[MIDDLE, MIDDLE], hidden[MIDDLE, MIDDLE]) == (WHITE, COLORS[5])
    two = Layout((CENTRE.components[0], IN_OUT.components[1]))
    transparent, opaque = (
        draw_panel(((Entity(0, CIRCLE, 5, 4, UPRIGHT),), (Entity(0, SQUARE, 5, color, UPRIGHT),)), two) for color in (0, 1)
    )
    assert transparent[MIDDLE, MIDDLE] == COLORS[4]
    assert opaque[MIDDLE, MIDDLE] == COLORS[1]
    assert transparent[MIDDLE, MIDDLE - 16] == BLACK


@pytest.mark.parametrize("name", LAYOUTS)
def test_nothing_is_cut_off_and_slots_do_not_meet(name: str) -> None:
    configuration = LAYOUTS[name]
    slots = sum(len(part.slots) for part in configuration.components)
    for shape in SHAPES:
        for angle in range(len(ANGLES)):
            picture = full(configuration, shape, 9, angle)
            if configuration.line == "vertical":
                assert (picture[:, MIDDLE] == BLACK).all()
                picture[:, MIDDLE] = WHITE
            elif configuration.line == "horizontal":
                assert (picture[MIDDLE] == BLACK).all()
                picture[MIDDLE] = WHITE
            edge = np.concatenate([picture[0], picture[-1], picture[:, 0], picture[:, -1]])
            assert edge.min() > 200  # of a stroke no more than the softest part; what lies beyond would not fit and be an error
            assert pieces(picture < 160) == slots


def pieces(ink: npt.NDArray[np.bool_]) -> int:
    return int(label(ink)[1])


def test_only_the_two_configurations_with_a_line_have_one() -> None:
    small = {name: drawn_small(configuration) for name, configuration in LAYOUTS.items()}
    columns = {name for name, picture in small.items() if (picture[:, MIDDLE] == BLACK).all()}
    rows = {name for name, picture in small.items() if (picture[MIDDLE] == BLACK).all()}
    assert columns == {"left_center_single_right_center_single"}
    assert rows == {"up_center_single_down_center_single"}
    beside = small["left_center_single_right_center_single"]
    assert (beside[:, MIDDLE - 1] == WHITE).all()
    assert (beside[:, MIDDLE + 1] == WHITE).all()


def drawn_small(configuration: Layout) -> Bytes:
    parts = configuration.components
    return draw_panel(tuple((Entity(0, CIRCLE, part.limits["Size"][0], 0, UPRIGHT),) for part in parts), configuration)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_problem_is_sixteen_pictures_context_first(name: str) -> None:
    made = make_problem(name, 7, 3)
    configuration, shown = LAYOUTS[name], draw_problem(made)
    assert (shown.shape, shown.dtype) == ((16, SIDE, SIDE), np.uint8)
    assert (shown[5] == draw_panel(made.context[5], configuration)).all()
    assert (shown[8 + made.target] == draw_panel(made.candidates[made.target], configuration)).all()
    assert len({picture.tobytes() for picture in shown[8:]}) == 8
