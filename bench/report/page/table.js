// The table of certificates: filters, sorting and pages over all runs, with one page of rows in the document at a time.
const PAGE_ROWS = 50;

// The number that a text of Python's shows, to sort by.
const numberOf = (text) => text === "inf" ? Infinity : Number(text.replaceAll(",", ""));

// Columns that are sorted as text.
const WORDS = new Set(["run", "label", "predict", "outcome", "name", "explanation"]);

// The rows of all runs, each with its radii in every norm in which they are known.
function certificateRows(runs) {
  return runs.flatMap((run, number) => {
    const columns = run.records, named = (label) => label === null ? "" : run.classes && run.classes[label] !== undefined ? run.classes[label] : String(label);
    return columns.idx.map((idx, i) => {
      const abstained = columns.predict[i] === -1, label = columns.label[i];
      const outcome = abstained ? "abstained" : label === null ? "certified" : label === columns.predict[i] ? "right" : "wrong";
      return { number, run: run.name, idx, K: columns.K[i], label: named(label), predict: abstained ? "abstained" : named(columns.predict[i]), outcome,
        attackText: columns.attack[i], attack: columns.attack[i] ? numberOf(columns.attack[i].replace("> ", "")) : -1,
        radii: Object.fromEntries(Object.keys(columns.radius).map((norm) => [norm, columns.radius[norm][i] === null ? Infinity : columns.radius[norm][i]])),
        printed: Object.fromEntries(Object.keys(columns.printed).map((norm) => [norm, columns.printed[norm][i]])),
        ...Object.fromEntries(COLUMNS.map(({ name }) => [name, WORDS.has(name) ? columns[name][i] : numberOf(columns[name][i])])), texts: Object.fromEntries(COLUMNS.map(({ name }) => [name, columns[name][i]])) };
    });
  });
}

const OUTCOMES = { right: "✓ right", wrong: "✗ wrong", abstained: "– abstained", certified: "certified" };

// The certified region of an input as a picture, if its scale map is at hand: how far each pixel may move by itself.
function region(row) {
  const regions = RUNS[row.number].regions, one = regions[row.idx] || regions.all;
  if (!one || !row.K) return null;
  const levels = (scale) => (Math.floor(2550 * scale * row.K) / 10).toFixed(1);
  return element("figure", { class: "region" },
    element("img", { src: one.picture, alt: `the certified region of input ${row.idx}: how far each pixel may move` }),
    element("figcaption", {}, "How far each pixel may move if no other does, in grey levels of 255. Together they must keep ‖δ/σ‖ below K.",
      element("span", { class: "ramp sequential" }), element("span", { class: "ends" }, element("span", {}, levels(one.low)), element("span", {}, levels(one.high)))));
}

// All that is known about one input, in a dialog.
function details(row) {
  const close = element("button", { type: "button", onclick: () => box.close() }, "Close");
  const radii = Object.entries(row.printed).map(([norm, text]) => [`${normName(norm)} radius`, text]);
  const facts = [["run", row.run], ["label", row.label], ["answer", row.predict], ["outcome", row.outcome], ["scope", RUNS[row.number].scope], ...radii, ["smallest attack", row.attackText],
    ...COLUMNS.filter(({ name }) => name !== "explanation").map(({ name, title }) => [title, row.texts[name]])];
  const box = element("dialog", { "aria-labelledby": "details-title", onclose: () => box.remove() },
    element("h3", { id: "details-title" }, `Input ${row.idx}`), element("p", {}, row.explanation), region(row),
    element("dl", {}, facts.filter(([, value]) => value !== "").map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))), close);
  document.body.append(box);
  box.showModal();
}

