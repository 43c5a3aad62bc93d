// Charts are drawn for the width at hand, so that their text has the same size on every screen.

let charts = 0;

// A figure with a caption, a drawing that follows the width, and its numbers as a table.
function chart(caption, description, draw, numbers) {
  const id = "chart-" + ++charts;
  const holder = element("div", {});
  const figure = element("figure", { class: "chart" }, element("figcaption", {}, caption), holder);
  let drawn = 0;
  const redraw = () => {
    const width = Math.max(240, Math.floor(figure.clientWidth));
    if (width === drawn) return;
    drawn = width;
    const { svg, extra } = draw(width);
    svg.prepend(shape("title", { id: id + "-title" }, caption), shape("desc", { id: id + "-desc" }, description));
    fill(svg, { class: "drawing", role: "img", "aria-labelledby": id + "-title " + id + "-desc" }, []);
    holder.replaceChildren(svg, ...(extra || []));
  };
  new ResizeObserver(redraw).observe(figure);
  queueMicrotask(redraw);
  return [figure, numbers && element("details", {}, element("summary", {}, "The numbers as a table"), numbers)];
}

function ticks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high * 1.0001; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

// Labels at the ends of curves, moved apart where they would meet. They stand beside the ends, since a line that leads
// to the edge of the chart looks like a part of the curve.
function spread(places, gap, low, high) {
  const order = places.map((y, i) => [y, i]).sort((a, b) => a[0] - b[0]);
  let last = low - gap;
  for (const place of order) last = place[0] = Math.max(place[0], last + gap);
  last = high + gap;
  for (const place of order.reverse()) last = place[0] = Math.min(place[0], last - gap);
  const apart = [];
  for (const [y, i] of order) apart[i] = y;
  return apart;
}

const clip = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;

// Certified accuracy of a run at a radius of the grid.
const shareAt = (curves, number, radius) => curves.shares[number][Math.round(radius / curves.radii[curves.radii.length - 1] * (curves.radii.length - 1))] || 0;

const bestName = (best) => "best over σ: " + best.runs.join(", ");

