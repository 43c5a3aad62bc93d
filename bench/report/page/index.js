// The index of a folder of runs: a table to search, and the comparison of two runs that are chosen.
const DATA = JSON.parse(byId("data").textContent);
const boxes = DATA.runs.map((run) => element("input", { type: "checkbox", "aria-label": `compare ${run.name}`, onchange: () => choose() }));

// What is decided with comes first, and what the runs were made of last. Columns of words stand to the left.
const columns = [["compare", boxes], ["run", DATA.runs.map((run) => [element("a", { href: `./${encodeURIComponent(run.page)}` }, run.name), run.unfinished && element("small", { title: run.unfinished }, "not finished")])], ["σ", DATA.runs.map((run) => run.sigma)],
  ["scope", DATA.runs.map((run) => run.scope), "left"], ["norm", DATA.runs.map((run) => normName(run.norm)), "left"],
  ...DATA.radii.map((radius, i) => ["at " + radius, DATA.runs.map((run) => [run.shares[i] || "–", element("small", {}, run.intervals[i] || "")])]),
  ["ACR", DATA.runs.map((run) => run.acr)],
  DATA.runs.some((run) => run.attack) && ["attack / certificate", DATA.runs.map((run) => run.attack || "–")],
  ["inputs", DATA.runs.map((run) => run.inputs)], ["n", DATA.runs.map((run) => run.n)], ["noise", DATA.runs.map((run) => run.noise), "left"],
  ["model", DATA.runs.map((run) => run.model), "left"], ["data", DATA.runs.map((run) => run.data), "left"]].filter(Boolean);
const rows = DATA.runs.map((run, number) => element("tr", {}, columns.map(([head, cells, side]) =>
  head === "run" ? element("th", { scope: "row", class: "left" }, cells[number]) : element("td", { class: side }, cells[number]))));
byId("table").append(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of runs" },
  element("table", {}, element("caption", {}, "Runs"), element("thead", {}, element("tr", {}, columns.map(([head, , side]) => element("th", { scope: "col", class: head === "run" ? "left" : side }, head)))), element("tbody", {}, rows))));

const texts = DATA.runs.map((run) => [run.name, run.model, run.data, run.noise, run.sigma, run.scope, run.norm, run.n, run.unfinished && "not finished"].join(" ").toLowerCase());
function search() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  rows.forEach((row, number) => { row.hidden = !words.every((word) => texts[number].includes(word)); shown += row.hidden ? 0 : 1; });
  byId("status").textContent = `${whole(shown)} of ${whole(rows.length)} runs`;
}

// A pair is kept in the address, so that a comparison can be linked to.
function choose() {
  const chosen = boxes.flatMap((box, number) => box.checked ? [number] : []);
  for (const [number, box] of boxes.entries()) box.disabled = chosen.length === 2 && !chosen.includes(number);
  history.replaceState(null, "", chosen.length === 2 ? "#" + chosen.join(",") : location.pathname);
  show(chosen);
}

function show(chosen) {
  if (chosen.length !== 2) {
    byId("compare").replaceChildren(element("p", { class: "note" }, "Choose two runs in the table."));
    return;
  }
  const [first, second] = chosen.map((number) => DATA.runs[number]), found = DATA.pairs[chosen.join(",")];
  if (found.refused) {
    byId("compare").replaceChildren(element("p", { class: "note" }, found.refused));
    return;
  }
  const heads = ["radius", first.name, second.name, "difference", "95 % interval", "gained", "lost", "p"];
  byId("compare").replaceChildren(element("p", { class: "lead" }, found.verdict),
    table(`Certified accuracy in percent, ${first.name} and ${second.name}`, heads, found.rows),
    element("p", { class: "fine" }, "p is that of McNemar’s exact test, adjusted for the number of radii. ", found.settings.length ? "What differs: " + found.settings.join("; ") + "." : "No setting differs."),
    ...found.notes.map((note) => element("p", { class: "fine" }, note + ".")));
}

function open() {
  const chosen = location.hash.slice(1).split(",").map(Number).filter((number) => Number.isInteger(number) && boxes[number]);
  if (location.hash && chosen.length === 2) for (const number of chosen) boxes[number].checked = true;
  choose();
}

byId("search").addEventListener("input", search);
byId("filters").addEventListener("submit", (event) => event.preventDefault());
search();
open();
byId("made").textContent = `Made by ARS ${DATA.version} on ${DATA.made}. The index needs no network, and the pages of the runs lie beside it.`;
