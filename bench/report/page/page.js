// Puts the page together from the data inside it.
const DATA = JSON.parse(byId("data").textContent);
const RUNS = DATA.runs;
const COLUMNS = DATA.columns;

const KINDS = { isotropic: "isotropic noise", dataset: "one noise map for all inputs", input: "noise made for each input" };
const sum = (values) => values.reduce((total, value) => total + value, 0);
const unique = (values) => [...new Set(values)];
const UNITS = unique(RUNS.map((run) => run.unit));
const unitText = (unit) => `σ and radii are in units of ${unit}.`;

function lead() {
  const data = unique(RUNS.map((run) => run.data).filter(Boolean)), alphas = unique(RUNS.map((run) => run.alpha));
  const certified = sum(RUNS.map((run) => run.inputs - run.abstained)), all = sum(RUNS.map((run) => run.inputs));
  const sure = alphas.map((alpha) => Number((100 * (1 - alpha)).toPrecision(12)) + " %").join(" or ");
  return `${whole(all)} certificates${data.length ? " on " + data.join(", ") : ""}, in ${RUNS.length === 1 ? "one run" : RUNS.length + " runs"}; ${whole(certified)} of them hold a radius. `
    + `Inside that radius no perturbation changes the smoothed classifier’s answer, with a confidence of ${sure} for each input.`
    + (RUNS.some((run) => run.scope === "frozen") ? " Where the scope is frozen, that is the classifier whose noise stays as it was made for this input, and not the one that is deployed." : "");
}

function card(run, number, norm) {
  const curves = DATA.accuracy.find((one) => one.norm === norm);
  const fact = (name, value, after) => element("div", {}, element("dt", {}, name), element("dd", {}, value, after && element("small", {}, " " + after)));
  return element("article", { class: "card " + seriesClass(number) },
    element("h3", {}, swatch(number), run.name),
    element("p", { class: "kind" }, `${run.family}, ${KINDS[run.kind] || run.kind} · σ\u00a0=\u00a0${run.sigma} · n\u00a0=\u00a0${whole(run.n)} · scope ${run.scope} · ${run.stopping} stopping${run.loss ? `, about ${run.loss} points may be lost` : ""}`),
    run.unit && UNITS.length > 1 ? element("p", { class: "kind" }, unitText(run.unit)) : null,
    element("dl", { class: "facts" },
      run.labelled ? fact("certified and right", percent(run.correct / run.labelled)) : null,
      run.labelled && curves && curves.shares[number] ? fact(`certified at ${normName(norm)} radius ${roundDown(2 * curves.step)}`, percent(shareAt(curves, number, 2 * curves.step))) : null,
      run.labelled ? fact(`average certified radius (${normName(norm)})`, curves && curves.acr[number] !== undefined ? atLeast(run) + curves.acr[number] : "unknown") : fact("inputs without labels", whole(run.inputs - run.labelled)),
      run.labelled && run.kind !== "isotropic" ? fact("average volume-equivalent radius", atLeast(run) + run.volume) : null,
      fact("pA ≥, median", run.pA[1], `quartiles ${run.pA[0]} to ${run.pA[2]}`),
      fact("draws an input", whole(run.draws), run.draws < run.n0 + run.n ? `of ${whole(run.n0 + run.n)}` : ""),
      fact("a sample", short(run.seconds), "s"),
      fact("abstained", whole(run.abstained), `of ${whole(run.inputs)}`),
      fact("a second", whole(run.rate), "draws")),
    run.unfinished ? element("p", { class: "note" }, run.unfinished[0].toUpperCase() + run.unfinished.slice(1) + ".") : null,
    run.ended ? element("p", { class: "note" }, `${whole(run.ended)} of the abstained ended after selection: their class was wrong.`) : null,
    run.nobody ? element("p", { class: "note" }, `${whole(run.nobody)} draws had logits that are not finite and voted for nobody.`) : null);
}

// The rows of one input: its noise in each run, and for noise with maps the same noise with one scale everywhere.
function stripRows(number, one, norm) {
  const run = RUNS[number];
  const picture = (source, name, ...more) => element("figure", { class: more.length ? "map" : null }, element("img", { src: source, alt: `${name} of input ${one.idx}, ${run.name}` }), element("figcaption", {}, name, ...more));
  const ramp = (kind, low, high) => [element("span", { class: "ramp " + kind }), element("span", { class: "ends" }, element("span", {}, low), element("span", {}, high))];
  const outcome = one.answer === null ? "abstained" : one.correct === null ? "certified" : one.correct ? "right" : "wrong";
  const answer = one.answer === null ? "abstained" : `${outcome === "wrong" ? "✗ " : ""}${one.answer}, ${normName(norm)} radius ${one.radius[norm] || "unknown"}`;
  const about = (...lines) => element("div", { class: "about" }, ...lines);
  const words = (text) => element("p", { class: "fine" }, text);
  const blank = element("div", { class: "blank" }), sigma = "σ\u00a0=\u00a0" + one.smallest;
  const who = [element("h4", {}, swatch(number), run.name), element("p", { class: outcome }, answer)];
  const copies = one.copies.map((copy, i) => picture(copy, `draw ${i + 1}`));
  if (run.kind === "isotropic") return [about(...who, words(`isotropic, ${sigma}`)), blank, copies];
  return [about(...who), picture(one.mean, "mean map", ramp("diverging", "−" + one.meanBound, "+" + one.meanBound)),
    picture(one.scale, "scale map", ramp("sequential", ...one.scaleRange)), copies,
    about(words(`the same noise, isotropic with ${sigma}`)), blank, one.isotropic.map((copy, i) => picture(copy, `isotropic ${i + 1}`))];
}

