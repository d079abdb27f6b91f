// A task: its steps, waterfall, effects, budget, artifacts and audit; rerun from a step, replay, compare, share.

import { address, follow, get, post } from "./api.js";
import { action, confirmed, dialog, empty, fill, h, link, status } from "./dom.js";
import { ago, bytes, clock, cost, count, duration, json, short, tokens } from "./format.js";
import { details } from "./inbox.js";
import { soon } from "./live.js";
import { markdown } from "./markdown.js";
import { virtualList } from "./virtual_list.js";
import { waterfall } from "./waterfall.js";

export function task(main, { session, parameters: [id] }) {
  const place = Object.fromEntries(["head", "waiting", "chart", "step", "result", "effects", "budget", "audit"].map((name) => [name, h("div")]));
  const note = h("p", { role: "status" });
  const measure = h("select", { id: "measure", onchange: () => chart() }, ...["time", "tokens", "cost"].map((name) => h("option", { value: name }, name)));
  const list = virtualList({ label: "Steps", height: 44, row: stepRow, key: (step) => step.step });
  let record = null;
  let trace = null;
  let chosen = null;

  async function load() {
    record = await get(`/tasks/${id}`);
    head();
    trace = await get(`/tasks/${id}/trace`, { chars: 20_000 }).catch((error) => (error.status === 410 ? null : Promise.reject(error)));
    if (trace) {
      list.set(trace.steps);
      chart();
      if (chosen !== null) showStep(trace.steps.find((one) => one.step === chosen));
    } else fill(place.chart, empty("The content of this task was removed when it had been kept long enough."));
    const ended = ["completed", "failed", "cancelled"].includes(record.status);
    const [effects, budget, audit, asked, result] = await Promise.all([
      get(`/tasks/${id}/effects`),
      get(`/tasks/${id}/budget`),
      get(`/tasks/${id}/audit`, { limit: 50 }),
      get(`/tasks/${id}/input-requests`),
      ended ? get(`/tasks/${id}/result`).catch(() => null) : null,
    ]);
    const open = asked.items.filter((one) => one.status === "open");
    fill(place.waiting, ...open.map((one) => h("div", { class: "banner" }, link("#/inbox", one.question), details(one))));
    resultView(result);
    effectsView(effects);
    budgetView(budget);
    auditView(audit);
  }

  function head() {
    const ended = Boolean(record.ended_at);
    fill(
      place.head,
      h("h1", {}, record.title || id),
      h(
        "p",
        { class: "meta" },
        status(record.status),
        record.reason ? ` ${record.reason.replaceAll("_", " ")}` : "",
        ` · ${record.agent} v${record.agent_version} · ${record.models[0]} · ${cost(record.usage.cost_usd)} · ${tokens(record.usage).toLocaleString()} tokens · `,
        ended ? `took ${duration(new Date(record.ended_at) - new Date(record.created_at))}` : `began ${ago(record.created_at)}`,
      ),
      record.error ? h("p", { class: "banner failed" }, record.error.message) : null,
      record.plan ? h("ol", { class: "plan" }, ...record.plan.steps.map((one) => h("li", { class: one.status }, one.title))) : null,
      h(
        "div",
        { class: "row" },
        link(`#/conversations/${record.conversation_id}`, "Conversation"),
        session.temporal_ui ? h("a", { href: `${session.temporal_ui}/session%2F${id}`, target: "_blank", rel: "noopener" }, "Temporal Web UI") : null,
        record.rerun_of ? link(`#/compare/${record.rerun_of.session_id}/${id}`, "Compare with the original") : null,
        h("a", { href: address(`/tasks/${id}/trace.html`), download: `trace-${id}.html` }, "Share as one file"),
        action("Compare…", async () => chooseOther()),
        action("Replay on today's code", replay, { disabled: !ended }),
        action("Rerun…", async () => rerun(1), { disabled: !ended }),
        action("Cancel", async () => confirmed("Cancel this task?", "It ends and keeps what it has.", "Cancel it", () => post(`/tasks/${id}/cancel`, { scope: "tree" })), { class: "danger", disabled: ended }),
      ),
    );
  }

  function chart() {
    if (trace) fill(place.chart, waterfall(trace, measure.value, (from, step) => from.session_id === id && step && pick(step)));
  }

  function stepRow(step) {
    const said = step.models.map((one) => one.text || one.thinking).join(" ");
    const tools = step.tools.map((one) => `${one.tool}${one.state === "ok" ? "" : ` (${one.state})`}`).join(", ");
    return h("button", { type: "button", class: "step-row", onclick: () => pick(step.step) }, h("b", {}, `Step ${step.step}`), h("span", { class: "grow" }, short(said, 120)), h("code", {}, short(tools, 60)));
  }

  function pick(number) {
    chosen = number;
    const index = trace.steps.findIndex((one) => one.step === number);
    if (index >= 0) {
      list.reveal(index);
      showStep(trace.steps[index]);
    }
  }

  function showStep(step) {
    if (!step) return;
    fill(
      place.step,
      h("h3", {}, `Step ${step.step}`, step.speaker ? ` (${step.speaker})` : ""),
      h("div", { class: "row" }, action("Rerun from here…", async () => rerun(step.step), { disabled: !record.ended_at, "data-rerun": "" })),
      ...step.models.flatMap((call) => [
        h("p", { class: "meta" }, `${call.model}, ${duration(new Date(call.ended_at) - new Date(call.started_at))}, ${cost(call.usage.cost_usd)}, ${tokens(call.usage).toLocaleString()} tokens${call.attempts > 1 ? `, ${call.attempts} attempts` : ""}`),
        call.thinking ? h("details", {}, h("summary", {}, "Thinking"), h("pre", {}, call.thinking)) : null,
        markdown(call.text),
      ]),
      ...step.tools.map((call) =>
        h("details", { class: "call", open: step.tools.length < 4 }, h("summary", {}, h("code", {}, call.tool), " ", status(call.state === "ok" ? "completed" : call.state), ` ${call.ended_at ? duration(new Date(call.ended_at) - new Date(call.started_at)) : "running"}`), h("pre", {}, json(call.arguments)), h("pre", {}, call.result), ...call.sessions.map((child) => h("p", {}, link(`#/tasks/${child.session_id}`, `subagent ${child.name || child.agent}`)))),
      ),
    );
  }

  function resultView(result) {
    if (!result) return fill(place.result);
    const output = typeof result.output === "string" ? markdown(result.output) : h("pre", {}, json(result.output));
    fill(
      place.result,
      h("h2", {}, "Result"),
      output,
      result.artifacts.length ? h("ul", {}, ...result.artifacts.map((one) => h("li", {}, h("a", { href: /^https?:/.test(one.url) ? one.url : address(one.url), download: one.name, rel: "noopener" }, one.name ?? one.url), one.size ? ` ${bytes(one.size)}` : ""))) : null,
      result.acceptance ? h("ul", {}, ...result.acceptance.map((one) => h("li", {}, `${one.passed ? "✓" : "✗"} ${one.criterion}: ${one.reason ?? ""}`))) : null,
    );
  }

  function effectsView(ledger) {
    fill(place.effects, h("h2", {}, "Effects"), ledger.items.length ? h("table", {}, h("thead", {}, h("tr", {}, ...["kind", "tool", "what", "state"].map((name) => h("th", {}, name)))), h("tbody", {}, ...ledger.items.map((one) => h("tr", {}, h("td", {}, one.kind), h("td", {}, one.tool), h("td", {}, short(one.description, 200)), h("td", {}, one.state))))) : empty("It changed nothing."));
  }

  function budgetView(budget) {
    const lines = [...budget.budgets, ...(budget.tree?.budgets ?? []).map((one) => ({ ...one, budget: `${one.budget} of the conversation` }))];
    fill(place.budget, h("h2", {}, "Budget"), ...lines.map((one) => h("div", { class: "budget" }, h("label", {}, `${one.budget}: ${round(one.used)} of ${round(one.limit)}`, h("progress", { max: one.limit, value: Math.min(one.used, one.limit) })))));
  }

  function auditView(page) {
    fill(place.audit, h("h2", {}, "Audit log"), h("ul", { class: "plain" }, ...page.items.map((one) => h("li", {}, h("small", {}, clock(one.at)), ` ${one.action} by ${one.actor}${one.subject ? `: ${short(one.subject, 120)}` : ""}`))));
  }

  async function replay() {
    const found = await post(`/tasks/${id}/replay`);
    const different = found.verdicts.filter((one) => !one.same);
    fill(note, different.length ? `Today's code decides otherwise at event ${different[0].event_id} (${different[0].event_type}): ${short(different[0].reason, 300)}` : `The same decisions: ${count(found.verdicts.length, "history", "histories")} replayed.`);
  }

  function rerun(from) {
    dialog("Rerun", (close) => {
      const step = h("input", { type: "number", id: "from", min: 1, value: from });
      const model = h("input", { type: "text", id: "model", placeholder: record.models[0] });
      const prompt = h("textarea", { id: "prompt", rows: 4, placeholder: "as it was" });
      const changed = h("textarea", { id: "results", rows: 4, placeholder: 'of the calls in the previous step: [{"index": 0, "text": "…", "failed": false}]' });
      const rules = h("textarea", { id: "rules", rows: 3, placeholder: '[{"permission": "bash", "pattern": "rm *", "action": "deny"}]' });
      const recorded = h("input", { type: "checkbox", id: "recorded" });
      const line = (label, input) => h("div", { class: "field" }, h("label", { for: input.id }, label), input);
      const run = async () => {
        const body = { from_step: Number(step.value), recorded: recorded.checked };
        if (model.value) body.model = model.value;
        if (prompt.value) body.prompt = prompt.value;
        if (changed.value) body.tool_results = JSON.parse(changed.value);
        if (rules.value) body.permissions = JSON.parse(rules.value);
        const accepted = await post(`/tasks/${id}/rerun`, body, { once: true });
        close();
        location.hash = `#/tasks/${accepted.task_id}`;
      };
      return [line("From step", step), line("Model", model), line("Instructions", prompt), line("Edited results", changed), line("Rules added", rules), line("Only rules and limits: no model, no tool", recorded), h("div", { class: "row" }, action("Rerun", run, { class: "primary" }), h("button", { type: "button", onclick: close }, "Back"))];
    });
  }

  async function chooseOther() {
    const page = await get("/tasks", { agent: record.agent, limit: 30 });
    dialog("Compare with", (close) => [
      h("ul", { class: "plain" }, ...page.items.filter((one) => one.task_id !== id).map((one) => h("li", {}, status(one.status), " ", h("a", { href: `#/compare/${id}/${one.task_id}`, onclick: close }, short(one.title, 80) || one.task_id), h("small", {}, ` ${ago(one.created_at)}`)))),
      h("button", { type: "button", onclick: close }, "Back"),
    ]);
  }

  const refresh = soon(() => load().catch((error) => fill(note, error.message)), 250);
  const stop = follow(`/tasks/${id}/events`, (event) => event.type.endsWith("_delta") || refresh(), { lost: refresh });
  fill(
    main,
    place.head,
    note,
    place.waiting,
    h("div", { class: "row" }, h("h2", {}, "Waterfall"), h("label", { for: "measure" }, "by"), measure),
    place.chart,
    h("h2", {}, "Steps"),
    list.element,
    place.step,
    place.result,
    place.effects,
    place.budget,
    place.audit,
  );
  load().catch((error) => fill(main, h("h1", {}, "Not found"), h("p", { role: "alert" }, error.message)));
  return () => {
    stop();
    list.close();
  };
}

function round(number) {
  return Number.isInteger(number) ? number.toLocaleString() : number.toFixed(2);
}
