// The script of a page, run as a browser runs it: with a real EventSource, and a document that only keeps texts.
//
//     node --experimental-eventsource browser.js PAGE SERVER ROWS
//
// Prints the page's rows and its counts, as one line of JSON, each time when it shows that many rows.
const fs = require("fs");
const vm = require("vm");

const [page, server, wanted] = process.argv.slice(2);
const elements = new Map();

function element() {
  return {
    textContent: "",
    cells: [],
    replaceChildren(...cells) { this.cells = cells.map((cell) => cell.textContent); },
    insertRow() { const line = element(); line.remove = () => lines.delete(line); lines.add(line); return line; },
  };
}

const lines = new Set();
globalThis.document = {
  getElementById(name) { if (!elements.has(name)) elements.set(name, element()); return elements.get(name); },
  createElement: element,
};
globalThis.location = { search: "?key=id" };
globalThis.requestAnimationFrame = (call) => call();
const Source = EventSource;
globalThis.EventSource = class extends Source { constructor(path) { super(server + path); } };
const script = fs.readFileSync(page, "utf8").match(/<script>([^]*)<\/script>/)[1];
vm.runInThisContext(script);

let before = "";
setInterval(() => {
  const state = document.getElementById("state").textContent;
  const now = JSON.stringify({ head: document.getElementById("head").cells, rows: [...lines].map((line) => line.cells), state });
  if (now !== before && lines.size === Number(wanted)) { before = now; console.log(now); }
}, 20);