// The isotropic rows are announced only where there are some.
const ISOTROPIC_ROWS = " The isotropic row has the same noise with one scale everywhere, the smallest of the map. Both give the same radius for the same share of votes.";

function strips(norm) {
  byId("isotropic-rows").textContent = RUNS.some((run) => run.kind !== "isotropic" && run.strips.length) ? ISOTROPIC_ROWS : "";
  const inputs = new Map();
  RUNS.forEach((run, number) => run.strips.forEach((one) => {
    const key = run.settings.data + " " + one.idx;
    inputs.set(key, [...(inputs.get(key) || []), [number, one]]);
  }));
  const shown = [...inputs.values()].map((rows) => {
    const [, first] = rows[0];
    return element("article", { class: "strip" },
      element("header", {}, element("img", { src: first.image, alt: `input ${first.idx}` }), element("h3", {}, `Input ${first.idx}`, first.label === null ? null : element("small", {}, first.label))),
      element("div", { class: "pictures" }, rows.map(([number, one]) => stripRows(number, one, norm))));
  });
  return [...shown, ...RUNS.filter((run) => run.missing).map((run) => element("p", { class: "note" }, `${run.name}: ${run.missing}`))];
}

// The curves in one norm, with a note for each run that has none, or that has lower ones than it could have.
function accuracy(norm) {
  const note = (text) => element("p", { class: "note" }, text), names = (runs) => runs.map((run) => run.name).join(", ");
  const curves = DATA.accuracy.find((one) => one.norm === norm);
  const unlabelled = RUNS.filter((run) => !run.labelled), unknown = RUNS.filter((run) => run.records.radius[norm] === undefined);
  return [...(curves ? accuracyChart(curves, RUNS) : []),
    ...unique(RUNS.map((run) => run.question).filter(Boolean)).map((question) => note(`Adaptive stopping ended each input when its question was settled: ${question}. Beyond what the question asks, curves and averages are lower than with the full number of draws, so averages are shown with ≥. Here: ${names(RUNS.filter((run) => run.question === question))}.`)),
    ...(unlabelled.length ? [note(`Without labels there is no accuracy: ${names(unlabelled)}.`)] : []),
    ...(unknown.length ? [note(`Made by a version that did not keep what radii in ${normName(norm)} need: ${names(unknown)}.`)] : [])];
}

// The attacks on the runs, with a note on what a success inside means.
function attacks(numbers) {
  const note = (text) => element("p", { class: "note" }, text), names = (chosen) => chosen.map((number) => RUNS[number].name).join(", ");
  const frozen = numbers.filter((number) => RUNS[number].attacks.movesMaps), others = numbers.filter((number) => !RUNS[number].attacks.movesMaps);
  const wrong = others.filter((number) => RUNS[number].attacks.inside), mapped = numbers.filter((number) => RUNS[number].kind !== "isotropic");
  const right = others.filter((number) => !RUNS[number].attacks.inside), chance = (number) => RUNS[number].attacks.points.length * (RUNS[number].alpha + RUNS[number].attacks.alpha);
  const expected = (chosen) => short(chosen.reduce((sum, number) => sum + chance(number), 0));
  return [...attackChart(RUNS, numbers),
    ...wrong.map((number) => element("p", { class: "note wrong" }, `Contradiction: the attacks on ${RUNS[number].name} change the answer inside ${whole(RUNS[number].attacks.inside)} of ${whole(RUNS[number].attacks.points.length)} certificates. If all were sound, at most ${expected([number])} contradictions would be expected by chance.`)),
    ...(right.length ? [note(`No attack on ${names(right)} contradicts a certificate. If all are sound, at most ${expected(right)} contradictions are expected by chance.`)] : []),
    ...(frozen.length ? [note(`In scope frozen, an attack moves the noise too, which the certificate takes to stay. A success inside shows what this scope leaves out. Here: ${names(frozen)}.`)] : []),
    ...(mapped.length ? [note(`Noise maps: the attack is measured as the certified region is, by ‖δ/σ‖, and shown times the smallest σ, as the radius is. Here: ${names(mapped)}.`)] : [])];
}

const SCOPES = {
  global: ["Scope global", "The noise is the same at every input, so the certificate speaks of the classifier that you deploy."],
  frozen: ["Scope frozen", "The noise maps were made for this input. The certificate speaks of the classifier whose noise is frozen at these maps: "
    + "the theorems hold for noise that does not depend on the input. At a perturbed input the generator may make other maps, and of that classifier this says nothing."],
};