function accuracyChart(curves, runs) {
  const numbers = Object.keys(curves.shares).map(Number), radii = curves.radii, end = radii[radii.length - 1];
  const norm = normName(curves.norm);
  const draw = (width) => {
    const wide = width > 560, labelWidth = wide ? Math.min(170, width * 0.24) : 14;
    const box = { left: 46, right: width - labelWidth, top: 12, bottom: wide ? 340 : 260 };
    const x = (radius) => box.left + (box.right - box.left) * radius / end;
    const y = (share) => box.bottom - (box.bottom - box.top) * share;
    const svg = shape("svg", { viewBox: `0 0 ${width} ${box.bottom + 46}`, tabindex: "0" });
    for (const share of [0, 0.2, 0.4, 0.6, 0.8, 1]) {
      svg.append(shape("line", { class: share ? "grid" : "axis", x1: box.left, x2: box.right, y1: y(share), y2: y(share) }),
        shape("text", { x: box.left - 8, y: y(share) + 4, "text-anchor": "end" }, Math.round(100 * share) + " %"));
    }
    for (const radius of ticks(0, end, width / 90)) {
      svg.append(shape("line", { class: "axis", x1: x(radius), x2: x(radius), y1: box.bottom, y2: box.bottom + 5 }),
        shape("text", { x: x(radius), y: box.bottom + 20, "text-anchor": "middle" }, String(radius)));
    }
    svg.append(shape("text", { x: (box.left + box.right) / 2, y: box.bottom + 40, "text-anchor": "middle" }, `${norm} radius`));
    const path = (shares) => "M" + radii.map((radius, i) => x(radius).toFixed(1) + " " + y(shares[i]).toFixed(1)).join("L");
    for (const number of numbers.filter((one) => curves.bands[one])) {
      const edge = (side) => radii.map((radius, i) => x(radius).toFixed(1) + " " + y(curves.bands[number][i][side]).toFixed(1));
      svg.append(shape("path", { class: "band " + seriesClass(number), d: "M" + [...edge(0), ...edge(1).reverse()].join("L") + "Z" }));
    }
    for (const number of numbers) {
      svg.append(shape("path", { class: "curve " + seriesClass(number), d: path(curves.shares[number]),
        "stroke-dasharray": seriesDash(number) }));
    }
    for (const best of curves.best) svg.append(shape("path", { class: "best-line", d: path(best.shares) }, shape("title", {}, bestName(best))));
    if (wide) {
      const ends = numbers.map((number) => curves.shares[number].findLastIndex((share) => share > 0.02));
      const marks = numbers.map((number, i) => y(curves.shares[number][Math.max(0, ends[i])]));
      const places = spread(marks, 17, box.top + 8, box.bottom - 8);
      numbers.forEach((number, i) => {
        const from = x(radii[Math.max(0, ends[i])]);
        svg.append(shape("path", { class: "leader " + seriesClass(number), fill: "none",
          d: `M${from + 2} ${marks[i]}L${from + 9} ${places[i]}` }),
        shape("text", { class: "name " + seriesClass(number), x: from + 12, y: places[i] + 4 },
          shape("title", {}, runs[number].name), clip(runs[number].name, Math.floor(labelWidth / 7.6))));
      });
    }
    const guide = shape("g", { visibility: "hidden" });
    svg.append(guide);
    const reading = element("p", { class: "reading", "aria-live": "polite" });
    if (!wide) reading.append(...numbers.map((n) => element("span", { class: seriesClass(n) }, swatch(n), runs[n].name)));
    let at = Math.round(radii.length / 4);
    const read = (index) => {
      at = Math.min(radii.length - 1, Math.max(0, index));
      guide.setAttribute("visibility", "visible");
      guide.replaceChildren(shape("line", { class: "guide", x1: x(radii[at]), x2: x(radii[at]), y1: box.top, y2: box.bottom }),
        ...numbers.map((n) => shape("circle", { class: "dot " + seriesClass(n), cx: x(radii[at]), cy: y(curves.shares[n][at]), r: 5 })));
      reading.replaceChildren(element("span", {}, "at radius " + roundDown(radii[at])),
        ...numbers.map((n) => element("span", { class: seriesClass(n) }, swatch(n), runs[n].name + " ", element("b", {}, percent(curves.shares[n][at])))));
    };
    const point = (event) => {
      const frame = svg.getBoundingClientRect();
      read(Math.round(((event.clientX - frame.left) * width / frame.width - box.left) / (box.right - box.left) * (radii.length - 1)));
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageDown: -20, PageUp: 20, Home: -radii.length, End: radii.length }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      read(at + step);
    });
    return { svg, extra: [reading] };
  };
  const field = ticks(0, end, end / curves.step).filter((radius) => radius < end * 0.999);
  const share = (number, radius) => shareAt(curves, number, radius);
  const best = field.map((radius) => Math.max(...numbers.map((number) => share(number, radius))));
  const rows = numbers.map((number) => [[swatch(number), runs[number].name],
    ...field.map((radius, i) => element("td", { class: best[i] > 0 && share(number, radius) === best[i] && numbers.length > 1 ? "best" : null }, (100 * share(number, radius)).toFixed(1))),
    atLeast(runs[number]) + curves.acr[number], runs[number].norm === curves.norm ? atLeast(runs[number]) + runs[number].volume : "–"]);
  const at = (shares, radius) => shares[Math.round(radius / end * (radii.length - 1))];
  rows.push(...curves.best.map((best) => ["best over σ", ...field.map((radius) => (100 * at(best.shares, radius)).toFixed(1)), "–", "–"]));
  const heads = ["Run", ...field.map(String), "ACR", "volume"];
  const description = numbers.map((number) => `${runs[number].name}: ${percent(curves.shares[number][0])} at radius 0, average certified radius ${curves.acr[number]}`).join("; ");
  const [figure] = chart(`Certified accuracy by ${norm} radius`, description, draw);
  const caption = `Certified accuracy in percent by ${norm} radius; averages of the certified radius (ACR) and of the volume-equivalent one`;
  const said = [...(Object.keys(curves.bands).length ? [`The bands are ${curves.level.replace("%", " %")} intervals at each radius, for all inputs of the data, of which the certified ones are taken to be a random sample.`] : []),
    ...(curves.best.length ? [`The dashed line is the best over σ: ${curves.best.map((best) => best.runs.join(", ")).join("; ")}.`] : [])];
  return [figure, table(caption, heads, rows), said.length ? element("p", { class: "fine" }, said.join(" ")) : null].filter(Boolean);
}

