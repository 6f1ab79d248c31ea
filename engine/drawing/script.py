"""What pages of pictures do in a browser: details on a click, zoom. The picture is whole without it."""

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

DETAILS: Final = """<aside id="details" hidden="hidden" aria-live="polite"></aside>
<script>
(() => {
  const panel = document.getElementById("details"), svg = document.querySelector("svg");
  const boxes = [...svg.querySelectorAll("rect.f")];
  const linesOf = box => box.querySelector("title").textContent.split("\\n");
  const clear = () => {
    panel.hidden = true;
    svg.classList.remove("choosing");
    boxes.forEach(box => box.classList.remove("chosen", "near"));
  };
  const show = box => {
    clear();
    const [name, ...facts] = linesOf(box), data = box.dataset;
    box.classList.add("chosen");
    if (data.bucket !== undefined) {
      const near = boxes.filter(other => other.dataset.bucket === data.bucket).filter(other => other !== box)
        .filter(other => Number(other.dataset.last) >= Number(data.first))
        .filter(other => Number(data.last) >= Number(other.dataset.first));
      near.forEach(other => other.classList.add("near"));
      svg.classList.add("choosing");
      facts.push("", near.length ? "its keys are also in the range of:" : "no other file has its keys");
      near.slice(0, 30).forEach(other => facts.push(linesOf(other).slice(0, 2).join(": ")));
      if (near.length > 30) facts.push("and " + (near.length - 30) + " more");
    }
    const title = document.createElement("b"), close = document.createElement("button");
    title.textContent = name;
    close.textContent = "\u00d7";
    close.setAttribute("aria-label", "close");
    close.onclick = clear;
    panel.replaceChildren(title, document.createTextNode(facts.join("\\n")), close);
    panel.hidden = false;
  };
  svg.addEventListener("click", event => {
    const box = event.target.closest("rect.f");
    if (box) show(box); else clear();
  });
  document.addEventListener("keydown", event => { if (event.key === "Escape") clear(); });
})();
</script>
"""

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

ZOOM: Final = """<script>
(() => {
  const view = document.getElementById("graph"), svg = view.querySelector("svg");
  const natural = Number(svg.getAttribute("width")), tall = Number(svg.getAttribute("height"));
  let scale = 1, from = null;
  const zoom = wanted => {
    const x = (view.scrollLeft + view.clientWidth / 2) / scale, y = (view.scrollTop + view.clientHeight / 2) / scale;
    scale = Math.min(4, Math.max(0.1, wanted));
    svg.style.width = natural * scale + "px";
    svg.style.height = tall * scale + "px";
    view.scrollLeft = x * scale - view.clientWidth / 2;
    view.scrollTop = y * scale - view.clientHeight / 2;
  };
  const fit = () => zoom(Math.min(view.clientWidth / natural, (innerHeight - 48) / tall));
  const buttons = {"\u2212": () => zoom(scale / 1.25), "+": () => zoom(scale * 1.25), "100 %": () => zoom(1), fit};
  for (const [name, act] of Object.entries(buttons)) {
    const button = document.createElement("button");
    button.textContent = name;
    button.onclick = act;
    document.getElementById("zoom").append(button);
  }
  view.addEventListener("wheel", event => {
    if (event.ctrlKey) {
      event.preventDefault();
      zoom(event.deltaY > 0 ? scale / 1.1 : scale * 1.1);
    }
  }, {passive: false});
  view.addEventListener("pointerdown", event => {
    if (event.pointerType === "mouse") from = [event.clientX + view.scrollLeft, event.clientY + view.scrollTop, false];
  });
  addEventListener("pointermove", event => {
    if (from === null) return;
    if (Math.abs(from[0] - event.clientX - view.scrollLeft) + Math.abs(from[1] - event.clientY - view.scrollTop) > 4) {
      from[2] = true;
      view.classList.add("dragged");
    }
    view.scrollLeft = from[0] - event.clientX;
    view.scrollTop = from[1] - event.clientY;
  });
  const whole = view.clientWidth / natural, root = svg.querySelector("rect.root");
  if (whole >= 0.85) zoom(Math.min(1, whole));
  else if (root !== null) {
    const box = root.getBBox();
    if (box.x + box.width > view.clientWidth) view.scrollLeft = box.x + (box.width - view.clientWidth) / 2;
    if (box.y + box.height > view.clientHeight) view.scrollTop = box.y + (box.height - view.clientHeight) / 2;
  }
  let moved = false;
  addEventListener("pointerup", () => {
    moved = from !== null ? from[2] : false;
    from = null;
    view.classList.remove("dragged");
  });
  view.addEventListener("click", event => { if (moved) event.preventDefault(); }, true);
  view.addEventListener("dragstart", event => event.preventDefault());
})();
</script>
"""
