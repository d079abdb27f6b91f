// Calls over time in lanes (model, tools, waits), a row for each session; or bars by tokens or by cost.

import { h, svg } from "./dom.js";
import { cost, duration, tokens } from "./format.js";

const ROW = 22;
const WIDTH = 1000;
const MOST_BARS = 4000;

export function waterfall(trace, measure = "time", pick = () => {}) {
  const rows = [...sessions(trace, 0)];
  return measure === "time" ? byTime(rows, pick) : bySize(rows, measure, pick);
}

function* sessions(trace, depth) {
  const bars = [];
  const inner = [];
  collect(trace.steps, trace, bars, inner);
  for (const mark of trace.marks ?? []) {
    if (mark.type === "input_required") bars.push({ lane: "wait", start: mark.at, end: settled(trace, mark), label: `asked: ${mark.text}` });
    else if (mark.type === "model_retry") bars.push({ lane: "retry", start: mark.at, end: mark.at, label: mark.text });
  }
  yield { trace, depth, bars };
  for (const child of [...inner, ...(trace.sessions ?? [])]) yield* sessions(child, depth + 1);
}

// When the wait that a mark began was over: the next answer or expiry, or the end, or not yet.
function settled(trace, asked) {
  const later = trace.marks.find((mark) => mark.at > asked.at && ["input_received", "input_expired"].includes(mark.type));
  return later?.at ?? trace.ended_at ?? new Date().toISOString();
}

function collect(steps, trace, bars, inner) {
  for (const step of steps) {
    for (const call of step.models) {
      bars.push({ lane: "model", step: step.step, start: call.started_at, end: call.ended_at, usage: call.usage, label: `step ${step.step}: ${call.model}${call.attempts > 1 ? `, ${call.attempts} attempts` : ""}` });
    }
    for (const tool of step.tools) {
      const failed = !["ok", "started"].includes(tool.state);
      bars.push({ lane: failed ? "failed" : "tool", step: step.step, start: tool.started_at, end: tool.ended_at ?? trace.ended_at ?? new Date().toISOString(), label: `step ${step.step}: ${tool.tool} ${tool.state}` });
      collect(tool.steps ?? [], trace, bars, inner);
      inner.push(...(tool.sessions ?? []));
    }
  }
}

function byTime(rows, pick) {
  const moments = rows.flatMap((row) => [row.trace.created_at, ...row.bars.flatMap((bar) => [bar.start, bar.end])]).map((one) => new Date(one).getTime());
  const first = minimum(moments);
  const length = Math.max(1, maximum(moments) - first);
  const scale = (moment) => ((new Date(moment).getTime() - first) / length) * WIDTH;
  const drawn = [];
  let y = 0;
  let left = MOST_BARS;
  for (const row of rows) {
    const lanes = [];
    const placed = row.bars.sort((a, b) => (a.start < b.start ? -1 : 1)).slice(0, left).map((bar) => {
      let lane = lanes.findIndex((until) => until <= bar.start);
      if (lane < 0) lane = lanes.length;
      lanes[lane] = bar.end;
      return [bar, lane];
    });
    left -= placed.length;
    const height = Math.max(1, lanes.length) * ROW;
    const marks = placed.map(([bar, lane]) => {
      const x = scale(bar.start);
      const took = duration(new Date(bar.end) - new Date(bar.start));
      const mark = svg("rect", { class: `bar ${bar.lane}`, x: x.toFixed(1), y: lane * ROW + 4, width: Math.max(2, scale(bar.end) - x).toFixed(1), height: ROW - 8, rx: 2 }, svg("title", {}, `${bar.label}, ${took}`));
      mark.addEventListener("click", () => pick(row.trace, bar.step));
      return mark;
    });
    const name = row.trace.name || row.trace.agent;
    const chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", height, role: "img", "aria-label": `${name}: ${row.bars.length} calls` }, ...marks);
    const label = h("a", { class: "lane-name", href: `#/tasks/${row.trace.session_id}`, title: row.trace.title }, name);
    label.style.paddingLeft = `${row.depth}em`;
    drawn.push(label, chart);
    y += height;
  }
  const axis = h("div", { class: "axis", "aria-hidden": "true" }, ...[0, 0.25, 0.5, 0.75, 1].map((part) => h("span", {}, duration(length * part) || "0")));
  return h("div", { class: "waterfall" }, ...drawn, h("span", {}), axis, legend());
}

function bySize(rows, measure, pick) {
  const value = (usage) => (measure === "cost" ? (usage.cost_usd ?? 0) : tokens(usage));
  const text = (number) => (measure === "cost" ? cost(number) : `${number.toLocaleString()} tokens`);
  const bars = rows.flatMap((row) => row.bars.filter((bar) => bar.usage).map((bar) => ({ ...bar, trace: row.trace })));
  const most = Math.max(1e-9, maximum(bars.map((bar) => value(bar.usage))));
  return h(
    "div",
    { class: "sizes" },
    ...bars.slice(0, 500).map((bar) => {
      const mark = h("button", { type: "button", class: "size", title: bar.label, onclick: () => pick(bar.trace, bar.step) }, `${bar.label}: ${text(value(bar.usage))}`);
      mark.style.setProperty("--share", `${(100 * value(bar.usage)) / most}%`);
      return mark;
    }),
    bars.length > 500 ? h("p", {}, `and ${bars.length - 500} more`) : null,
  );
}

function legend() {
  const kinds = [["model", "model"], ["tool", "tool"], ["failed", "not ok"], ["wait", "asked a person"], ["retry", "retry"]];
  return h("p", { class: "legend" }, ...kinds.map(([kind, label]) => h("span", {}, h("i", { class: `swatch ${kind}` }), label)));
}

function minimum(numbers) {
  return numbers.reduce((a, b) => Math.min(a, b), Infinity);
}

function maximum(numbers) {
  return numbers.reduce((a, b) => Math.max(a, b), -Infinity);
}
