"""Parts of stored weights: what one rank of several reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.errors import CheckpointError
from octavo.quant.tensor import WeightTensor


def take_part(tensor: WeightTensor, parts: Sequence[tuple[int, int, int]], shape: tuple[int, ...]) -> WeightTensor:
    """The part of a weight that ``parts`` name, each (dimension, start, stop), followed by zeros up to ``shape``.

    Rows of a matrix stay a view of the stored bytes where nothing is added; columns are copied. CheckpointError where a
    part of the last dimension begins or ends inside a block of the format.
    """
    form = tensor.format
    data, size = tensor.data, list(tensor.shape)
    for dim, start, stop in parts:
        if dim == len(tensor.shape) - 1:
            if start % form.block_elements or stop % form.block_elements:
                raise CheckpointError(
                    f"columns {start} to {stop} of a {form.name} weight begin or end inside a block of "
                    f"{form.block_elements}"
                )
            first, last = (form.head_bytes + n // form.block_elements * form.block_bytes for n in (start, stop))
            head = data[..., : form.head_bytes]
            data = np.concatenate([head, data[..., first:last]], axis=-1) if form.head_bytes else data[..., first:last]
        else:
            data = data[(slice(None),) * dim + (slice(start, stop),)]
        size[dim] = stop - start
    wanted = (*shape[:-1], form.row_bytes(shape[-1]))
    if data.shape != wanted:
        whole = np.zeros(wanted, np.uint8)
        whole[tuple(slice(0, n) for n in data.shape)] = data
        data = whole
    return WeightTensor(form, shape, np.ascontiguousarray(data))
