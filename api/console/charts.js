// Small charts: stacked bars and lines over time. Each has its sentence, and its figures as a table for readers.

import { h, svg } from "./dom.js";

const [HEIGHT, LEFT, TOP, BOTTOM] = [170, 58, 12, 22];

function frame(width, most, text, labels, sentence, marks) {
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / most);
  const grid = [most / 2, most].map((value) => [svg("line", { class: "grid", x1: LEFT, x2: width, y1: y(value), y2: y(value) }), svg("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, text(value))]);
  const room = (width - LEFT) / Math.max(1, labels.length);
  const every = Math.max(1, Math.ceil(labels.length / (width / 100)));
  const below = labels.map((label, at) => (at % every === 0 ? svg("text", { x: LEFT + room * (at + 0.5), y: HEIGHT - 6, "text-anchor": "middle" }, label) : null));
  return svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": sentence }, grid, below, svg("line", { class: "base", x1: LEFT, x2: width, y1: y(0), y2: y(0) }), marks(y, room));
}

// A round number that is not less.
function nice(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((one) => one * power).find((one) => one >= value);
}

const table = (sentence, names, labels, rows) => h("table", { class: "sr" }, h("caption", {}, sentence), h("thead", {}, h("tr", {}, h("th", {}, "from"), names.map((name) => h("th", {}, name)))), h("tbody", {}, labels.map((label, at) => h("tr", {}, h("th", {}, label), rows[at].map((value) => h("td", {}, String(value)))))));

// `series`: [name, class] each; `rows`: for each label one value for each series.
export function bars({ sentence, series, labels, rows, text = String }) {
  const most = nice(Math.max(...rows.map((row) => row.reduce((sum, value) => sum + value, 0)), 0));
  const marks = (y, room) => rows.flatMap((row, at) => {
    let below = 0;
    return row.map((value, index) => {
      if (!value) return null;
      const [from, to] = [below, (below += value)];
      const height = Math.max(1.5, y(from) - y(to) - 1);
      return svg("rect", { class: series[index][1], x: LEFT + room * (at + 0.16), width: room * 0.68, y: y(from) - height, height, rx: 1.5 }, svg("title", {}, `${labels[at]}, ${series[index][0]}: ${text(value)}`));
    });
  });
  return [frame(640, most, text, labels, sentence, marks), table(sentence, series.map(([name]) => name), labels, rows.map((row) => row.map(text)))];
}

export function lines({ sentence, series, labels, rows, text = String }) {
  const most = nice(Math.max(...rows.flat().filter((value) => value !== null), 0));
  const marks = (y, room) => series.map(([, kind], index) => {
    const points = rows.map((row, at) => [LEFT + room * (at + 0.5), row[index]]).filter(([, value]) => value !== null);
    return [svg("polyline", { class: kind, points: points.map(([x, value]) => `${x},${y(value)}`).join(" ") }), points.length < 2 ? points.map(([x, value]) => svg("circle", { class: kind, cx: x, cy: y(value), r: 3 })) : null];
  });
  return [frame(420, most, text, labels, sentence, marks), table(sentence, series.map(([name]) => name), labels, rows.map((row) => row.map((value) => (value === null ? "" : text(value)))))];
}

export const legend = (series) => h("span", { class: "legend", "aria-hidden": "true" }, series.map(([name, kind]) => h("span", {}, h("i", { class: `swatch ${kind}` }), name)));