function drawsChart(histogram, runs) {
  const edges = histogram.edges, low = Math.log10(edges[0]), high = Math.log10(edges[edges.length - 1]);
  const rowHeight = 84;
  const draw = (width) => {
    const box = { left: 4, right: width - 4 }, bottom = runs.length * rowHeight + 4;
    const x = (draws) => box.left + (box.right - box.left) * (Math.log10(draws) - low) / (high - low);
    const svg = shape("svg", { viewBox: `0 0 ${width} ${bottom + 44}` });
    const marks = [];
    for (let power = Math.floor(low); power <= high; power++) {
      for (const factor of [1, 2, 5]) {
        const mark = factor * 10 ** power;
        if (Math.log10(mark) >= low && Math.log10(mark) <= high) marks.push(mark);
      }
    }
    const few = width < 560 && marks.length > 5 ? marks.filter((mark) => /^1/.test(String(mark))) : marks;
    for (const mark of few.length ? few : marks) {
      svg.append(shape("line", { class: "grid", x1: x(mark), x2: x(mark), y1: 0, y2: bottom }),
        shape("text", { x: Math.min(width - 24, Math.max(20, x(mark))), y: bottom + 18, "text-anchor": "middle" }, whole(mark)));
    }
    runs.forEach((run, number) => {
      const counts = histogram.counts[number], most = Math.max(...counts), base = (number + 1) * rowHeight;
      counts.forEach((count, i) => {
        if (!count) return;
        const height = Math.max(1.5, count / most * (rowHeight - 32));
        svg.append(shape("rect", { class: "bar " + seriesClass(number), x: x(edges[i]) + 0.75, y: base - height, height,
          width: Math.max(1, x(edges[i + 1]) - x(edges[i]) - 1.5) }, shape("title", {}, `${count} inputs with ${whole(edges[i])} to ${whole(edges[i + 1])} draws`)));
      });
      svg.append(shape("line", { class: "axis", x1: box.left, x2: box.right, y1: base, y2: base }),
        shape("text", { x: box.left, y: base - rowHeight + 20 },
          shape("tspan", { class: "name " + seriesClass(number) }, clip(run.name, Math.floor(width / 16))),
          shape("tspan", { dx: 8 }, `${whole(run.draws)} on average`)));
    });
    svg.append(shape("text", { x: width / 2, y: bottom + 38, "text-anchor": "middle" }, "draws of an input, logarithmic"));
    return { svg };
  };
  const rows = edges.slice(0, -1).map((edge, i) => [`${whole(edge)} to ${whole(edges[i + 1])}`, ...runs.map((_, number) => String(histogram.counts[number][i]))]);
  const numbers = table("Inputs by the draws that they used", ["draws", ...runs.map((run) => run.name)], rows);
  return chart("Inputs by the draws that they used", runs.map((run) => `${run.name}: ${whole(run.draws)} draws on average`).join("; "), draw, numbers);
}

// Horizontal bars with their values beside them; `bars` are { name, value, deviation, note, series }.
function barChart(caption, unit, bars) {
  const most = Math.max(...bars.map((bar) => bar.value)), rowHeight = 50;
  const draw = (width) => {
    const room = width - Math.min(190, width * 0.55);
    const svg = shape("svg", { viewBox: `0 0 ${width} ${bars.length * rowHeight + 4}` });
    bars.forEach((bar, i) => {
      const top = i * rowHeight + 20, length = Math.max(1.5, bar.value / most * room), line = seriesClass(bar.series);
      svg.append(shape("text", { class: "name " + line, x: 0, y: top - 6 }, clip(bar.name, Math.floor(width / 8)), shape("title", {}, bar.name)),
        shape("rect", { class: "bar " + line, x: 0, y: top, width: length, height: 18 }),
        shape("text", { x: length + 8, y: top + 13.5 }, shape("tspan", { class: "value" }, `${short(bar.value)} ${unit}`), shape("tspan", { dx: 8 }, bar.note)));
    });
    return { svg };
  };
  const rows = bars.map((bar) => [bar.name, short(bar.value), short(bar.deviation), bar.note]);
  return chart(caption, bars.map((bar) => `${bar.name}: ${short(bar.value)} ${unit}`).join("; "), draw, table(caption, ["what", unit, "± deviation", "rate"], rows));
}