const STREAMS = {
  1: ["Noise stream 1", "These certificates assume real arithmetic: a classifier that reads the low bits of its input can defeat them."],
  2: ["Noise stream 2", "These certificates hold in floating-point arithmetic, for every real perturbation, of the classifier that is smoothed after rounding to a lattice."],
};

// A term and its explanation for each value of a key, with the names of the runs that have it.
function terms(key, words) {
  return element("dl", {}, unique(RUNS.map((run) => run[key])).flatMap((value) => [element("dt", {}, words[value][0]), element("dd", {}, `${words[value][1]} Here: ${RUNS.filter((run) => run[key] === value).map((run) => run.name).join(", ")}.`)]));
}

function guarantee() {
  const norms = unique(RUNS.map((run) => normName(run.norm))).join(" and ");
  return [
    element("p", {}, `For each input, with probability at least 1 − α over the draws, the smoothed classifier gives the same answer for every perturbation whose ${norms} norm is below the radius; and for every perturbation inside the region ‖δ/σ‖ < K, of which the ball of that radius is a part. A radius in another norm is that of its largest ball inside the same region. Where the votes do not prove this, the certificate abstains and claims nothing.`),
    terms("scope", SCOPES),
    terms("stream", STREAMS),
    element("p", {}, "The probability is over the noise, one input at a time; among many inputs a share of about α may be wrong. A certificate belongs to the model file that voted, at its precision; its hash is below. It says that the answer is constant, not that it is right."),
  ];
}

function settings() {
  const names = (part) => unique(RUNS.flatMap((run) => Object.keys(run[part])));
  const rows = (part) => names(part).map((name) => {
    const values = RUNS.map((run) => run[part][name] === undefined ? "–" : run[part][name]);
    return element("tr", { class: unique(values).length > 1 ? "differs" : null }, element("th", { scope: "row" }, name), values.map((value) => element("td", {}, value)));
  });
  const one = (caption, part) => element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, element("table", {}, element("caption", {}, caption),
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "name"), RUNS.map((run, number) => element("th", { scope: "col" }, swatch(number), run.name)))), element("tbody", {}, rows(part))));
  return [one("What decides the certificates", "settings"), element("p", {}), one("Where the run happened", "environment")];
}

function bench(one) {
  const bars = one.bars.map((bar) => ({ name: bar.name, value: bar.value, deviation: bar.deviation, series: bar.ours ? 0 : 6,
    note: `${whole(bar.rate)} draws/s${bar.extrapolated ? " *" : ""}` }));
  const against = one.ratios.map((ratio) => `${ratio.times} times as fast as ${ratio.name}`);
  return [...barChart(`Seconds per sample, ${one.network}`, "s", bars).slice(0, 1), table(`Seconds per sample, ${one.network}`, one.heads, one.rows),
    element("p", { class: "fine" }, one.footnote),
    against.length ? element("p", {}, `${one.fastest} is ${against.join(", ")}.`) : null,
    ...one.leftOut.map((reason) => element("p", { class: "note" }, reason)),
    element("details", {}, element("summary", {}, "The machine"), table(`Where ${one.network} was measured`, ["part", "here"], Object.entries(one.environment)))];
}

if (RUNS.length) {
  byId("lead").textContent = lead();
  const showTable = certificateTable(RUNS), select = byId("norm");
  if (UNITS.length === 1 && UNITS[0]) byId("unit").textContent = unitText(UNITS[0]);
  select.append(...DATA.norms.map((norm) => element("option", { value: norm, selected: norm === RUNS[0].norm }, normName(norm))));
  const show = () => {
    byId("cards").replaceChildren(...RUNS.map((run, number) => card(run, number, select.value)));
    byId("accuracy").replaceChildren(...accuracy(select.value));
    byId("strips").replaceChildren(...strips(select.value));
    showTable(select.value);
  };
  select.addEventListener("change", show);
  show();
  const attacked = RUNS.map((run, number) => number).filter((number) => RUNS[number].attacks);
  byId("attacks").hidden = !attacked.length;
  if (attacked.length) byId("attacks").append(...attacks(attacked));
  byId("draws").append(...drawsChart(DATA.draws, RUNS));
  byId("seconds").append(...barChart("Seconds per sample", "s", RUNS.map((run, number) => ({ name: run.name, value: run.seconds, deviation: run.deviation, series: number, note: `${whole(run.rate)} draws/s` }))));
  byId("guarantee").append(...guarantee());
  byId("settings").append(...settings());
} else {
  byId("lead").textContent = "How fast the certificates of a smoothed classifier are made.";
  for (const section of document.querySelectorAll(".of-runs, .skip")) section.remove();
}
if (DATA.benches.length) {
  byId("bench").hidden = false;
  byId("bench").append(...DATA.benches.flatMap(bench).filter(Boolean));
}
byId("made").textContent = `Made by ARS ${DATA.version} on ${DATA.made}. This page needs no network: its data, pictures and script are inside.`;
