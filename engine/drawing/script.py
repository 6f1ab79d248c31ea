"""What pages of pictures do in a browser: details on a click, zoom. The picture is whole without it."""

from pathlib import Path
from typing import Final

DETAILS_STYLE: Final = (
    "#details{position:fixed;right:16px;bottom:16px;max-width:min(560px,90vw);max-height:60vh;overflow:auto;"
    "padding:12px 40px 12px 16px;border:1px solid GrayText;border-radius:8px;background:Canvas;color:CanvasText;"
    "font:13px/1.5 Inter,'Segoe UI',Helvetica,Arial,sans-serif;white-space:pre-wrap;overflow-wrap:anywhere;"
    "box-shadow:0 4px 24px rgba(0,0,0,.25)}"
    "#details[hidden]{display:none} #details b{display:block}"
    "#details button{position:absolute;top:8px;right:8px;border:0;background:none;color:inherit;font-size:18px;"
    "cursor:pointer} .f{cursor:pointer} .f.chosen,.f.chosen:hover{stroke:#e03131;stroke-width:2}"
    " svg.choosing .f[data-bucket]:not(.near):not(.chosen){fill-opacity:.25}"
)

ZOOM_STYLE: Final = (
    "nav{position:sticky;top:0;z-index:1;display:flex;justify-content:space-between;align-items:center;gap:16px;"
    "box-sizing:border-box;height:48px;padding:0 16px 0 32px;font-size:13px;background:inherit}"
    "section,.scroll{scroll-margin-top:48px}"
    ".scroll{overflow:auto;max-height:calc(100vh - 48px)} .scroll svg{display:block;margin:0 auto;max-width:none}"
    ".scroll.dragged{cursor:grabbing} a{cursor:pointer}"
    "#zoom{display:flex;gap:4px}"
    "#zoom button{font:inherit;font-size:13px;padding:4px 10px;border:1px solid GrayText;border-radius:6px;"
    "background:Canvas;color:CanvasText;cursor:pointer}"
)

_FILES: Final = Path(__file__).with_name("files")
DETAILS: Final = (_FILES / "details.html").read_text(encoding="utf-8")
ZOOM: Final = (_FILES / "zoom.html").read_text(encoding="utf-8")
