// Calls over time: each session has a lane for the model, for tools, subagents, retries and waits; or bars by tokens or cost.

import { h, svg } from "./dom.js";
import { cost, count, duration, tokens } from "./format.js";

const ROW = 18;
const WIDTH = 1000;
const MOST_BARS = 4000;
const LANES = ["model", "tools", "subagents", "retries", "waits"];

export function waterfall(trace, measure = "time", pick = () => {}) {
  const rows = [...sessions(trace, 0)];
  return measure === "time" ? byTime(rows, pick) : bySize(rows, measure, pick);
}

// Whether nothing of a trace can change any more.
export function final(trace) {
  return [...sessions(trace, 0)].every((row) => row.trace.ended_at);
}

function* sessions(trace, depth) {
  const bars = [];
  const children = [...(trace.sessions ?? [])];
  const until = trace.ended_at ?? new Date().toISOString(); // what has not ended lasts until now
  collect(trace.steps, bars, children, until, trace.status === "failed");
  for (const mark of trace.marks ?? []) {
    if (mark.type === "input_required") bars.push({ lane: "waits", kind: "wait", start: mark.at, end: mark.until ?? until, label: `asked: ${mark.text}` });
    else if (mark.type === "model_retry") bars.push({ lane: "retries", kind: "retry", start: mark.at, end: mark.until ?? mark.at, label: `tried again: ${mark.text}` });
  }
  for (const child of children) bars.push({ lane: "subagents", kind: "subagent", start: child.created_at, end: child.ended_at ?? new Date().toISOString(), label: `subagent ${child.name || child.agent} ${child.status}` });
  yield { trace, depth, bars };
  for (const child of children) yield* sessions(child, depth + 1);
}

function collect(steps, bars, children, until, broken) {
  for (const step of steps) {
    if (!step.models.length) bars.push({ lane: "model", kind: broken ? "failed" : "model", step: step.step, start: step.started_at, end: until, label: `step ${step.step}: the model` });
    for (const call of step.models) {
      bars.push({ lane: "model", kind: "model", step: step.step, start: call.started_at, end: call.ended_at, usage: call.usage, label: `step ${step.step}: ${call.model}${call.attempts > 1 ? `, ${call.attempts} attempts` : ""}` });
    }
    for (const tool of step.tools) {
      const failed = !["ok", "started"].includes(tool.state);
      bars.push({ lane: "tools", kind: failed ? "failed" : "tool", step: step.step, start: tool.started_at, end: tool.ended_at ?? until, label: `step ${step.step}: ${tool.tool} ${tool.state}` });
      collect(tool.steps ?? [], bars, children, until, broken);
      children.push(...(tool.sessions ?? []));
    }
  }
}

function byTime(rows, pick) {
  const moments = rows.flatMap((row) => [row.trace.created_at, ...row.bars.flatMap((bar) => [bar.start, bar.end])]).map((one) => new Date(one).getTime());
  const first = minimum(moments);
  const length = Math.max(1, maximum(moments) - first);
  const scale = (moment) => ((new Date(moment).getTime() - first) / length) * WIDTH;
  const all = rows.reduce((sum, row) => sum + row.bars.length, 0);
  let left = MOST_BARS;
  const drawn = rows.flatMap((row) => {
    const took = row.trace.ended_at ? duration(new Date(row.trace.ended_at) - new Date(row.trace.created_at)) : "running";
    const name = h("div", { class: "session-name" }, h("a", { href: `#/tasks/${row.trace.session_id}`, title: row.trace.title }, row.trace.name || row.trace.agent), h("small", {}, ` ${took}`));
    name.style.paddingLeft = `${row.depth}em`;
    const lanes = LANES.flatMap((lane) => {
      const bars = row.bars.filter((bar) => bar.lane === lane).sort((a, b) => (a.start < b.start ? -1 : 1)).slice(0, left);
      left -= bars.length;
      return bars.length ? laneView(lane, bars, row, scale, pick) : [];
    });
    return [name, ...lanes];
  });
  const axis = h("div", { class: "axis", "aria-hidden": "true" }, ...[0, 0.25, 0.5, 0.75, 1].map((part) => h("span", {}, duration(length * part) || "0")));
  const rest = all > MOST_BARS ? h("p", { class: "legend" }, `and ${count(all - MOST_BARS, "more bar")}`) : null;
  return h("div", { class: "waterfall" }, ...drawn, h("span", {}), axis, legend(), rest);
}

// Bars at the same time, such as calls side by side, are drawn below one another.
function laneView(lane, bars, row, scale, pick) {
  const tracks = [];
  const marks = bars.map((bar) => {
    let track = tracks.findIndex((until) => until <= bar.start);
    if (track < 0) track = tracks.length;
    tracks[track] = bar.end;
    const x = Math.min(scale(bar.start), WIDTH - 3);
    const took = duration(new Date(bar.end) - new Date(bar.start));
    const mark = svg("rect", { class: `bar ${bar.kind}`, x: x.toFixed(1), y: track * ROW + 3, width: Math.max(3, scale(bar.end) - x).toFixed(1), height: ROW - 6, rx: 2 }, svg("title", {}, `${bar.label}, ${took}`));
    mark.addEventListener("click", () => pick(row.trace, bar.step));
    return mark;
  });
  const height = tracks.length * ROW;
  const name = h("span", { class: "lane-name" }, lane);
  name.style.paddingLeft = `${row.depth + 1}em`;
  const label = `${row.trace.name || row.trace.agent}, ${lane}: ${bars.length}`;
  return [name, svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", height, role: "img", "aria-label": label }, ...marks)];
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
  const kinds = [["model", "model"], ["tool", "tool"], ["failed", "not ok"], ["subagent", "subagent"], ["retry", "pause before a retry"], ["wait", "asked a person"]];
  return h("p", { class: "legend" }, ...kinds.map(([kind, label]) => h("span", {}, h("i", { class: `swatch ${kind}` }), label)));
}

function minimum(numbers) {
  return numbers.reduce((a, b) => Math.min(a, b), Infinity);
}

function maximum(numbers) {
  return numbers.reduce((a, b) => Math.max(a, b), -Infinity);
}
