"""Pictures of the simulated world: pinhole cameras that look straight down, drawn as polygons over a table.

A picture is drawn at twice its size and halved, which smooths its edges; then it gets its sensor noise.
Axis letters: N instants, V corners of a polygon, H W C height, width and colour of a picture.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from dyna_assets.simulate.scene import TABLE_COLOURS, Colour, Scene
from dyna_assets.simulate.shapes import Shape, world_shapes
from dyna_assets.simulate.world import Snapshot, World

CAMERAS = ("top", "left_wrist", "right_wrist")
Size = tuple[int, int]

BLOCK = 16
"""Pixels; garbage comes in blocks of a video codec."""

_FINE = 2  # drawn this many times larger
_DARKEST, _BRIGHTEST, _MOST_NOISE = 14, 241, 13  # noise is added in uint8 and must not wrap around
_NOISE_LEVEL = 2.2
_SHADOW = (0, 0, 0, 72)
_TABLE_M = (0.47, 0.33)  # half its width and depth
_RASTER_M = (0.55, 0.45)  # half the stretch of floor and table that is painted
_RASTER_PER_M = 900
_TOP_HEIGHT_M, _TOP_WIDTH_M = 0.95, 1.10
_WRIST_ABOVE_M, _WRIST_AHEAD_M, _WRIST_FOCAL = 0.30, 0.02, 1.3


@dataclass(frozen=True, slots=True)
class Optics:
    """What is wrong with a camera's picture.

    exposure: times the right amount of light, 0 with its cap on. blur: of an edge, in picture widths. veil: share of
    the picture that is plain grey, 1 with something in front of the lens.
    """

    exposure: float = 1.0
    blur: float = 0.0
    veil: float = 0.0


GOOD = Optics()


@dataclass(frozen=True, slots=True)
class View:
    """A camera over N instants: where it is (m), where the top of its picture points (rad).

    focal: its focal length in picture widths.
    """

    eye_N3: NDArray[np.float64]
    yaw_N: NDArray[np.float64]
    focal: float


@dataclass(frozen=True, slots=True)
class Studio:
    """What all pictures of an episode share: the painted table and a supply of sensor noise."""

    scene: Scene
    size: Size
    table: Image.Image
    noise: NDArray[np.uint8]

    @classmethod
    def build(cls, scene: Scene, size: Size, rng: np.random.Generator) -> Studio:
        """Paint the table of `scene`; `size` is (height, width) of the pictures to come."""
        rows, width = size
        noise = np.clip(rng.normal(0, _NOISE_LEVEL, (rows + 32, width + 64, 3)), -_MOST_NOISE, _MOST_NOISE)
        return cls(scene, size, paint_table(scene), np.rint(noise).astype(np.int8).view(np.uint8))


def film(studio: Studio, world: World, camera: str, time_s_N: NDArray[np.float64]) -> Iterator[Image.Image]:
    """The pictures (RGB, without noise) that `camera` takes of `world` at `time_s_N`."""
    snapshot = world.at(time_s_N)
    view = look(camera, studio.scene, snapshot)
    rows, width = studio.size[0] * _FINE, studio.size[1] * _FINE
    shapes = world_shapes(studio.scene, snapshot)
    lit = [_lit(shape.colour, studio.scene.light) for shape in shapes]
    corners = [project(view, shape.points_NV3, (rows, width)) for shape in shapes]
    affine_N6 = _ground(view, (rows, width))
    floor = _lit(_FLOOR, studio.scene.light)
    still: Image.Image | None = None
    for instant in range(len(time_s_N)):
        if camera != "top" or still is None:
            still = studio.table.transform(
                (width, rows), Image.Transform.AFFINE, affine_N6[instant].tolist(), fillcolor=floor
            )
        canvas = still.copy() if camera == "top" else still
        _draw(canvas, shapes, lit, corners, instant)
        yield canvas.reduce(_FINE)


def expose(
    studio: Studio, picture: Image.Image, rng: np.random.Generator, optics: Optics = GOOD
) -> NDArray[np.uint8]:
    """`picture` as the sensor gives it, uint8 [H, W, 3]: what the lens lets through, and noise."""
    rows, width = studio.size
    y, x = int(rng.integers(32)), int(rng.integers(64))
    noise = studio.noise[y : y + rows, x : x + width]
    if optics.blur:
        picture = picture.filter(ImageFilter.GaussianBlur(optics.blur * width))
    rgb: NDArray[np.uint8] = np.asarray(picture)
    if optics.exposure == 1 and not optics.veil:
        return rgb + noise  # uint8 wraps as two's complement does, so this subtracts as well
    light = (rgb * (1 - optics.veil) + 128 * optics.veil) * optics.exposure
    return np.asarray(np.clip(light + noise.view(np.int8), 0, 255), np.uint8)


def damage(rgb: NDArray[np.uint8], share: float, rng: np.random.Generator) -> None:
    """Replace a share of the picture [H, W, 3], in place, by plain blocks, one after the other from a random one."""
    rows, columns = rgb.shape[0] // BLOCK, rgb.shape[1] // BLOCK
    num = round(share * rows * columns)
    first = int(rng.integers(rows * columns - num + 1))
    for block in range(first, first + num):
        y, x = BLOCK * (block // columns), BLOCK * (block % columns)
        rgb[y : y + BLOCK, x : x + BLOCK] = rng.integers(0, 256, 3)


def look(camera: str, scene: Scene, snapshot: Snapshot) -> View:
    """How `camera` sees the scene at each instant of `snapshot`."""
    num = len(snapshot.cube_N4)
    if camera == "top":
        eye_3 = np.array([*scene.top_shift_xy, _TOP_HEIGHT_M])
        return View(np.tile(eye_3, (num, 1)), np.full(num, math.pi / 2), _TOP_HEIGHT_M / _TOP_WIDTH_M)
    pose = snapshot.arms[camera.removesuffix("_wrist")]
    ahead_N2 = _WRIST_AHEAD_M * np.stack([np.cos(pose.yaw_N), np.sin(pose.yaw_N)], axis=1)
    eye_N3 = np.column_stack([pose.pinch_N2 + ahead_N2, pose.lift_N + _WRIST_ABOVE_M])
    return View(eye_N3, pose.yaw_N, _WRIST_FOCAL)


def project(view: View, points_NV3: NDArray[np.float64], size: Size) -> list[list[float]]:
    """Corners of a polygon on the picture at each instant, as x, y, x, y ... in pixels; [] out of sight."""
    rows, width = size
    rel_NV3 = points_NV3 - view.eye_N3[:, None]
    scale_NV = view.focal * width / np.maximum(-rel_NV3[..., 2], 0.05)  # what reaches the lens stays finite
    cos_N1, sin_N1 = np.cos(view.yaw_N)[:, None], np.sin(view.yaw_N)[:, None]
    right_NV = rel_NV3[..., 0] * sin_N1 - rel_NV3[..., 1] * cos_N1
    up_NV = rel_NV3[..., 0] * cos_N1 + rel_NV3[..., 1] * sin_N1
    pixels_NV2 = np.stack([width / 2 + right_NV * scale_NV, rows / 2 - up_NV * scale_NV], axis=-1)
    beyond = (pixels_NV2.max(axis=1) < 0) | (pixels_NV2.min(axis=1) > np.array([width, rows]))
    seen_N = ~beyond.any(axis=1)
    flat = pixels_NV2.reshape(len(pixels_NV2), -1).tolist()
    return [corners if seen else [] for corners, seen in zip(flat, seen_N.tolist(), strict=True)]


def paint_table(scene: Scene) -> Image.Image:
    """Floor, table, working mat and the places of the task from above, _RASTER_PER_M pixels a metre."""
    width, rows = (round(2 * half * _RASTER_PER_M) for half in _RASTER_M)
    flat = Image.new("RGB", (width, rows), _FLOOR)
    draw = ImageDraw.Draw(flat)
    _box(draw, (0, 0), _TABLE_M, fill=TABLE_COLOURS[scene.table_colour])
    _box(draw, (0, 0.07), (0.28, 0.16), fill=_MAT, outline=_MAT_LINE, width=3)
    for step in range(-5, 6):
        _line(draw, (step * 0.05, -0.09), (step * 0.05, 0.23))
    for step in range(-1, 5):
        _line(draw, (-0.28, step * 0.05), (0.28, step * 0.05))
    _box(draw, (-0.17, 0.06), (0.055, 0.055), outline=_TRAY, width=6)
    tone = _tone(scene, (rows, width))
    lit = np.asarray(flat, np.float32) * tone[:, :, None] * np.float32(scene.light)
    return Image.fromarray(np.clip(lit, _DARKEST, _BRIGHTEST).astype(np.uint8))


_FLOOR, _MAT, _MAT_LINE, _TRAY = (52, 50, 56), (66, 82, 88), (92, 108, 112), (226, 224, 214)


def _tone(scene: Scene, size: Size) -> NDArray[np.float32]:
    """Brightness of the table's surface: lamplight, wood grain along x, and blotches."""
    rows, width = size
    rng = np.random.default_rng(scene.texture_seed)
    x_W = np.linspace(-_RASTER_M[0], _RASTER_M[0], width, dtype=np.float32) - np.float32(scene.light_xy[0])
    y_H = np.linspace(_RASTER_M[1], -_RASTER_M[1], rows, dtype=np.float32) - np.float32(scene.light_xy[1])
    lamp = 1.12 - 0.55 * (x_W[None, :] ** 2 + y_H[:, None] ** 2)
    grain_H = np.convolve(rng.normal(0, 0.045, rows + 2), np.ones(3) / 2, "valid").astype(np.float32)
    coarse = rng.normal(0, 0.05, (rows // 30, width // 60)).astype(np.float32)
    blotches = np.asarray(Image.fromarray(coarse).resize((width, rows), Image.Resampling.BILINEAR))
    return np.asarray(lamp * (1 + grain_H[:, None] + blotches), np.float32)


def _ground(view: View, size: Size) -> NDArray[np.float64]:
    """For each instant the affine map [N, 6] from picture to table raster that Pillow wants."""
    rows, width = size
    per_pixel_N = view.eye_N3[:, 2] / (view.focal * width) * _RASTER_PER_M
    cos_N, sin_N = np.cos(view.yaw_N) * per_pixel_N, np.sin(view.yaw_N) * per_pixel_N
    x_N = (view.eye_N3[:, 0] + _RASTER_M[0]) * _RASTER_PER_M - sin_N * width / 2 + cos_N * rows / 2
    y_N = (_RASTER_M[1] - view.eye_N3[:, 1]) * _RASTER_PER_M - cos_N * width / 2 - sin_N * rows / 2
    return np.stack([sin_N, -cos_N, x_N, cos_N, sin_N, y_N], axis=1)


def _draw(
    canvas: Image.Image,
    shapes: list[Shape],
    lit: list[Colour],
    corners: list[list[list[float]]],
    instant: int,
) -> None:
    cover, shade = ImageDraw.Draw(canvas), ImageDraw.Draw(canvas, "RGBA")
    for shape, colour, corners_N in zip(shapes, lit, corners, strict=True):
        if not corners_N[instant]:
            continue
        if shape.is_shadow:
            shade.polygon(corners_N[instant], fill=_SHADOW)
        else:
            cover.polygon(corners_N[instant], fill=colour)


def _lit(colour: Colour, light: float) -> Colour:
    red, green, blue = (min(_BRIGHTEST, max(_DARKEST, round(level * light))) for level in colour)
    return red, green, blue


def _pixel(x: float, y: float) -> tuple[float, float]:
    return (x + _RASTER_M[0]) * _RASTER_PER_M, (_RASTER_M[1] - y) * _RASTER_PER_M


def _line(draw: ImageDraw.ImageDraw, begin_xy: tuple[float, float], end_xy: tuple[float, float]) -> None:
    draw.line([_pixel(*begin_xy), _pixel(*end_xy)], fill=_MAT_LINE, width=2)


def _box(
    draw: ImageDraw.ImageDraw,
    centre_xy: tuple[float, float],
    half: tuple[float, float],
    *,
    fill: Colour | None = None,
    outline: Colour | None = None,
    width: int = 1,
) -> None:
    (x, y), (dx, dy) = centre_xy, half
    draw.rectangle([_pixel(x - dx, y + dy), _pixel(x + dx, y - dy)], fill=fill, outline=outline, width=width)
