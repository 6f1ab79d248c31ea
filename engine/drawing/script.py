"""What pages of pictures do in a browser: details on a click, zoom. The picture is whole without it."""

from typing import Final

DETAILS_STYLE: Final = (
    "#details{position:fixed;right:16px;bottom:16px;max-width:min(560px,90vw);max-height:60vh;overflow:auto;"
    "padding:12px 40px 12px 16px;border:1px solid GrayText;border-radius:8px;background:Canvas;color:CanvasText;"
    "font:13px/1.5 Inter,'Segoe UI',Helvetica,Arial,sans-serif;white-space:pre-wrap;overflow-wrap:anywhere;"
    "box-shadow:0 4px 24px rgba(0,0,0,.25)}"
    "#details[hidden]{display:none} #details b{display:block}"
    "#details button{position:absolute;top:8px;right:8px;border:0;background:none;color:inherit;font-size:18px;"
    "cursor:pointer} .f{cursor:pointer} .f.chosen{stroke:#e03131;stroke-width:2}"
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
