"""GET /debug/snapshot, /debug/tree.svg and /debug/blocks.svg: the engine as the views of a notebook see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from .errors import ApiError, Json

if TYPE_CHECKING:
    from .service import Service


async def snapshot(service: Service) -> Response:
    """Everything the views draw; it holds the texts of cached prompts."""
    llm = service.slot.llm
    return _not_kept(await service.slot.aside(lambda: Json(llm.snapshot().to_dict())))


async def tree_svg(service: Service) -> Response:
    """The radix tree."""
    from yaie_widgets import draw_radix_tree

    return await _drawn(service, draw_radix_tree)


async def blocks_svg(service: Service) -> Response:
    """The block tables."""
    from yaie_widgets import draw_block_table

    return await _drawn(service, draw_block_table)


async def _drawn(service: Service, draw: Any) -> Response:
    from yaie_widgets.render import RenderError

    llm = service.slot.llm
    try:
        svg = await service.slot.aside(lambda: draw(llm.snapshot()).svg)
    except RenderError:
        raise ApiError(501, "no Graphviz program is found on the server to draw with", "no_renderer") from None
    response = Response(svg, media_type="image/svg+xml")
    # A picture is data: whatever text is in it, no script of it may run.
    response.headers["content-security-policy"] = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
    return _not_kept(response)


def _not_kept(response: Response) -> Response:
    response.headers["cache-control"] = "no-store"
    response.headers["x-content-type-options"] = "nosniff"
    return response
