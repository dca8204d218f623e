"use strict";
// Draws the report from the data that is part of this file. No request leaves the page.
const data = JSON.parse(document.getElementById("data").textContent);
const columns = data.columns, count = columns.index.length;
const text = (name, i) => { const c = columns[name]; return c ? c.words[c.rows[i]] : ""; };
const number = (name, i) => { const c = columns[name]; return c ? c[i] : null; };
// Ten colours that colour-blind readers tell apart beside their neighbours (report.css has a set for dark pages).
// Seven marks and, from the eleventh on, dashes: 10 and 7 have no common factor, so 70 policies look different.
const palette = [...Array(10).keys()].map(k => `var(--c${k})`);
const marks = ["circle", "square", "triangle", "diamond", "down", "cross", "plus"], dashes = [null, "7 3", "2 3", "9 3 2 3"];
const policies = data.policies;
function style(p) {
  if (p === "(bound)") return { color: "var(--soft)", mark: "circle", dash: "6 4" };
  const k = policies.indexOf(p);
  return { color: palette[k % palette.length], mark: marks[k % marks.length], dash: dashes[Math.floor(k / palette.length) % dashes.length] };
}
// "configs/traces/gpt.jsonl.gz | insert:rate=0.1" becomes "gpt | insert:rate=0.1".
const shorten = t => t.split(" | ").map((part, k) => k ? part : part.replace(/^[^ ]*\//, "").replace(/(\.jsonl|\.swt)?(\.gz|\.zst)?$/, "")).join(" | ");
// Labels of at most `room` characters that stay apart: long names lose their keys' folders ("training.batch=16" is
// "batch=16"), then their middle, then all that they share with others that would look the same.
function fit(names, room) {
  const brief = names.map(n => n.length <= room ? n : n.replace(/\b[a-z_]+\.(?=[a-z_]+=)/g, ""));
  const cut = (n, head) => n.length <= room ? n : n.slice(0, head) + "\u2026" + n.slice(n.length - (room - 1 - head));
  let labels = (new Set(brief).size === new Set(names).size ? brief : names).slice();
  const whole = labels.slice();
  labels = labels.map(n => cut(n, Math.floor((room - 1) / 3)));
  const letters = l => l.replace(/[^a-z0-9]/gi, "");  // a comma for a colon is no difference to the eye
  for (const label of new Set(labels.map(letters))) {
    const same = [...labels.keys()].filter(k => labels[k] !== whole[k] && letters(labels[k]) === label);
    if (new Set(same.map(k => whole[k])).size < 2) continue;
    const first = whole[same[0]];
    let from = 0;
    while (same.every(k => whole[k][from] === first[from])) ++from;
    const head = Math.min(5, from);
    for (const k of same) labels[k] = whole[k].slice(0, head) + "\u2026" + whole[k].slice(from, from + room - head - 1);
  }
  const order = [...new Set(whole)];
  return labels.map((l, k) => labels.some((other, j) => other === l && whole[j] !== whole[k]) ? `${l.slice(0, room - 4)} #${order.indexOf(whole[k]) + 1}` : l);
}
const labelRoom = (width, items) => Math.min(width, Math.max(60, Math.max(...items.map(t => t.length)) * 6.9 + 16));
function element(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "rect", "circle", "polygon", "text", "title"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value); else if (value !== null) node.setAttribute(key, value);
  }
  for (const child of children) node.append(child);
  return node;
}
const fill = (id, ...nodes) => { const at = document.getElementById(id); at.replaceChildren(...nodes); return at; };
function time(ns) {
  if (ns === null) return "";
  if (ns < 1e3) return ns + " ns"; if (ns < 1e6) return (ns / 1e3).toFixed(1) + " us";
  return ns < 1e10 ? (ns / 1e6).toFixed(2) + " ms" : (ns / 1e9).toFixed(2) + " s";
}
function bytes(b) {
  if (b === null) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"]; let u = 0;
  while (b >= 1024 && u < 4) { b /= 1024; ++u; }
  return (u ? b.toFixed(2) : b) + " " + units[u];
}
const show = (name, value) => value === null ? "" : name.endsWith("_ns") ? time(value) : name.endsWith("_bytes") ? bytes(value)
  : name.endsWith("_ppm") ? (value / 1e6).toFixed(3) : String(value);
