"""The page of examples: its pixels are the problems'."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from boolit.lab.datasets.raven import page
from boolit.lab.datasets.raven.configurations import CONFIGURATIONS
from boolit.lab.datasets.raven.drawing import draw_problem
from boolit.lab.datasets.raven.problems import make_problem


@pytest.mark.parametrize("name", ["left_center_single_right_center_single"])
def test_every_panel_is_on_the_page_and_the_answer_alone_is_marked(name: str, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "page.png"
    page.write_page(path, name, 3, [5, 0])
    pixels = np.asarray(Image.open(path).convert("RGB"))
    lines = len(CONFIGURATIONS[name].components) + 1
    block = 3 * page.STEP + page.LINE * lines + page.MARGIN
    for number, index in enumerate((5, 0)):
        made = make_problem(name, 3, index)
        top = page.HEADING + number * block + page.LINE * lines
        shown = draw_problem(made)
        for place in range(8):
            matrix = (top + place // 3 * page.STEP, page.MARGIN + place % 3 * page.STEP)
            right = page.MARGIN + 3 * page.STEP + page.BETWEEN + place % 4 * page.STEP
            candidate = (top + page.STEP // 2 + place // 4 * page.STEP, right)
            for (row, column), panel in ((matrix, shown[place]), (candidate, shown[8 + place])):
                assert (pixels[row : row + 160, column : column + 160] == panel[..., None]).all()
            marked = tuple(pixels[candidate[0] + 80, right - 1]) == page.ANSWER
            assert marked == (place == made.target)
