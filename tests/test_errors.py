"""Only what the user gave becomes the user's error."""

from __future__ import annotations

import pytest

from boolit.errors import UserError, user_input


@pytest.mark.parametrize("kind", [ValueError, TypeError, IndexError, FileNotFoundError])
def test_a_refusal_becomes_the_users_error_with_its_message(kind: type[Exception]) -> None:
    with pytest.raises(UserError, match=r"^the message$") as caught, user_input():
        raise kind("the message")
    assert isinstance(caught.value.__cause__, kind)


def test_a_users_error_passes_unchanged() -> None:
    error = UserError("mine")
    with pytest.raises(UserError) as caught, user_input():
        raise error
    assert caught.value is error


@pytest.mark.parametrize("kind", [RuntimeError, KeyError, ZeroDivisionError, KeyboardInterrupt])
def test_anything_else_stays_what_it_is(kind: type[BaseException]) -> None:
    with pytest.raises(kind), user_input():
        raise kind
