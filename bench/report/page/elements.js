"use strict";

// Elements are made, never parsed: a name from the data is always text.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

const element = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const shape = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

const byId = (id) => document.getElementById(id);
const whole = (value) => Math.round(value).toLocaleString("en");
const normName = (norm) => norm === "linf" ? "ℓ∞" : norm.replace("l", "ℓ");
// Adaptive stopping ends an input before its radius is as large as all draws would make it.
const atLeast = (run) => run.stopping === "adaptive" ? "≥\u00a0" : "";
const percent = (share) => (100 * share).toFixed(1) + " %";

// Four digits that count, rounded down: never a larger radius than was certified.
function roundDown(value) {
  if (value === 0) return "0";
  const unit = 10 ** (Math.floor(Math.log10(value)) - 3);
  return String(Number((Math.floor(value / unit * (1 + 1e-12)) * unit).toPrecision(4)));
}

// Three digits that count: 0.0123, 1.23, 123.
function short(value) {
  if (value === 0) return "0";
  if (value >= 100) return whole(value);
  return Number(value.toPrecision(3)).toString();
}

// Seven colours that colour-blind eyes tell apart, then the same ones dashed.
const seriesClass = (number) => "s" + (number % 7);
const seriesDash = (number) => [null, "7 4", "2 4"][Math.floor(number / 7) % 3];

function swatch(number) {
  const line = shape("line", { x1: 0, x2: 18, y1: 5, y2: 5, class: "curve", stroke: "var(--s)", "stroke-width": 3,
    "stroke-dasharray": seriesDash(number) });
  return shape("svg", { class: "swatch " + seriesClass(number), width: 18, height: 10, "aria-hidden": "true" }, line);
}

// A table with a caption that scrolls by itself where the screen is narrow.
function table(caption, heads, rows) {
  const cell = (content, first) => first ? element("th", { scope: "row" }, content) : content instanceof Node && content.tagName === "TD" ? content : element("td", {}, content);
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {},
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, heads.map((head) => element("th", { scope: "col" }, head)))),
      element("tbody", {}, rows.map((row) => element("tr", {}, row.map((content, i) => cell(content, i === 0)))))));
}
