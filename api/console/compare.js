// Two tasks side by side, at the first step in which they differ.

import { get } from "./api.js";
import { fill, h, link, status } from "./dom.js";
import { cost, count, duration, json, tokens } from "./format.js";
import { insist } from "./live.js";

export function compare(main, { parameters: [a, b] }) {
  const place = h("div", {}, h("p", { role: "status" }, "reading both…")); // not `main`, which another view may have by then
  fill(main, h("h1", {}, "Compare"), place);

  async function load() {
    const [one, other] = await Promise.all([a, b].map((id) => get(`/tasks/${id}/trace`, { chars: 20_000 })));
    const found = firstDifference(one, other);
    fill(
      place,
      h("p", { class: "banner", role: "status" }, found ? `First difference: ${found.what}${found.step ? ` in step ${found.step}` : ""}` : "Both did the same."),
      h("div", { class: "two" }, column(one, found?.a, found?.b, "removed"), column(other, found?.b, found?.a, "added")),
    );
  }

  return insist(load, (error) => fill(place, h("p", { role: "alert" }, error.message)));
}

function column(trace, text, other, mark) {
  const took = trace.ended_at ? duration(new Date(trace.ended_at) - new Date(trace.created_at)) : "running";
  return h(
    "section",
    {},
    h("h2", {}, link(`#/tasks/${trace.session_id}`, trace.title || trace.session_id)),
    h("p", {}, status(trace.status), ` ${count(trace.steps.length, "step")} · ${took} · ${cost(trace.usage.cost_usd)} · ${count(tokens(trace.usage), "token")}`),
    text === undefined ? null : h("pre", { class: "difference" }, ...marked(text, other, mark)),
  );
}

// The lines that the other one does not have are marked.
function marked(text, other, mark) {
  const known = new Set(other.split("\n"));
  return text.split("\n").map((line) => h("span", { class: `line ${known.has(line) ? "" : mark}` }, `${line}\n`));
}

// A rerun begins at a step of its original: both are compared from there.
function steps(trace, other) {
  const origin = other.rerun_of;
  return origin?.session_id === trace.session_id ? trace.steps.filter((one) => one.step >= origin.from_step) : trace.steps;
}

export function firstDifference(a, b) {
  const [ours, theirs] = [steps(a, b), steps(b, a)];
  for (let at = 0; at < Math.max(ours.length, theirs.length); at++) {
    const [one, other] = [ours[at], theirs[at]];
    const step = (one ?? other).step;
    if (!one || !other) return { what: "length", step, a: one ? said(one) : "ended before this step", b: other ? said(other) : "ended before this step" };
    if (said(one) !== said(other)) return { what: "text", step, a: said(one), b: said(other) };
    for (const [what, view] of [["tool call", call], ["tool result", result]]) {
      for (let index = 0; index < Math.max(one.tools.length, other.tools.length); index++) {
        const [left, right] = [view(one.tools[index]), view(other.tools[index])];
        if (left !== right) return { what, step, a: left, b: right };
      }
    }
  }
  const [left, right] = [ending(a), ending(b)];
  return left === right ? null : { what: "ending", step: null, a: left, b: right };
}

const said = (step) => step.models.map((one) => one.text).join("\n\n");
const call = (span) => (span ? `${span.tool} ${json(span.arguments)}` : "no call");
const result = (span) => (span ? `${span.state}: ${span.result}` : "no call");
const ending = (trace) => `${trace.status} (${trace.reason}): ${trace.output ?? trace.error ?? ""}`;
