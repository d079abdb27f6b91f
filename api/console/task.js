// A task: its steps, waterfall, effects, budget, artifacts and audit; rerun from a step, replay, compare, share.

import { address, get, post } from "./api.js";
import { action, confirmed, empty, fill, h, link, status } from "./dom.js";
import { ago, bounded, bytes, clock, cost, count, duration, json, short, tokens } from "./format.js";
import { keepCurrent } from "./live.js";
import { markdown } from "./markdown.js";
import { details } from "./request_details.js";
import { compareDialog, raiseDialog, rerunDialog } from "./task_dialogs.js";
import { virtualList } from "./virtual_list.js";
import { waterfall } from "./waterfall.js";

const CHARS = 4_000; // of each text in the steps
const SHARED_CHARS = 100_000; // of each text in a file that is shared
const MOST_ROWS = 200;

export function task(main, { session, parameters: [id] }) {
  const place = Object.fromEntries(["head", "waiting", "chart", "step", "events", "result", "files", "effects", "budget", "audit"].map((name) => [name, h("div")]));
  const note = h("p", { role: "status" });
  const problem = h("p", { class: "problem", role: "alert" });
  const measure = h("select", { id: "measure", onchange: () => chart() }, ...["time", "tokens", "cost"].map((name) => h("option", { value: name }, name)));
  const list = virtualList({ label: "Steps", height: 44, row: stepRow, key: (step) => step.step });
  let record = null;
  let trace = null;
  let chosen = null;

  async function load() {
    record = await get(`/tasks/${id}`);
    head();
    trace = await get(`/tasks/${id}/trace`, { chars: CHARS }).catch((error) => (error.status === 410 ? null : Promise.reject(error)));
    if (trace) {
      list.set(trace.steps);
      chart();
      eventsView(trace.marks);
      if (chosen === null) fill(place.step, empty(trace.steps.length ? "Choose a step, or a bar, to see its thinking, calls and results." : "No step yet."));
      else showStep(trace.steps.find((one) => one.step === chosen));
    } else fill(place.chart, empty("The content of this task was removed when it had been kept long enough."));
    const ended = ["completed", "failed", "cancelled"].includes(record.status);
    const [effects, budget, audit, chain, asked, files, result] = await Promise.all([
      get(`/tasks/${id}/effects`),
      get(`/tasks/${id}/budget`),
      get(`/tasks/${id}/audit`, { limit: 50 }),
      get(`/tasks/${id}/audit/verify`),
      get(`/tasks/${id}/input-requests`),
      get(`/tasks/${id}/workspace`).catch(() => null),
      ended ? get(`/tasks/${id}/result`).catch(() => null) : null,
    ]);
    const open = asked.items.filter((one) => one.status === "open");
    fill(place.waiting, ...open.map((one) => h("div", { class: "banner" }, link("#/inbox", one.question), details(one))));
    resultView(result);
    effectsView(effects);
    budgetView(budget);
    auditView(audit, chain);
    filesView(files);
  }

  function head() {
    const ended = Boolean(record.ended_at);
    const later = { disabled: !ended, title: ended ? "" : "when it has ended" };
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
        action("Share as one file", share),
        action("Compare…", () => compareDialog(id, record.agent)),
        action("Replay on today's code", replay, later),
        action("Rerun…", () => rerun(1), later),
        action("Cancel", async () => confirmed("Cancel this task?", "It ends and keeps what it has.", "Cancel it", () => post(`/tasks/${id}/cancel`, { scope: "tree" })), { class: "danger", disabled: ended }),
      ),
    );
  }

  function chart() {
    if (trace) fill(place.chart, waterfall(trace, measure.value, (from, step) => from.session_id === id && step && pick(step)));
  }

  function stepRow(step) {
    const said = step.models.length ? step.models.map((one) => one.text || one.thinking).join(" ") : record.ended_at ? "no answer of the model" : "waits for the model";
    const tools = step.tools.map((one) => `${one.tool}${one.state === "ok" ? "" : ` (${one.state})`}`).join(", ");
    return h("div", {}, h("button", { type: "button", class: "step-row", "aria-current": step.step === chosen ? "true" : null, "data-step": step.step, onclick: () => pick(step.step) }, h("b", {}, `Step ${step.step}`), h("span", { class: "grow" }, short(said, 120)), h("code", {}, short(tools, 60))));
  }

  function pick(number) {
    chosen = number;
    const index = trace.steps.findIndex((one) => one.step === number);
    if (index >= 0) {
      list.reveal(index);
      for (const row of list.element.querySelectorAll("[data-step]")) row.toggleAttribute("aria-current", Number(row.dataset.step) === number);
      showStep(trace.steps[index]);
    }
  }

  function showStep(step) {
    if (step) fill(place.step, ...stepView(step));
  }

  function stepView(step) {
    return [
      h("h3", {}, `Step ${step.step}`, step.speaker ? ` (${step.speaker})` : ""),
      h("div", { class: "row" }, action("Rerun from here…", () => rerun(step.step), { disabled: !record.ended_at, "data-rerun": "" })),
      ...step.models.flatMap((call) => [
        h("p", { class: "meta" }, `${call.model}, ${duration(new Date(call.ended_at) - new Date(call.started_at))}, ${cost(call.usage.cost_usd)}, ${tokens(call.usage).toLocaleString()} tokens${call.attempts > 1 ? `, ${call.attempts} attempts` : ""}`),
        call.thinking ? h("details", {}, h("summary", {}, "Thinking"), h("pre", {}, call.thinking)) : null,
        markdown(call.text),
      ]),
      ...step.tools.map((call) =>
        h("details", { class: "call", open: step.tools.length < 4 }, h("summary", {}, h("code", {}, call.tool), " ", status(call.state === "ok" ? "completed" : call.state), ` ${call.ended_at ? duration(new Date(call.ended_at) - new Date(call.started_at)) : "running"}`), h("pre", {}, json(call.arguments)), h("pre", {}, call.result), ...call.sessions.map((child) => h("p", {}, link(`#/tasks/${child.session_id}`, `subagent ${child.name || child.agent}`)))),
      ),
    ];
  }

  // This page as a file that needs nothing else: every step with its whole texts, no scripts, nothing to press.
  async function share() {
    const whole = await get(`/tasks/${id}/trace`, { chars: SHARED_CHARS });
    const page = main.cloneNode(true);
    page.querySelector(".virtual").replaceWith(h("div", {}, ...whole.steps.flatMap(stepView)));
    for (const control of page.querySelectorAll("button, select, .action, label[for]")) control.remove();
    for (const anchor of page.querySelectorAll("a")) anchor.replaceWith(...anchor.childNodes);
    const style = await (await fetch(address("/console/console.css"))).text();
    const policy = "default-src 'none'; style-src 'unsafe-inline'";
    const head = [h("meta", { charset: "utf-8" }), h("meta", { "http-equiv": "Content-Security-Policy", content: policy }), h("title", {}, record.title || id), h("style", {})];
    head[3].textContent = style;
    const text = `<!doctype html>\n<html lang="en"><head>${head.map((one) => one.outerHTML).join("")}</head><body>${page.outerHTML}</body></html>`;
    const file = URL.createObjectURL(new Blob([text], { type: "text/html" }));
    h("a", { href: file, download: `trace-${id}.html` }).click();
    URL.revokeObjectURL(file);
  }

  // What happened beside the calls: plans, retries, waits, messages, budgets.
  function eventsView(marks) {
    const shown = marks.slice(-MOST_ROWS);
    const list = h("ul", { class: "plain log" }, ...shown.map((one) => h("li", {}, h("small", {}, clock(one.at)), h("span", {}, `${one.type.replaceAll("_", " ")}: ${short(one.text, 200)}`))));
    const rest = marks.length - shown.length;
    fill(place.events, h("h2", {}, "Events"), shown.length ? list : empty("None beside the calls."), rest ? h("p", { class: "why" }, `The latest ${shown.length} of ${marks.length}.`) : null);
  }

  function resultView(result) {
    if (!result) return fill(place.result);
    const output = result.output === null ? empty("It ended without one.") : typeof result.output === "string" ? markdown(result.output) : h("pre", {}, bounded(json(result.output)));
    fill(
      place.result,
      h("h2", {}, "Result"),
      output,
      h("p", {}, h("a", { href: address(`/tasks/${id}/result`), download: `result-${id}.json` }, "The whole result as JSON")),
      result.artifacts.length ? h("ul", {}, ...result.artifacts.map((one) => h("li", {}, artifact(one), one.size ? ` ${bytes(one.size)}` : ""))) : null,
      result.acceptance ? h("ul", {}, ...result.acceptance.map((one) => h("li", {}, `${one.passed ? "✓" : "✗"} ${one.criterion}: ${one.why}`))) : null,
    );
  }

  function filesView(found) {
    if (!found?.items.length) return fill(place.files);
    const shown = found.items.filter((one) => one.kind !== "folder").sort((a, b) => Number(!a.change) - Number(!b.change));
    const name = (one) =>
      one.kind === "file" && one.change !== "removed"
        ? h("a", { href: address(`/tasks/${id}/workspace/file?path=${encodeURIComponent(one.path)}`), download: one.path.split("/").pop(), rel: "noopener" }, one.path)
        : h("span", {}, one.path, one.target ? ` → ${one.target}` : "");
    fill(
      place.files,
      h("h2", {}, "Files of the workspace"),
      h("ul", { class: "plain" }, ...shown.slice(0, MOST_ROWS).map((one) => h("li", {}, name(one), h("small", {}, ` ${bytes(one.size)}${one.change ? ` · ${one.change}` : ""}`)))),
      shown.length > MOST_ROWS ? h("p", { class: "why" }, `and ${count(shown.length - MOST_ROWS, "more file", "more files")}: errand pull ${id}`) : null,
    );
  }

  function effectsView(ledger) {
    fill(place.effects, h("h2", {}, "Effects"), ledger.items.length ? h("table", {}, h("thead", {}, h("tr", {}, ...["kind", "tool", "what", "state"].map((name) => h("th", { class: "keep" }, name)))), h("tbody", {}, ...ledger.items.slice(-MOST_ROWS).map((one) => h("tr", {}, h("td", { class: "keep" }, one.kind), h("td", {}, one.tool), h("td", {}, short(one.description, 200)), h("td", { class: "keep" }, one.state))))) : empty("It changed nothing."), ledger.items.length > MOST_ROWS ? h("p", { class: "why" }, `The latest ${MOST_ROWS} of ${ledger.items.length}.`) : null);
  }

  function budgetView(budget) {
    const lines = [...budget.budgets, ...(budget.tree?.budgets ?? []).map((one) => ({ ...one, budget: `${one.budget} of the conversation` }))];
    fill(place.budget, h("h2", {}, "Budget"), ...lines.map((one) => h("div", { class: "budget" }, h("label", {}, `${one.budget.replace("ttl", "time").replaceAll("_", " ")}: ${amount(one, one.used)} of ${amount(one, one.limit)}`, h("progress", { max: one.limit, value: Math.min(one.used, one.limit) })))), action("Raise…", async () => raiseDialog(id, budget, load), { disabled: Boolean(record.ended_at), "data-raise": "" }));
  }

  function auditView(page, chain) {
    fill(place.audit, h("h2", {}, "Audit log"), h("p", { class: chain.intact ? "" : "banner failed", "data-chain": "" }, chain.intact ? `The chain is intact: ${count(chain.entries, "entry", "entries")} of the conversation.` : `The chain is broken at entry ${chain.broken.seq}: ${chain.broken.problem}`), h("ul", { class: "plain log" }, ...page.items.map((one) => h("li", {}, h("small", {}, clock(one.at)), h("span", {}, `${one.action} by ${one.actor}${one.subject ? `: ${short(one.subject, 120)}` : ""}`)))));
  }

  async function replay() {
    const found = await post(`/tasks/${id}/replay`);
    const different = found.verdicts.filter((one) => !one.same);
    fill(note, different.length ? `Today's code decides otherwise at event ${different[0].event_id} (${different[0].event_type}): ${short(different[0].reason, 300)}` : `The same decisions: ${count(found.verdicts.length, "history", "histories")} replayed.`);
  }

  const rerun = (from) => rerunDialog(id, record, trace, from);

  const stop = keepCurrent(`/tasks/${id}/events`, load, { main, problem, matters: (event) => !event.type.endsWith("_delta"), ms: 250 });
  fill(
    main,
    place.head,
    note,
    problem,
    place.waiting,
    place.result,
    h("div", { class: "row" }, h("h2", {}, "Waterfall"), h("label", { for: "measure" }, "by"), measure),
    place.chart,
    h("h2", {}, "Steps"),
    list.element,
    place.step,
    place.events,
    place.files,
    place.effects,
    place.budget,
    place.audit,
  );
  return () => {
    stop();
    list.close();
  };
}

// A file of ours, or an address on the web; anything else that a result may name is only shown.
function artifact(one) {
  const href = /^https?:\/\//i.test(one.url) ? one.url : /^\/[^/\\]/.test(one.url) ? address(one.url) : null;
  const name = one.name ?? one.url;
  return href ? h("a", { href, download: one.name, rel: "noopener noreferrer" }, name) : h("span", {}, name);
}

function amount({ budget }, number) {
  if (budget.startsWith("ttl")) return duration(number);
  return budget.startsWith("cost") ? cost(number) : number.toLocaleString();
}
