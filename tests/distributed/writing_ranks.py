"""Ranks that write what THUNDER_DEBUG asks for."""

from __future__ import annotations

from tests.distributed.ddp_ranks import ddp
from tests.distributed.launching import Rank
from tests.distributed.training import batches, make_net, own_part, train
from thunder import thunderfx


def writes_its_files(here: Rank) -> None:
    """Trains under DDP; the files are looked at afterwards."""
    model = ddp(here, thunderfx(make_net(here), executors=here.executors))
    train(model, model.parameters(), [own_part(here, batch) for batch in batches(here)])
