"""What files say of a problem's rules and layout."""

from __future__ import annotations

import numpy as np
import pytest

from boolit.lab.datasets.raven.configurations import CONFIGURATIONS
from boolit.lab.datasets.raven.files import META, META_STRUCTURE, meta_matrix, meta_structure, structure
from boolit.lab.datasets.raven.problems import make_problem

TREES = {
    "center_single": "Scene Singleton Grid Center_Single / / / /",
    "distribute_four": "Scene Singleton Grid Distribute_Four / / / /",
    "distribute_nine": "Scene Singleton Grid Distribute_Nine / / / /",
    "in_center_single_out_center_single": "Scene Out_In Out Out_Center_Single / / In In_Center_Single / / / /",
    "in_distribute_four_out_center_single": "Scene Out_In Out Out_Center_Single / / In In_Distribute_Four / / / /",
    "left_center_single_right_center_single": "Scene Left_Right Left Left_Center_Single / / Right Right_Center_Single / / / /",
    "up_center_single_down_center_single": "Scene Up_Down Up Up_Center_Single / / Down Down_Center_Single / / / /",
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_tree_of_every_configuration(name: str) -> None:
    words = structure(CONFIGURATIONS[name])
    assert " ".join(words) == TREES[name]
    assert words.count("/") == len(words) / 2  # every node is ended


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_names_in_the_tree_are_marked(name: str) -> None:
    marked = meta_structure(CONFIGURATIONS[name])
    assert (marked.shape, marked.dtype) == ((21,), np.uint8)
    found = [word for word, one in zip(META_STRUCTURE, marked, strict=True) if one]
    assert set(found) == set(TREES[name].split()) - {"Scene", "/"}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_rule_is_a_row(name: str) -> None:
    for index in range(20):
        rules = [rule for group in make_problem(name, 3, index).rules for rule in group]
        matrix = meta_matrix(make_problem(name, 3, index).rules)
        assert (matrix.shape, matrix.dtype) == ((8, 9), np.uint8)
        assert not matrix[len(rules) :].any()
        for row, rule in zip(matrix, rules, strict=False):
            words = {word for word, one in zip(META, row, strict=True) if one}
            assert words == {rule.name, *rule.attribute.split("/")}