const all = [...Array(count).keys()];
const nominal = all.filter(i => !columns.sample || text("sample", i) === "nominal");
const traces = [...new Set(nominal.map(i => text("trace", i)))];
// What else varies besides trace, budget and policy: one choice is shown at a time.
const settingOf = i => data.varying.filter(f => !["trace", "budget", "policy", "sample"].includes(f)).map(f => f + "=" + text(f, i)).join(", ");
const settings = [...new Set(nominal.map(settingOf))];

function choose(id, label, options, draw, names = options) {
  const select = element("select", { "aria-label": label, onchange: () => draw(select.value) });
  options.forEach((o, k) => select.append(element("option", { value: o }, names[k])));
  if (options.length > 1 || options[0] !== "") document.getElementById(id).append(element("label", {}, label + " ", select));
  return select;
}
// The mark of a policy around a point.
function mark(policy, x, y, r, attributes = {}, ...children) {
  const look = style(policy), a = { class: "mark", fill: look.color, ...attributes };
  const corners = list => element("polygon", { ...a, points: list.map(([dx, dy]) => `${x + dx * r},${y + dy * r}`).join(" ") }, ...children);
  const t = .42, turned = list => list.map(([dx, dy]) => [(dx - dy) * .75, (dx + dy) * .75]);
  const plus = [[-t, -1.2], [t, -1.2], [t, -t], [1.2, -t], [1.2, t], [t, t], [t, 1.2], [-t, 1.2], [-t, t], [-1.2, t], [-1.2, -t], [-t, -t]];
  switch (look.mark) {
    case "square": return corners([[-.9, -.9], [.9, -.9], [.9, .9], [-.9, .9]]);
    case "triangle": return corners([[0, -1.2], [1.1, .9], [-1.1, .9]]);
    case "down": return corners([[0, 1.2], [1.1, -.9], [-1.1, -.9]]);
    case "diamond": return corners([[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]]);
    case "plus": return corners(plus);
    case "cross": return corners(turned(plus));
    default: return element("circle", { ...a, cx: x, cy: y, r }, ...children);
  }
}
function legend(names, lines = true) {
  return element("div", { class: "legend" }, ...names.map(n => {
    const width = lines ? 30 : 14, sample = element("svg", { class: "sample", viewBox: `0 0 ${width} 12`, width, height: 12 });
    if (lines) sample.append(element("line", { x1: 0, x2: width, y1: 6, y2: 6, stroke: style(n).color, "stroke-width": 2, "stroke-dasharray": style(n).dash }));
    sample.append(mark(n, width / 2, 6, 4));
    return element("span", {}, sample, n);
  }));
}
function ticks(low, high, wanted) {
  const raw = (high - low) / wanted || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= raw), list = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-9; t += step) list.push(Math.abs(t) < step * 1e-9 ? 0 : t);
  return list;
}
// A plane with axes; returns the mapping of points.
function plane(width, height, x, y, xLabel, yLabel, xText = String, yText = String) {
  const left = 62, right = 14, top = 10, bottom = 40;
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": yLabel + " over " + xLabel });
  const px = v => left + (v - x[0]) / (x[1] - x[0] || 1) * (width - left - right);
  const py = v => height - bottom - (v - y[0]) / (y[1] - y[0] || 1) * (height - top - bottom);
  for (const t of ticks(x[0], x[1], narrow ? 4 : 7)) svg.append(
    element("line", { class: "axis", x1: px(t), x2: px(t), y1: top, y2: height - bottom }),
    element("text", { class: "soft", x: px(t), y: height - bottom + 15, "text-anchor": "middle" }, xText(t)));
  for (const t of ticks(y[0], y[1], 6)) svg.append(
    element("line", { class: "axis", x1: left, x2: width - right, y1: py(t), y2: py(t) }),
    element("text", { class: "soft", x: left - 6, y: py(t) + 4, "text-anchor": "end" }, yText(t)));
  svg.append(element("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, xLabel),
    element("text", { transform: `translate(13 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, yLabel));
  return { svg, px, py };
}
// Charts are drawn for the width they have, so that their text stays readable on a phone.
const chartWidth = Math.max(340, Math.min(900, document.querySelector("main").clientWidth - 24)), narrow = chartWidth < 600;
const decimals = v => +v.toFixed(4) + "";

// Few traces leave the interval without a limit, which JSON writes as null.
const limit = v => v === null || v < 1e-9 || v > 1e6 ? "no limit" : v.toFixed(3);
function verdicts() {
  if (!data.comparison) { fill("verdict", element("p", {}, "One policy only: nothing to compare.")); return; }
  const c = data.comparison;
  const cards = c.candidates.map(one => element("div", { class: "card" },
    element("b", {}, one.candidate), element("br"),
    element("span", { class: "verdict " + one.verdict.split(" ")[0] }, one.verdict), " against " + c.baseline,
    element("p", {}, one.pairs.length ? `${one.ratio.toFixed(3)}x  [${limit(one.interval[0])}, ${limit(one.interval[1])}]  p = ${one.p_holm < 1e-4 ? "<0.0001" : one.p_holm.toFixed(4)}` : "no pairs"),
    element("p", { class: "soft" }, `${one.reason}. ${one.pairs.length} pairs on ${one.traces.length} traces: ${one.better} better, ${one.same} same, ${one.worse} worse; failed: ${one.only_baseline_failed} baseline only, ${one.only_candidate_failed} candidate only, ${one.both_failed} both.`)));
  fill("verdict", element("p", {}, `${c.metric} relative to ${c.baseline}; differences below ${(c.threshold * 100).toFixed(1)} % do not matter. Geometric mean over traces, ${(c.confidence * 100).toFixed(0)} % bootstrap-t interval, Wilcoxon with Holm's correction.`), element("div", { class: "cards" }, ...cards));
}

// Round ratios between 2^low and 2^high, 1 first, at least `gap` pixels apart; the logarithms when there are too few.
function ratioTicks(low, high, px, gap) {
  const chosen = [], round = [1, .5, 2, .8, 1.2, .6, 1.5, .7, .9, 1.1, .4, 3, .3, 4, .2, 5, .1, 10, .05, 20, .02, 50, .01, 100, .95, 1.05, 1.3, 1.4];
  for (const t of round) {
    const at = Math.log2(t);
    if (at >= low && at <= high && chosen.every(c => Math.abs(px(Math.log2(c)) - px(at)) >= gap)) chosen.push(t);
  }
  return chosen.length > 2 ? chosen.sort((a, b) => a - b) : ticks(low, high, 4).map(t => 2 ** t);
}
function dots(candidate) {
  const c = data.comparison, one = c.candidates.find(x => x.candidate === candidate);
  if (!one || !one.pairs.length) { fill("dots", element("p", {}, "No pairs.")); return; }
  const names = one.traces.map(t => t.trace), logs = one.pairs.map(p => Math.log2(p.ratio));
  const low = Math.min(-0.1, ...logs) * 1.08, high = Math.max(0.1, ...logs) * 1.08;
  const width = chartWidth, row = 24, top = 12, height = top + (names.length + 1) * row + 42;
  const shortNames = fit(names.map(shorten), narrow ? 18 : 40), left = labelRoom(narrow ? 140 : 300, [...shortNames, "geometric mean"]);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "ratio per pair" });
  const px = v => left + (v - low) / (high - low) * (width - left - 16), bottom = top + (names.length + 1) * row;
  for (const t of ratioTicks(low, high, px, 48)) svg.append(element("line", { class: "axis", x1: px(Math.log2(t)), x2: px(Math.log2(t)), y1: top, y2: bottom }),
    element("text", { class: "soft", x: px(Math.log2(t)), y: bottom + 15, "text-anchor": "middle" }, decimals(t) + "x"));
  const threshold = Math.log2(1 + c.threshold);
  svg.append(element("rect", { x: px(-threshold), width: Math.max(1, px(threshold) - px(-threshold)), y: top, height: bottom - top, fill: "var(--line)", opacity: .6 }));
  names.forEach((name, k) => {
    const y = top + (k + .5) * row;
    svg.append(element("text", { class: "name", x: left - 8, y: y + 4, "text-anchor": "end" }, shortNames[k], element("title", {}, name)));
    for (const p of one.pairs.filter(p => p.trace === name))
      svg.append(mark(candidate, px(Math.log2(p.ratio)), y, 4.5, { opacity: .8 }, element("title", {}, `${name} ${p.where}: ${p.ratio.toFixed(3)}x`)));
  });
  const y = top + (names.length + .5) * row, m = px(Math.log2(one.ratio));
  const inside = v => Math.min(width - 16, Math.max(left, px(v === null ? Infinity : Math.log2(Math.max(v, 1e-9)))));
  svg.append(element("text", { x: left - 8, y: y + 4, "text-anchor": "end", "font-weight": 700 }, "geometric mean"),
    element("line", { x1: inside(one.interval[0]), x2: inside(one.interval[1]), y1: y, y2: y, stroke: "var(--fg)", "stroke-width": 2 }),
    element("polygon", { points: `${m - 6},${y} ${m},${y - 6} ${m + 6},${y} ${m},${y + 6}`, fill: "var(--fg)" }),
    element("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, `${c.metric}: ${candidate} / ${c.baseline} (left is ${c.less ? "better" : "worse"})`));
  fill("dots", svg);
}

const share = i => number("budget_bytes", i) / number("trace_peak_bytes", i);
const chosen = (trace, setting) => nominal.filter(i => text("trace", i) === trace && settingOf(i) === setting);
function curves(trace, setting) {
  const rows = chosen(trace, setting).filter(i => share(i) < 4);
  const series = new Map();
  const add = (name, x, y) => { if (!series.has(name)) series.set(name, new Map()); series.get(name).set(x, y); };
  for (const i of rows) {
    if (number("slowdown_ppm", i) !== null) add(text("policy", i), share(i), number("slowdown_ppm", i) / 1e6);
    const bound = number("bound_iter_time_ns", i), free = number("unconstrained_iter_time_ns", i);
    if (bound !== null && free) add("(bound)", share(i), bound / free);
  }
  const xs = [...series.values()].flatMap(m => [...m.keys()]), ys = [...series.values()].flatMap(m => [...m.values()]);
  if (!xs.length) { fill("curves", element("p", {}, "No run ended for this choice.")); return; }
  const spread = Math.max(...xs) - Math.min(...xs) || .1;
  const { svg, px, py } = plane(chartWidth, narrow ? 300 : 380, [Math.min(...xs) - spread * .03, Math.max(...xs) + spread * .03], [Math.min(1, ...ys) * .98, Math.max(...ys) * 1.04], "budget, as a share of the trace's peak", "slowdown", decimals, v => decimals(v) + "x");
  for (const [name, points] of series) {
    const sorted = [...points].sort((a, b) => a[0] - b[0]);
    svg.append(element("path", { d: "M" + sorted.map(([x, y]) => `${px(x)},${py(y)}`).join("L"), fill: "none", stroke: style(name).color, "stroke-width": 2, "stroke-dasharray": style(name).dash }));
    for (const [x, y] of sorted) svg.append(mark(name, px(x), py(y), 4, {}, element("title", {}, `${name} at ${x.toFixed(3)}x: ${y.toFixed(3)}x`)));
  }
  fill("curves", legend([...series.keys()]), svg);
}
function pareto(trace, setting) {
  const rows = chosen(trace, setting).filter(i => number("iter_time_ns", i) !== null);
  if (!rows.length) { fill("pareto", element("p", {}, "No run ended for this choice.")); return; }
  const largest = Math.max(...rows.map(i => number("peak_reserved_bytes", i))), [unit, size] = largest < 2 ** 30 ? ["MiB", 2 ** 20] : ["GiB", 2 ** 30];
  const points = rows.map(i => ({ i, x: number("peak_reserved_bytes", i) / size, y: number("iter_time_ns", i) / 1e6 }));
  const front = points.filter(p => !points.some(q => (q.x < p.x && q.y <= p.y) || (q.x <= p.x && q.y < p.y))).sort((a, b) => a.x - b.x);
  const max = k => Math.max(...points.map(p => p[k])), min = k => Math.min(...points.map(p => p[k]));
  const pad = k => (max(k) - min(k) || max(k) || 1) * .05;
  const { svg, px, py } = plane(chartWidth, narrow ? 280 : 340, [min("x") - pad("x"), max("x") + pad("x")], [min("y") - pad("y"), max("y") + pad("y")], "device memory reserved at its peak, " + unit, "iteration time, ms", decimals, decimals);
  svg.append(element("path", { d: "M" + front.map((p, k) => (k ? `L${px(p.x)},${py(front[k - 1].y)}L` : "") + `${px(p.x)},${py(p.y)}`).join(""), fill: "none", stroke: "var(--fg)", "stroke-width": 1.5 }));
  for (const p of points) svg.append(mark(text("policy", p.i), px(p.x), py(p.y), front.includes(p) ? 6.5 : 4, { opacity: front.includes(p) ? 1 : .75 },
    element("title", {}, `${text("policy", p.i)} at ${text("budget", p.i)}: ${time(number("iter_time_ns", p.i))}, ${bytes(number("peak_reserved_bytes", p.i))}`)));
  fill("pareto", legend([...new Set(points.map(p => text("policy", p.i)))], false), svg);
}
const parts = ["compute_busy_ns", ...data.stalls];
const partColor = k => k === 0 ? "#9aa5b8" : palette[k - 1];  // there are eight kinds of stall
function breakdown(trace, setting) {
  const rows = chosen(trace, setting).filter(i => number("iter_time_ns", i) !== null);
  if (!rows.length) { fill("breakdown", element("p", {}, "No run ended for this choice.")); return; }
  const used = parts.map((p, k) => k).filter(k => rows.some(i => number(parts[k], i) > 0));
  const names = rows.map(i => `${text("budget", i)} ${text("policy", i)}`), shortNames = fit(names, narrow ? 20 : 44), left = labelRoom(narrow ? 145 : 300, shortNames);
  const row = 20, width = chartWidth, height = rows.length * row + 30, most = Math.max(...rows.map(i => number("iter_time_ns", i)));
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "time of an iteration by what it was spent on" });
  rows.forEach((i, k) => {
    let x = left;
    svg.append(element("text", { class: "name", x: left - 8, y: k * row + 14, "text-anchor": "end" }, shortNames[k], element("title", {}, names[k])));
    for (const p of used) {
      const w = number(parts[p], i) / most * (width - left - 90);
      if (w > 0) svg.append(element("rect", { x, y: k * row + 2, width: w, height: row - 5, fill: partColor(p) }, element("title", {}, `${parts[p]}: ${time(number(parts[p], i))}`)));
      x += w;
    }
    svg.append(element("text", { class: "soft", x: x + 5, y: k * row + 14 }, time(number("iter_time_ns", i))));
  });
  const key = element("div", { class: "legend" }, ...used.map(p => { const i = element("i"); i.style.background = partColor(p); return element("span", {}, i, parts[p].replace(/^stall_/, "").replace(/_ns$/, "").replace(/_/g, " ")); }));
  fill("breakdown", key, element("div", { class: "scroll" }, svg));
}
function timelines() {
  if (!data.timeline) { document.getElementById("timeline-section").remove(); return; }
  const t = data.timeline, x = t.time_ns.map(v => v / 1e6), y = t.bytes.map(v => v / 2 ** 20);
  const { svg, px, py } = plane(chartWidth, narrow ? 240 : 280, [0, Math.max(...x) || 1], [0, Math.max(...y, t.budget_bytes / 2 ** 20) * 1.05], "host time, ms", "device bytes, MiB", decimals, decimals);
  let d = `M${px(x[0])},${py(0)}`;
  x.forEach((v, k) => { d += `L${px(v)},${py(k ? y[k - 1] : 0)}L${px(v)},${py(y[k])}`; });
  svg.append(element("path", { d: d + `L${px(x[x.length - 1])},${py(0)}Z`, fill: "var(--accent)", opacity: .35, stroke: "var(--accent)" }),
    element("line", { x1: px(0), x2: px(Math.max(...x)), y1: py(t.budget_bytes / 2 ** 20), y2: py(t.budget_bytes / 2 ** 20), stroke: "var(--bad)", "stroke-dasharray": "6 4" }));
  fill("timeline", element("p", { class: "soft" }, t.title + "; dashed: the budget. The whole timeline: ", element("code", {}, t.command)), svg);
}
function failures() {
  const failed = all.filter(i => text("status", i) !== "ok"), groups = new Map();
  for (const i of failed) {
    const key = text("status", i) + "\n" + text("policy", i);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(i);
  }
  if (!failed.length) { fill("failures", element("p", {}, "Every run ended.")); return; }
  // Policies that failed for one and the same reason share a line.
  const lines = new Map();
  for (const [key, rows] of groups) {
    const [status, policy] = key.split("\n"), why = data.explanations[number("index", rows[0])] || "", line = status + "\n" + why;
    if (!lines.has(line)) lines.set(line, { status, why, policies: [], runs: 0, first: rows[0] });
    lines.get(line).policies.push(policy);
    lines.get(line).runs += rows.length;
  }
  const body = element("tbody");
  for (const l of lines.values()) body.append(element("tr", {}, element("td", { class: "text" }, l.status), element("td", { class: "some", title: l.policies.join(", ") }, l.policies.length > 5 ? `${l.policies.slice(0, 4).join(", ")} and ${l.policies.length - 4} more` : l.policies.join(", ")),
    element("td", {}, String(l.runs)), element("td", { class: "wide" }, `run ${number("index", l.first)}, ${shorten(text("trace", l.first))} at ${text("budget", l.first)}: ${l.why}`)));
  fill("failures", element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, ...["status", "policy", "runs", "first of them"].map((h, k) => element("th", { class: k === 2 ? null : "text" }, h)))), body)));
}

