// Dialogs of a task: rerun from a step with changes, give it a larger budget, choose a task to compare it with.

import { get, post } from "./api.js";
import { action, dialog, fill, h } from "./dom.js";
import { ago, duration, short } from "./format.js";
import { soon } from "./live.js";
import { shape } from "./parts.js";

const CHARS = 4_000; // of a result that can be edited
const CUT = / more characters\]$/;
const line = (label, input, hint) => h("div", { class: "field" }, h("label", { for: input.id }, label), input, hint ? h("small", {}, hint) : null);

function buttons(label, run, close) {
  return h("footer", {}, h("button", { type: "button", onclick: close }, "Back"), action(label, run, { class: "primary" }));
}

function parsed(rules) {
  try {
    return JSON.parse(rules);
  } catch (error) {
    throw new Error(`The rules are not JSON: ${error.message}`);
  }
}

// The results that the step sees are those of the step before it; a changed one is what the rerun begins with.
export async function rerunDialog(id, record, from) {
  const [agent, trace] = await Promise.all([get(`/tasks/${id}/agent`).catch(() => ({})), get(`/tasks/${id}/trace`, { chars: CHARS }).catch(() => null)]);
  dialog("Rerun", (close) => {
    const step = h("input", { type: "number", id: "from", min: 1, value: from, onchange: () => show() });
    const model = h("input", { type: "text", id: "model", placeholder: record.models[0] });
    const prompt = h("textarea", { id: "prompt", rows: 4, value: agent.prompt ?? "" });
    const rules = h("textarea", { id: "rules", rows: 3, placeholder: '[{"permission": "bash", "pattern": "rm *", "action": "deny"}]' });
    const recorded = h("input", { type: "checkbox", id: "recorded" });
    const place = h("div");
    let results = [];

    function show() {
      const before = trace?.steps.findLast((one) => one.step < Number(step.value));
      results = (before?.tools ?? []).map((call) => [call, h("textarea", { id: `result-${call.index}`, rows: 3, value: call.result, disabled: CUT.test(call.result) })]);
      place.replaceChildren(...results.map(([call, text]) => line(`Result of ${call.tool}, call ${call.index} of step ${before.step}`, text, text.disabled ? "too long to be edited here" : "")));
    }

    async function run() {
      const body = { from_step: Number(step.value), recorded: recorded.checked };
      if (model.value) body.model = model.value;
      if (prompt.value !== (agent.prompt ?? "")) body.prompt = prompt.value;
      const changed = results.filter(([call, text]) => !text.disabled && text.value !== call.result);
      if (changed.length) body.tool_results = changed.map(([call, text]) => ({ index: call.index, text: text.value }));
      if (rules.value.trim()) body.permissions = parsed(rules.value);
      const accepted = await post(`/tasks/${id}/rerun`, body, { once: true });
      close();
      location.hash = `#/tasks/${accepted.task_id}`;
    }

    show();
    return [line("From step", step), line("Model", model), line("Instructions", prompt), place, line("Rules added, as JSON", rules), line("Only rules and limits: no model, no tool", recorded), buttons("Rerun", run, close)];
  });
}

const MINUTE_MS = 60_000;
const FIELDS = { steps: "max_steps", tokens: "max_tokens", cost_usd: "max_cost_usd", tool_calls: "max_tool_calls", ttl: "ttl" };

export function raiseDialog(id, budget, done) {
  dialog("Raise the budget", (close) => {
    const rows = [
      ...budget.budgets.map((one) => [one, "its own", (body) => body]),
      ...(budget.tree?.budgets ?? []).map((one) => [one, "of the conversation", (body) => (body.tree ??= {})]),
    ].map(([one, whose, part], index) => {
      const time = one.budget === "ttl"; // which the API counts in milliseconds
      const unit = time ? MINUTE_MS : 1;
      const input = h("input", { type: "number", id: `raise-${index}`, step: "any", min: one.limit / unit, value: one.limit / unit });
      const label = `${time ? "time in minutes" : one.budget.replaceAll("_", " ")}, ${whose}`;
      return { one, part, input, label, used: time ? duration(one.used) : one.used.toLocaleString(), limit: () => (time ? Math.round(Number(input.value) * unit) : Number(input.value)) };
    });

    async function run() {
      const body = {};
      for (const { one, part, limit } of rows) if (limit() !== one.limit) part(body)[FIELDS[one.budget]] = limit();
      await post(`/tasks/${id}/budget`, body);
      close();
      await done();
    }

    return [...rows.map(({ input, label, used }) => line(label, input, `used: ${used}`)), buttons("Raise", run, close)];
  });
}

const MOST_TASKS = 30;
const ID = /^[0-9a-z]{26}$/;

// The newest tasks of the same agent, those of a title, or any task by its id.
export function compareDialog(id, agent) {
  const text = h("input", { type: "search", id: "other", maxlength: 200, autofocus: true, oninput: () => look() });
  const list = h("ul", { class: "lines" });
  const said = h("p", { role: "status", class: "faint" });

  async function find() {
    const wanted = text.value.trim();
    const items = ID.test(wanted)
      ? [await get(`/tasks/${wanted}`)]
      : (await get("/tasks", { agent: wanted ? null : agent, text: wanted, limit: MOST_TASKS })).items;
    return items.filter((one) => one.task_id !== id);
  }

  const look = soon(async () => {
    try {
      const found = await find();
      fill(list, ...found.map((one) => h("li", {}, shape(one.status), h("span", { class: "grow cut" }, h("a", { class: "to", href: `#/compare/${id}/${one.task_id}`, onclick: () => box.close() }, short(one.title, 80) || one.task_id)), h("small", {}, ago(one.created_at)))));
      fill(said, found.length ? "" : "There is no other task like this.");
    } catch (error) {
      fill(list);
      fill(said, error.message);
    }
  });

  const box = dialog("Compare with", (close) => [
    line("Id, or text of the title", text, `Without either: the newest ${MOST_TASKS} of ${agent}.`),
    said,
    list,
    h("footer", {}, h("button", { type: "button", onclick: close }, "Back")),
  ]);
  look();
}
