"""The command that finds what the corpus holds more than once: duplicates."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from dyna_assets.commands.shared import AsJson, open_workspace

if TYPE_CHECKING:
    from dyna_assets.curation.duplicates import Duplicate, Duplicates

WIDTH = 80


def duplicates(
    where: Annotated[
        str, typer.Option(help="SQL condition over the corpus, as for curate: which episodes to compare.")
    ] = "true",
    as_json: AsJson = False,
) -> None:
    """List pairs of episodes that are the same: uploaded again, encoded anew, cut by up to a second, stamped anew.

    Compares the digests that labels hold, and opens no episode file.
    """
    from dyna_assets.curation.duplicates import find_duplicates

    found = find_duplicates(open_workspace().warehouse, where)
    if as_json:
        typer.echo(json.dumps(_as_dict(found), indent=2))
        return
    for pair in found.pairs:
        typer.echo("\n".join(pair_lines(pair)))
    typer.echo(textwrap.fill(summary(found), WIDTH))


def pair_lines(pair: Duplicate) -> list[str]:
    """Three paragraphs: the kind and both episodes, then what agrees and what does not."""
    names = [f"{copy.episode_id} {copy.source}: {copy.name}" for copy in (pair.one, pair.other)]
    is_exact = pair.kind == "exact"
    said = ["the states are equal"] if is_exact else []
    said += [agreed.says for agreed in pair.evidence if not (is_exact and agreed.subject == "state")]
    longer_s = pair.other.duration_s - pair.one.duration_s
    later_s = (pair.other.start_ns - pair.one.start_ns) / 1e9
    if abs(longer_s) >= 0.005:
        said.append(f"{abs(longer_s):,.2f} s {'longer' if longer_s > 0 else 'shorter'}")
    if abs(later_s) >= 0.005:
        said.append(f"begins {abs(later_s):,.2f} s {'later' if later_s > 0 else 'earlier'}")
    return [
        textwrap.fill(text, WIDTH, initial_indent=head, subsequent_indent=" " * 7, break_on_hyphens=False)
        for head, text in zip((f"{pair.kind:7}", " " * 7, " " * 7), (*names, ", ".join(said)), strict=True)
    ]


def summary(found: Duplicates) -> str:
    """How many pairs there are among how many episodes, and how many episodes could not be compared."""
    num_exact = sum(pair.kind == "exact" for pair in found.pairs)
    pairs = "1 pair" if len(found.pairs) == 1 else f"{len(found.pairs):,} pairs"
    text = f"{pairs} ({num_exact:,} exact) among {found.num_episodes:,} episodes"
    if not found.num_without:
        return text
    lack = "has no digest" if found.num_without == 1 else "have no digest"
    return (
        f"{text}; {found.num_without:,} of these {lack}: not labelled by this version (dyna-assets worker --once "
        "--profile relabel), or nothing moves there"
    )


def _as_dict(found: Duplicates) -> dict[str, object]:
    pairs = [
        {
            **asdict(pair),
            "similarity": pair.similarity,
            "evidence": [{**asdict(one), "similarity": one.similarity} for one in pair.evidence],
        }
        for pair in found.pairs
    ]
    return {
        "duplicates": pairs,
        "num_episodes": found.num_episodes,
        "num_without_digest": found.num_without,
    }
