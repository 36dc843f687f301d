"""A small world-action model: from frames, state and task to the next actions and the next frame.

Axes: B batch, N cameras, P patches of all cameras, A actions in a chunk, D dimensions, K features of a patch.
"""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dyna_train.manifest import ManifestInfo, VectorStatistics

PATCH = 32  # pixels: five convolutions of stride 2 leave one cell for each patch
NUM_FEATURES = 32
NUM_TASK_ROWS = 1024  # of the text table; crc32, unlike hash(), gives a text the same one in every process


class WorldActionModel(nn.Module):
    """Predicts an action chunk and the patch features of the next frame; `forward` returns the losses.

    The target features are a frozen random projection of the pixels, the same in every process. A learned
    target can be met by features that say nothing (collapse); this one cannot move.
    """

    state_stats: Tensor
    action_stats: Tensor

    def __init__(self, info: ManifestInfo, *, num_patches: int, horizon: int, width: int) -> None:
        super().__init__()
        self.horizon = horizon
        self.see = nn.Sequential()
        for given, made in pairwise([3, width // 8, width // 4, width // 2, width, width]):
            self.see.extend([nn.Conv2d(given, made, 3, 2, padding=1), nn.GroupNorm(4, made), nn.GELU()])
        self.feel = nn.Linear(len(info.features.state), width)
        self.hear = nn.Embedding(NUM_TASK_ROWS, width)
        self.place = nn.Parameter(torch.randn(num_patches + 2 + horizon, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.1, batch_first=True, norm_first=True)
        self.think = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.act = nn.Linear(width, len(info.features.action))
        self.dream = nn.Linear(width, NUM_FEATURES)
        self.register_buffer("state_stats", _mean_and_scale(info.statistics.state))
        self.register_buffer("action_stats", _mean_and_scale(info.statistics.action))
        self.project = nn.Conv2d(3, NUM_FEATURES, PATCH, stride=PATCH, bias=False).requires_grad_(False)
        seeded = torch.Generator().manual_seed(0)
        nn.init.normal_(self.project.weight, std=(3 * PATCH**2) ** -0.5, generator=seeded)

    def predict(self, frame_BNHWC: Tensor, state_BD: Tensor, task: list[str]) -> tuple[Tensor, Tensor]:
        """Normalized actions [B, A, D] and next-frame features [B, P, K]; frame is uint8, state raw."""
        seen = _per_patch(self.see, frame_BNHWC)
        felt = self.feel((state_BD - self.state_stats[0]) / self.state_stats[1])[:, None]
        rows = torch.tensor([zlib.crc32(text.encode()) % NUM_TASK_ROWS for text in task], device=seen.device)
        asked = seen.new_zeros(len(state_BD), self.horizon, seen.shape[2])
        thought = self.think(torch.cat([seen, felt, self.hear(rows)[:, None], asked], dim=1) + self.place)
        return self.act(thought[:, -self.horizon :]), self.dream(thought[:, : seen.shape[1]])

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """Losses [2] of actions and next frame, each the mean over what is no padding.

        batch: of an EpisodeDataset with two frame offsets (now, next), one of state, `horizon` of action.
        """
        now, after = batch["frames"].unbind(2)
        acted, dreamt = self.predict(now, batch["state"][:, 0], batch["task"])
        action = (batch["action"] - self.action_stats[0]) / self.action_stats[1]
        # The norm lets dark patches count as much as bright ones.
        features = F.layer_norm(_per_patch(self.project, after), (NUM_FEATURES,))
        action_loss = _mean(F.smooth_l1_loss(acted, action, reduction="none"), ~batch["action_is_pad"])
        frame_loss = _mean(F.mse_loss(dreamt, features, reduction="none"), ~batch["frames_is_pad"][:, 1:])
        return torch.stack([action_loss, frame_loss])


def _per_patch(layers: nn.Module, frame_BNHWC: Tensor) -> Tensor:
    """Features [B, P, K] that convolutions make of uint8 frames, as float in -1..1."""
    maps: Tensor = layers(frame_BNHWC.flatten(0, 1).permute(0, 3, 1, 2) / 127.5 - 1)
    return maps.flatten(2).transpose(1, 2).reshape(len(frame_BNHWC), -1, maps.shape[1])


def _mean_and_scale(vector: VectorStatistics) -> Tensor:
    """[2, D]; a joint that never moves keeps scale 1, as dividing by its noise would blow that up."""
    return torch.tensor([vector.mean, [std if std > 1e-4 else 1.0 for std in vector.std]])


def _mean(loss: Tensor, counts: Tensor) -> Tensor:
    """Mean of `loss` [B, A or P, any] where `counts` [B, A or 1] holds; 0 where nothing counts."""
    weight = counts[..., None].expand_as(loss)
    return (loss * weight).sum() / weight.sum().clamp(min=1)