const tableColumns = ["index", ...data.varying, "status", ...["iter_time_ns", "slowdown_ppm", "gap_to_bound_ppm", "swapped_out_bytes", "swapped_in_bytes", "peak_reserved_bytes"].filter(c => columns[c])];
const isText = c => columns[c].words !== undefined;
let sortBy = "index", ascending = true, shown = 100;
function visible() {
  const words = document.getElementById("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = all.filter(i => { const line = tableColumns.filter(isText).map(c => text(c, i)).join(" ").toLowerCase(); return words.every(w => line.includes(w)); });
  const key = i => isText(sortBy) ? text(sortBy, i) : number(sortBy, i);
  return rows.sort((a, b) => { const x = key(a), y = key(b); if (x === y) return a - b; if (x === null) return 1; if (y === null) return -1; return (x < y ? -1 : 1) * (ascending ? 1 : -1); });
}
// Long names are cut as in the charts; the title has all of them.
const shortOf = new Map(["trace", "policy"].map(c => [c, new Map(fit(columns[c].words.map(shorten), 48).map((l, k) => [columns[c].words[k], l]))]));
const textCell = (c, i) => shortOf.has(c) ? shortOf.get(c).get(text(c, i)) : text(c, i);
function runs() {
  const rows = visible(), body = element("tbody");
  for (const i of rows.slice(0, shown)) body.append(element("tr", {}, ...tableColumns.map(c => element("td", { class: isText(c) ? "text" : null, title: isText(c) ? text(c, i) : null }, isText(c) ? textCell(c, i) : show(c, number(c, i)))),
    element("td", {}, element("button", { class: "plain", title: command(i), onclick: e => copy(command(i), e.target) }, "copy"))));
  const head = element("tr", {}, ...tableColumns.map(c => element("th", { class: isText(c) ? "text" : null, "aria-sort": c === sortBy ? (ascending ? "ascending" : "descending") : null },
    element("button", { "data-column": c, onclick: () => { ascending = c === sortBy ? !ascending : true; sortBy = c; runs(); } }, c.replace(/_(ns|ppm|bytes)$/, "").replace(/_/g, " ") + (c === sortBy ? (ascending ? " \u25b2" : " \u25bc") : "")))), element("th"));
  fill("runs", element("table", {}, element("thead", {}, head), body));
  fill("runs-count", `${rows.length} of ${count} runs` + (rows.length > shown ? `, the first ${shown} shown ` : ""), ...(rows.length > shown ? [element("button", { class: "plain", onclick: () => { shown += 500; runs(); } }, "more")] : []));
}
const quote = w => /^[\w@%+=:,./-]+$/.test(w) ? w : "'" + w.replace(/'/g, "'\\''") + "'";
function command(i) {
  const plain = (!columns.sample || text("sample", i) === "nominal") && !text("trace", i).includes(" | ") && !text("trace", i).startsWith("synth:");
  if (!plain) return `swaplab timeline ${quote(data.folder)} --run ${number("index", i)} -o run-${number("index", i)}.pftrace`;
  let line = `swaplab run --trace ${quote(text("trace", i))} --policy ${quote(text("policy", i))} --budget ${text("budget", i)} --machine ${quote(text("machine", i))}`;
  if (text("iterations", i) !== "recorded") line += " --iterations " + text("iterations", i);
  if (text("times", i) !== "auto") line += " --times " + text("times", i);
  if (text("allocator", i) !== "caching") line += " --allocator " + text("allocator", i);
  if (text("alloc_conf", i) !== "default") line += " --alloc-conf " + quote(text("alloc_conf", i));
  for (const name of Object.keys(columns)) if (name.startsWith("machine.") && text(name, i) !== "1x") line += ` --set ${quote(name.slice(8) + "=" + text(name, i))}`;
  return line;
}
function copy(line, button) {
  const done = () => { const before = button.textContent; button.textContent = "copied"; setTimeout(() => { button.textContent = before; }, 1200); };
  if (navigator.clipboard && window.isSecureContext) { navigator.clipboard.writeText(line).then(done, () => { prompt("command", line); }); return; }
  const area = element("textarea"); area.value = line; document.body.append(area); area.select();
  const copied = document.execCommand("copy"); area.remove();
  if (copied) done(); else prompt("command", line);
}

verdicts();
if (data.comparison) {
  const names = data.comparison.candidates.map(c => c.candidate);
  const first = (data.comparison.candidates.find(c => c.pairs.length) || data.comparison.candidates[0]).candidate;
  choose("dots-controls", "candidate", names, dots).value = first; dots(first);
} else document.getElementById("dots-section").remove();
let trace = traces[0], setting = settings[0];
const redraw = () => { curves(trace, setting); pareto(trace, setting); breakdown(trace, setting); };
choose("choice", "trace", traces, v => { trace = v; redraw(); }, fit(traces.map(shorten), narrow ? 40 : 90));
choose("choice", "setting", settings, v => { setting = v; redraw(); });
redraw(); timelines(); failures();
document.getElementById("filter").addEventListener("input", () => { shown = 100; runs(); });
runs();
fill("manifest", element("pre", {}, JSON.stringify(data.manifest, null, 2)));
fill("config", element("pre", {}, JSON.stringify(data.config, null, 2)));
document.documentElement.dataset.ready = "yes";