// Makes the table, and returns the function that fills it with the radii in a norm.
function certificateTable(runs) {
  const rows = certificateRows(runs), several = runs.length > 1;
  let norm = null, farthest = 1;
  const columns = [
    ["idx", "input", (row) => element("button", { type: "button", class: "input", "aria-haspopup": "dialog", onclick: () => details(row) }, whole(row.idx))],
    several && ["run", "run", (row) => [swatch(row.number), row.run]],
    ["label", "label", (row) => row.label],
    ["predict", "answer", (row) => row.predict],
    ["outcome", "outcome", (row) => element("span", { class: row.outcome }, OUTCOMES[row.outcome])],
    ["radius", "radius", (row) => {
      const bar = element("i", {});
      bar.style.width = 100 * Math.max(0, Math.min(1, row.radius / farthest)) + "%";
      return [element("span", { class: "radius-bar " + seriesClass(row.number), "aria-hidden": "true" }, bar), row.printed[norm] || "unknown"];
    }],
    rows.some((row) => row.attackText) && ["attack", "smallest attack", (row) => row.attackText],
    ...COLUMNS.filter(({ name }) => rows.some((row) => row.texts[name])).map(({ name, title }) => [name, title, (row) => row.texts[name]]),
  ].filter(Boolean);
  const state = { sort: "idx", down: false, page: 0 };

  const option = (value, text) => element("option", { value }, text);
  const search = element("input", { type: "search", name: "class", placeholder: "class or input" });
  const outcome = element("select", { name: "outcome" }, option("", "all"), ...Object.keys(OUTCOMES).filter((kind) => rows.some((row) => row.outcome === kind)).map((kind) => option(kind, kind)));
  const run = element("select", { name: "run" }, option("", "all"), ...runs.map((one, number) => option(String(number), one.name)));
  const least = element("input", { type: "number", name: "radius", min: "0", step: "any", inputmode: "decimal", placeholder: "0" });
  const reset = element("button", { type: "reset" }, "Clear");
  const field = (name, control) => element("label", {}, name, control);
  byId("filters").append(field("Class or input number", search), field("Outcome", outcome),
    ...(several ? [field("Run", run)] : []), field("Radius at least", least), reset);

  const heads = columns.map(([key, name]) => element("th", { scope: "col", class: WORDS.has(key) ? "left" : null },
    element("button", { type: "button", "data-sort": key, onclick: () => {
      state.down = state.sort === key ? !state.down : !WORDS.has(key) && key !== "idx";
      Object.assign(state, { sort: key, page: 0 });
      show();
    } }, name)));
  const body = element("tbody", {});
  byId("table").append(element("table", {}, element("caption", {}, "Certificates, a row for each input"), element("thead", {}, element("tr", {}, heads)), body));
  const turn = (by) => () => { state.page += by; show(); };
  const previous = element("button", { type: "button", onclick: turn(-1) }, "← Previous");
  const next = element("button", { type: "button", onclick: turn(1) }, "Next →");
  const where = element("span", {});
  byId("pages").append(previous, where, next);

  function chosen() {
    const text = search.value.trim().toLowerCase(), radius = Number(least.value) || 0;
    return rows.filter((row) => (!outcome.value || row.outcome === outcome.value)
      && (!run.value || row.number === Number(run.value)) && (radius <= 0 || row.radius >= radius)
      && (!text || String(row.idx) === text || row.label.toLowerCase().includes(text) || row.predict.toLowerCase().includes(text)));
  }

  function show() {
    const found = chosen(), key = state.sort, sign = state.down ? -1 : 1;
    const compare = WORDS.has(key) ? (a, b) => a[key].localeCompare(b[key], "en", { numeric: true }) : (a, b) => a[key] - b[key];
    found.sort((a, b) => sign * compare(a, b) || a.idx - b.idx || a.number - b.number);
    const pages = Math.max(1, Math.ceil(found.length / PAGE_ROWS));
    state.page = Math.min(state.page, pages - 1);
    const first = state.page * PAGE_ROWS, shown = found.slice(first, first + PAGE_ROWS);
    body.replaceChildren(...shown.map((row) => element("tr", {}, columns.map(([name, , content]) => element("td", { class: WORDS.has(name) ? "left " + name : null }, content(row))))));
    heads.forEach((head, i) => {
      if (columns[i][0] === key) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    byId("status").textContent = found.length ? `${whole(first + 1)} to ${whole(first + shown.length)} of ${whole(found.length)} certificates` + (found.length < rows.length ? `, out of ${whole(rows.length)}` : "") : "No certificate fits these filters.";
    where.textContent = `page ${whole(state.page + 1)} of ${whole(pages)}`;
    previous.disabled = state.page === 0;
    next.disabled = state.page === pages - 1;
    byId("pages").hidden = pages === 1;
  }

  const filters = byId("filters"), restart = () => { state.page = 0; show(); };
  for (const kind of ["input", "change"]) filters.addEventListener(kind, restart);
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("reset", () => setTimeout(restart));
  return (chosenNorm) => {
    norm = chosenNorm;
    for (const row of rows) row.radius = row.radii[norm] === undefined ? -1 : row.radii[norm];
    farthest = Math.max(...rows.map((row) => row.radius).filter(Number.isFinite), 1e-9);
    heads[columns.findIndex(([key]) => key === "radius")].firstChild.textContent = `${normName(norm)} radius`;
    show();
  };
}
