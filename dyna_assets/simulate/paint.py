"""A number painted into a picture, in blocks that survive JPEG, H.264 and a resize to half.

Sixteen cells side by side along the top edge, the highest bit on the left, white for 1 and black for 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NUM_CELLS = 16
MAX_NUMBER = (1 << NUM_CELLS) - 1
HEIGHT_SHARE = 1 / 10

_UNSURE = (96, 160)  # a cell's mean between these is neither black nor white


def paint_number(rgb: NDArray[np.uint8], number: int) -> None:
    """Paint `number` (0 to 65,535) into the uint8 picture rgb [H, W, 3], in place.

    Raises ValueError for a number that does not fit or a picture under 64 pixels wide or 20 high.
    """
    if not 0 <= number <= MAX_NUMBER:
        raise ValueError(f"cannot paint {number}: {NUM_CELLS} cells hold 0 to {MAX_NUMBER:,}")
    height, edges = _cells(rgb)
    for cell in range(NUM_CELLS):
        bit = number >> (NUM_CELLS - 1 - cell) & 1
        rgb[:height, edges[cell] : edges[cell + 1]] = 255 * bit


def read_paint(rgb: NDArray[np.uint8]) -> int:
    """The number painted into the uint8 picture rgb [H, W, 3], which may have been resized or compressed.

    Raises ValueError naming the first cell that is neither black nor white.
    """
    height, edges = _cells(rgb)
    number = 0
    for cell in range(NUM_CELLS):
        left, right = edges[cell], edges[cell + 1]
        margin = (right - left) // 4  # the borders of a cell are smeared by resizing and by 4:2:0
        level = float(rgb[height // 4 : height - height // 4, left + margin : right - margin].mean())
        if _UNSURE[0] < level < _UNSURE[1]:
            raise ValueError(
                f"no painted number: cell {cell} (x {left} to {right}) has mean level {level:.0f}; "
                f"expected under {_UNSURE[0]} for 0 or over {_UNSURE[1]} for 1"
            )
        number = number << 1 | (level >= _UNSURE[1])
    return number


def _cells(rgb: NDArray[np.uint8]) -> tuple[int, list[int]]:
    """Height of the cells and their edges along x, in pixels."""
    rows, width = rgb.shape[:2]
    if width < 4 * NUM_CELLS or rows < 20:
        raise ValueError(
            f"a picture of {width}x{rows} is too small for a painted number; the least is {4 * NUM_CELLS}x20"
        )
    return max(2, round(rows * HEIGHT_SHARE)), [
        round(width * cell / NUM_CELLS) for cell in range(NUM_CELLS + 1)
    ]
