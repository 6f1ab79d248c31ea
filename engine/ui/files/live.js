// Keeps the page as it is: asks for its part every two seconds, and replaces it where it has changed.
"use strict";
(() => {
  const EVERY_MS = 2000, SOON_MS = 300;
  const main = document.getElementById("main"), state = document.getElementById("state");

  const ageOf = ms => {
    const s = Math.max(0, (Date.now() - ms) / 1000);
    if (s < 120) return Math.round(s) + " s ago";
    if (s < 7200) return Math.round(s / 60) + " min ago";
    return s < 172800 ? Math.round(s / 3600) + " h ago" : Math.round(s / 86400) + " days ago";
  };
  const shownOf = range => range.name !== "time" ? range.value
    : new Date(1000 * range.value).toISOString().slice(0, 19).replace("T", " ") + "Z";
  const age = () => {
    for (const each of main.querySelectorAll("time[data-ms]")) {
      each.title = each.title || each.textContent;
      each.textContent = ageOf(Number(each.dataset.ms));
    }
  };
  const isInUse = () => !document.getSelection().isCollapsed && main.contains(document.getSelection().anchorNode);
  const put = text => {
    const open = new Set([...main.querySelectorAll("details[open]")].map(each => each.id));
    const places = [...main.querySelectorAll(".scroll")].map(each => [each.id, each.scrollLeft, each.scrollTop]);
    const active = document.activeElement;
    const focus = main.contains(active) ? [active.id, active.getAttribute("href")] : null;
    const made = new DOMParser().parseFromString(text, "text/html");
    for (const each of made.querySelectorAll("details")) each.open = open.has(each.id);
    main.replaceChildren(...made.body.childNodes);
    for (const [id, left, top] of places) document.getElementById(id)?.scrollTo(left, top);
    if (focus !== null) {
      const [id, href] = focus;
      const same = id ? document.getElementById(id) : [...main.querySelectorAll("a")].find(each => each.getAttribute("href") === href);
      (same ?? main.querySelector("a"))?.focus({preventScroll: true});
    }
    age();
  };
  const look = async () => {
    if (document.hidden || isInUse()) return EVERY_MS;
    try {
      const answer = await fetch(location.href, {
        cache: "no-store", headers: {"X-Fluvial-Part": "main", "If-None-Match": main.dataset.tag},
      });
      if (answer.status === 401) {
        state.textContent = "ended: open the address that fluvial ui printed";
        return null;
      }
      if (answer.status !== 304) {
        main.dataset.tag = answer.headers.get("ETag");
        put(await answer.text());
      }
      state.textContent = "live";
    } catch {
      state.textContent = "not reached";
    }
    return document.getElementById("partial") === null ? EVERY_MS : SOON_MS;
  };
  const run = async wait => {
    for (let next = wait; next !== null; next = await look()) {
      await new Promise(done => setTimeout(done, next));
      age();
    }
  };
  for (const each of document.querySelectorAll("input[type=range]")) {
    each.addEventListener("input", () => { each.parentElement.querySelector("output").textContent = shownOf(each); });
    each.addEventListener("change", () => each.form.requestSubmit());
  }
  age();
  run(document.getElementById("partial") === null ? EVERY_MS : SOON_MS);
})();