// Certified radius against smallest attack, a point for each input; an arrow stands where none was found.
function attackChart(runs, numbers) {
  const all = numbers.flatMap((number) => runs[number].attacks.points);
  const far = 1.05 * Math.max(...all.map((point) => point.radius)), high = 1.05 * Math.max(...all.map((point) => point.attack));
  const norm = unique(numbers.map((number) => normName(runs[number].norm))).join(", ");
  const draw = (width) => {
    const wide = width > 560, box = { left: 46, right: Math.min(width - 14, 640), top: 12, bottom: wide ? 340 : 260 };
    const x = (radius) => box.left + (box.right - box.left) * radius / far, y = (attack) => box.bottom - (box.bottom - box.top) * attack / high;
    const svg = shape("svg", { viewBox: `0 0 ${width} ${box.bottom + 46}` });
    for (const size of ticks(0, high, 6)) {
      svg.append(shape("line", { class: size ? "grid" : "axis", x1: box.left, x2: box.right, y1: y(size), y2: y(size) }),
        shape("text", { x: box.left - 8, y: y(size) + 4, "text-anchor": "end" }, String(size)));
    }
    for (const radius of ticks(0, far, width / 90)) {
      svg.append(shape("line", { class: "axis", x1: x(radius), x2: x(radius), y1: box.bottom, y2: box.bottom + 5 }),
        shape("text", { x: x(radius), y: box.bottom + 20, "text-anchor": "middle" }, String(radius)));
    }
    const end = Math.min(far, high);
    svg.append(shape("text", { x: (box.left + box.right) / 2, y: box.bottom + 40, "text-anchor": "middle" }, `certified ${norm} radius`),
      shape("line", { class: "guide", x1: x(0), y1: y(0), x2: x(end), y2: y(end) }),
      shape("text", { x: box.left + 8, y: box.top + 2 }, "smallest attack"));
    for (const number of numbers) {
      for (const point of runs[number].attacks.points) {
        const said = `input ${point.idx}, ${runs[number].name}: radius ${roundDown(point.radius)}, ` + (point.found ? `smallest attack ${short(point.attack)}` : `no attack up to ${roundDown(point.attack)}`);
        const at = [x(point.radius), y(point.attack)];
        svg.append(point.found ? shape("circle", { class: "point " + seriesClass(number), cx: at[0], cy: at[1], r: 3.5 }, shape("title", {}, said))
          : shape("path", { class: "point none " + seriesClass(number), d: `M${at[0] - 4} ${at[1] + 4}L${at[0]} ${at[1] - 4}L${at[0] + 4} ${at[1] + 4}Z` }, shape("title", {}, said)));
      }
    }
    const key = element("p", { class: "reading" }, numbers.map((number) => element("span", { class: seriesClass(number) }, swatch(number), runs[number].name)),
      all.some((point) => !point.found) ? element("span", {}, "△ no attack found up to there") : null, element("span", {}, "below the line: inside the certificate"));
    return { svg, extra: [key] };
  };
  const ratio = (number) => `${runs[number].name}: the median attack is ${runs[number].attacks.ratio} times its certificate`;
  const rows = numbers.map((number) => [[swatch(number), runs[number].name], whole(runs[number].attacks.points.length), runs[number].attacks.ratio,
    whole(runs[number].attacks.points.filter((point) => !point.found).length), whole(runs[number].attacks.inside)]);
  const [figure] = chart("Certified radius and smallest attack", numbers.map(ratio).join("; "), draw);
  return [figure, table("Attacks on the certificates", ["run", "inputs attacked", "attack / certificate, median", "no attack found", "inside the certificate"], rows)];
}
