"""Every kind of image becomes the same kind of bytes; a broken one is named."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from boolit.errors import UserError
from boolit.lab.common import parallel as processes
from boolit.lab.datasets.images import decoding as _pool
from boolit.lab.datasets.images.decoding import decode_all, decode_image

RED = (255, 0, 0)


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


def of_colour(mode: str, colour: object, size: tuple[int, int] = (20, 12)) -> Image.Image:
    return Image.new(mode, size, colour)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("image", "kind", "expected"),
    [
        (of_colour("RGB", RED), "PNG", RED),
        (of_colour("RGB", RED), "BMP", RED),
        (of_colour("RGB", RED), "WEBP", RED),
        (of_colour("RGB", RED), "JPEG", RED),
        (of_colour("L", 77), "PNG", (77,) * 3),
        (of_colour("L", 77), "JPEG", (77,) * 3),
        (of_colour("1", 1), "PNG", (255,) * 3),
        (of_colour("P", 0), "PNG", (0,) * 3),
        (of_colour("I;16", 0x4D00), "PNG", (77,) * 3),
        (of_colour("CMYK", (0, 255, 255, 0)), "JPEG", RED),
        (of_colour("RGBA", (*RED, 255)), "PNG", RED),
        (of_colour("RGBA", (*RED, 0)), "PNG", (255,) * 3),
        (of_colour("LA", (0, 0)), "PNG", (255,) * 3),
    ],
)
def test_every_mode_becomes_three_bytes_a_pixel(image: Image.Image, kind: str, expected: tuple[int, ...]) -> None:
    found = decode_image(encoded(image, kind, **({"lossless": True} if kind == "WEBP" else {})), "name", 8)
    assert (found.shape, found.dtype) == ((3, 8, 8), np.uint8)
    assert np.abs(found.reshape(3, -1).astype(int) - np.array(expected)[:, None]).max() <= 2


def test_a_palette_with_transparency_lies_on_white() -> None:
    image = of_colour("P", 1)
    image.putpalette([0, 0, 0, 255, 0, 0])
    assert decode_image(encoded(image, transparency=1), "name", 8).min() == 255
    assert decode_image(encoded(image), "name", 8)[:, 0, 0].tolist() == list(RED)


@given(st.integers(3, 60), st.integers(3, 60), st.integers(8, 40))
def test_the_square_in_the_middle_is_scaled(width: int, height: int, side: int) -> None:
    across = np.zeros((height, width, 3), np.uint8)
    across[..., 0] = np.linspace(0, 255, width)[None]
    across[..., 1] = np.linspace(0, 255, height)[:, None]
    found = decode_image(encoded(Image.fromarray(across)), "name", side).astype(float)
    short = min(width, height)
    for colour, length, profile in ((0, width, found[0].mean(0)), (1, height, found[1].mean(1))):
        step = 255 / (length - 1)
        assert profile.mean() == pytest.approx(127.5, abs=1.5 + step / 4), colour
        assert np.all(np.diff(profile) >= -1.01)
        assert profile[-1] - profile[0] <= step * short + 1


def test_orientation_is_that_of_the_camera() -> None:
    image = of_colour("RGB", "black", (16, 16))
    image.paste(RED, (0, 0, 16, 8))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90° clockwise: what was above is right
    found = decode_image(encoded(image, "JPEG", exif=exif, quality=95), "name", 16)
    assert found[0, :, 10:].min() > 200
    assert found[0, :, :6].max() < 60


def test_a_large_jpeg_is_decoded_at_less_than_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    monkeypatch.setattr("boolit.lab.datasets.images.decoding._convert_to_rgb", lambda image: sizes.append(image.size) or image)
    decode_image(encoded(of_colour("RGB", RED, (1600, 800)), "JPEG"), "name", 32)
    assert sizes == [(200, 100)]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is an image in none of the formats JPEG, PNG"),
        (b"GIF? no", "is an image in none of the formats JPEG, PNG"),
        (encoded(Image.effect_noise((64, 64), 80).convert("RGB"), "JPEG")[:-300], "cannot be decoded"),
        (encoded(Image.effect_noise((64, 64), 80).convert("RGB"))[:-3000], "cannot be decoded"),
    ],
)
def test_a_broken_image_is_named_in_one_sentence(content: bytes, fault: str) -> None:
    with pytest.raises(UserError) as error:
        decode_image(content, "some/where.jpg", 8)
    assert str(error.value).startswith(f"some/where.jpg {fault}")
    assert str(error.value).endswith("replace it or take it away")
    assert "\n" not in str(error.value)


def test_worker_processes_decode_the_same_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = np.random.default_rng(0)
    images = [
        (row, f"{row}.png", encoded(Image.fromarray(drawn.integers(0, 256, (9, 12, 3), dtype=np.uint8)))) for row in range(70)
    ]
    here = list(decode_all(images, len(images), 8))
    monkeypatch.setattr(_pool, "WORTH_A_PROCESS", 30)
    monkeypatch.setattr(_pool, "TOGETHER", 4)
    monkeypatch.setattr(_pool, "processors", lambda: 2)
    given_out: list[int] = []
    followed = [*images, *((row, "broken.png", b"") for row in (70, 71))]
    decoded = decode_all((given_out.append(image[0]) or image for image in followed), len(followed), 8)
    for row, pixels in here:
        found = next(decoded)
        assert found[0] == row
        assert np.array_equal(found[1], pixels)
        if row == 0:
            assert len(given_out) == 2 * 4 * processes.WAITING  # few are under way at any time
        if row == 67:  # the portion after it has a broken one
            break
    with pytest.raises(UserError, match=r"^broken\.png is an image in none of the formats"):
        next(decoded)


def test_no_image_starts_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    for starter in ("subprocess.Popen", "subprocess.check_call", "os.system"):
        monkeypatch.setattr(starter, lambda *arguments, **_: started.append(arguments))
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", "gs")  # as where Ghostscript is installed
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
    with pytest.raises(UserError, match="is an image in none of the formats"):
        decode_image(postscript, "hostile.png", 8)
    assert started == []


@pytest.mark.parametrize("size", [(13_000, 13_000), (8_000, 5_001), (2**31 - 1, 2**31 - 1)])
def test_a_image_too_large_for_memory_is_refused_by_its_header(size: tuple[int, int]) -> None:
    content = bytearray(encoded(of_colour("L", 0)))
    header = b"IHDR" + size[0].to_bytes(4, "big") + size[1].to_bytes(4, "big") + bytes(content[24:29])
    content[12:33] = header + zlib.crc32(header).to_bytes(4, "big")
    with pytest.raises(UserError, match=r"pixels, more than|DecompressionBombError") as error:
        decode_image(bytes(content), "huge.png", 8)
    assert "\n" not in str(error.value)
