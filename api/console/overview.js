// Overview: whether it is healthy, what ended and failed, where the money goes, workers, queues, schedules, deliveries.

import { get, post } from "./api.js";
import { action, fill, h } from "./dom.js";
import { bars, legend, lines } from "./charts.js";
import { DAY, HOURS, ago, clock, cost, count, duration, left, short, time } from "./format.js";
import { icon } from "./icons.js";
import { ends, every, insist, listen, soon } from "./live.js";
import { bones, broken, choice, crumbs, empty } from "./parts.js";

const MOST_AGENTS = 3; // with a colour of their own
const RUNS = 12; // of a schedule

export function overview(main) {
  const place = Object.fromEntries(["health", "figures", "ended", "spent", "failures", "first", "workers", "schedules", "deliveries"].map((name) => [name, h("section", { class: `card ${name}` })]));
  place.health.className = "line health";
  place.figures = h("dl", { class: "stats" });
  const periods = h("div");
  const agent = h("select", { id: "agent", "aria-label": "Agent", onchange: () => numbers().catch(() => {}) }, h("option", { value: "" }, "All agents"));
  let days = 1;

  const card = (title, more, ...body) => [h("header", {}, h("h2", { class: "grow" }, title), more), body];

  async function health() {
    let ready;
    try {
      ready = await get("/readyz");
    } catch (error) {
      if (!error.body) throw error;
      ready = error.body; // 503 says what is missing
    }
    const [now, found] = await Promise.all([get("/summary").catch(() => null), get("/queues").catch((error) => ({ items: [], problem: error.message }))]);
    const workers = Object.entries(ready.workers ?? {});
    fill(
      place.health,
      h("span", { class: `banner pill ${ready.ready ? "good" : "bad failed"}`, role: "status" }, icon(ready.ready ? "done" : "failed"), ready.ready ? "Everything is running" : `Not ready. ${(ready.missing ?? []).join("; ")}`),
      h("span", { class: "soft parts" }, ["postgres", "temporal", "worker"].map((name) => h("span", { class: ready[name] ? "" : "failed bad-c" }, `${name === "postgres" ? "PostgreSQL" : name[0].toUpperCase() + name.slice(1)} ${ready[name] ? "answers" : "is missing"}`))),
      h("span", { class: "grow" }),
      now ? h("span", { class: "soft" }, h("b", { class: "live-c num" }, now.running), " running · ", h("b", { class: "wait-c num" }, now.waiting), " waiting for people · ", h("b", { class: "num" }, now.queued), " not started") : null,
    );
    const rows = found.items.map((one) => h("li", { class: "queue" }, icon("tasks"), h("b", {}, one.name), h("small", { class: "faint" }, one.kind), h("span", { class: "grow" }), h("small", { class: one.backlog ? "wait-c" : "faint" }, one.backlog ? `${one.backlog} wait, oldest ${duration(one.oldest_ms)}` : `nothing waits · ${count(one.pollers, "worker")}`)));
    fill(place.workers, card("Workers and queues", h("span", { class: "faint" }, count(workers.length, "worker")), h("ul", { class: "list" }, workers.map(([name, sandbox]) => h("li", { class: "worker" }, icon("server", "good-c"), h("code", { class: "cut" }, name), h("span", { class: "faint" }, `sandbox ${sandbox}`))), rows, found.problem ? h("li", { class: "bad-c" }, found.problem) : null)));
  }

  async function numbers() {
    const found = await get("/figures", { days, agent: agent.value });
    const period = days === 1 ? "24 h" : `${days} days`;
    const box = (name, value, more) => h("div", {}, h("dt", {}, name), h("dd", {}, h("span", {}, value), h("small", {}, more)));
    const good = found.ended - found.failed;
    fill(
      place.figures,
      box(`Ended in ${period}`, found.ended.toLocaleString(), found.tasks > found.ended ? `${found.tasks - found.ended} not yet` : ""),
      box("Not failed", found.ended ? `${((100 * good) / found.ended).toFixed(1)} %` : "–", `${found.failed} failed`),
      box("Median time", found.took ? duration(found.took.median) : "–", found.took ? `95 %: ${duration(found.took.most)}` : ""),
      box("Waited for people", found.waited ? duration(found.waited.median) : "–", `median, ${count(found.answers, "answer")}`),
      box("Spent", cost(found.cost_usd), found.tasks ? `${cost(found.cost_usd / found.tasks)} a task` : ""),
    );
    const slots = slotsOf(found);
    const labels = slots.map((at) => (days === 1 ? HOURS : DAY).format(new Date(at)));
    const at = new Map(found.by_time.map((one) => [new Date(one.at).getTime(), one]));
    const ended = [["done", "done"], ["failed", "failed"]];
    fill(place.ended, card("Tasks ended", legend(ended), chart(found.tasks, () => bars({ sentence: `${found.ended} tasks ended in ${period}, ${found.failed} of them failed.`, series: ended, labels, rows: slots.map((one) => [(at.get(one)?.ended ?? 0) - (at.get(one)?.failed ?? 0), at.get(one)?.failed ?? 0]) }))));
    const sums = new Map();
    for (const one of found.by_agent) sums.set(one.agent, (sums.get(one.agent) ?? 0) + one.cost_usd);
    const ranked = [...sums].sort((a, b) => b[1] - a[1]).map(([name]) => name);
    const shown = ranked.slice(0, MOST_AGENTS);
    const series = [...shown.map((name, index) => [name, `a${index}`]), ...(ranked.length > MOST_AGENTS ? [["others", "a3"]] : [])];
    const of = (slot, name) => found.by_agent.filter((one) => new Date(one.at).getTime() === slot && (name === "others" ? !shown.includes(one.agent) : one.agent === name)).reduce((sum, one) => sum + one.cost_usd, 0);
    fill(place.spent, card(`Spend by ${days === 1 ? "hour" : "day"} and agent`, legend(series), chart(found.tasks, () => bars({ sentence: `${cost(found.cost_usd)} were spent in ${period}${shown[0] ? `, most by ${shown[0]}` : ""}.`, series, labels, rows: slots.map((slot) => series.map(([name]) => of(slot, name))), text: cost }))));
    const most = Math.max(1, ...found.failures.map((one) => one.tasks));
    fill(place.failures, card("Why tasks failed", h("a", { class: "to", href: "#/" }, count(found.failed, "task")), found.failures.length ? h("ul", { class: "list" }, found.failures.slice(0, 6).map((one) => h("li", {}, h("span", { class: "cut grow" }, one.reason.replaceAll("_", " ")), h("span", { class: "share" }, h("i", { css: { width: `${(100 * one.tasks) / most}%` } })), h("b", { class: "num" }, one.tasks)))) : empty("done", "None failed", `In ${period}.`)));
    const waits = [["median", "median"], ["95 %", "most"]];
    fill(place.first, card("Wait before the first step", legend(waits), chart(found.by_time.some((one) => one.first_step), () => lines({ sentence: "Time from the request to the first step.", series: waits, labels, rows: slots.map((one) => [at.get(one)?.first_step?.median ?? null, at.get(one)?.first_step?.most ?? null]), text: duration }))));
  }

  const chart = (there, draw) => (there ? h("div", { class: "chart" }, draw()) : empty("overview", "No tasks yet", "In this time."));

  function slotsOf(found) {
    const step = days === 1 ? 3_600_000 : 86_400_000;
    return Array.from({ length: days === 1 ? 24 : days }, (_, at) => new Date(found.since).getTime() + at * step);
  }

  async function schedules() {
    const page = await get("/schedules", { limit: 20 });
    const runs = await Promise.all(page.items.map((one) => get(`/schedules/${one.id}/runs`, { limit: RUNS }).catch(() => ({ items: [] }))));
    fill(
      place.schedules,
      card(
        "Schedules",
        h("span", { class: "faint" }, `${page.items.filter((one) => !one.paused).length} active, ${page.items.filter((one) => one.paused).length} paused`),
        page.items.length
          ? h("ul", { class: "list" }, page.items.map((one, at) => scheduleView(one, runs[at].items)))
          : empty("clock", "No schedules", "Tasks can be started by the clock, too: see docs/automation.md."),
      ),
    );
  }

  function scheduleView(one, runs) {
    const failed = (run) => ["failed", "cancelled"].includes(run.task_status) || run.status === "failed";
    const boxes = runs.toReversed().map((run) => h("i", { class: failed(run) ? "x" : run.status === "skipped" ? "n" : "" }));
    const resume = async () => { await post(`/schedules/${one.id}/resume`); await schedules(); };
    const next = one.next_times?.[0];
    return h("li", {},
      h("span", { class: "cut grow" }, h("b", {}, one.name), " ", h("span", { class: "faint" }, one.agent)),
      h("span", { class: "runs", title: `the latest ${runs.length} runs` }, boxes),
      one.paused ? h("small", { class: "bad-c cut" }, `paused${one.pause_reason ? `: ${short(one.pause_reason, 60)}` : ""}`) : null,
      one.paused ? action("Resume", resume, { class: "small" })
        : h("small", { class: "faint num" }, next ? `in ${left(next).replace(" left", "")}, ${time(next)}` : ""));
  }

  async function deliveries() {
    const [failed, pending] = await Promise.all(["failed", "pending"].map((state) => get("/deliveries", { status: state, limit: 50 })));
    const items = [...pending.items.filter((one) => one.last_error), ...failed.items]; // those that may still arrive first
    fill(
      place.deliveries,
      card(
        "Deliveries that fail",
        h("span", { class: "count none" }, items.length),
        items.length
          ? h("ul", { class: "list" }, items.slice(0, 20).map((one) => h("li", { key: one.id }, icon("failed", "bad-c"), h("span", { class: "grow" }, h("code", {}, one.event), h("small", { class: "faint block" }, `${one.next_at ? `again ${clock(one.next_at)}` : "given up"} · ${count(one.attempts, "attempt")} · ${short(one.last_error, 120)} · ${ago(one.created_at)}`)), action("Send again", async () => { await post(`/deliveries/${one.id}/resend`); await deliveries(); }, { class: "small" }))))
          : empty("done", "None", "Everything arrived, or waits for its first attempt."),
      ),
    );
  }

  const parts = [[health, place.workers], [numbers, place.ended], [schedules, place.schedules], [deliveries, place.deliveries]];
  const show = () => Promise.all(parts.map(([read, where]) => read().catch((error) => { if (error.status !== 404) fill(where, broken(error, read)); })));
  const period = () => fill(periods, choice("Period", [[1, "24 h"], [7, "7 d"], [30, "30 d"]], days, (value) => { days = value; period(); numbers().catch(() => {}); }));
  crumbs("Overview");
  period();
  for (const [, where] of parts) fill(where, bones(3));
  fill(main, h("div", { class: "page scroll", tabindex: "0", role: "region", "aria-label": "Overview" }, h("h1", { class: "sr" }, "Overview"), h("div", { class: "line" }, place.health, periods, agent), place.figures, h("div", { class: "grid" }, place.ended, place.spent, place.failures, place.first, place.workers, place.schedules, place.deliveries)));
  const reads = [
    insist(async () => { await get("/summary"); await show(); }, (error) => fill(place.health, h("p", { role: "alert" }, error.message))),
    insist(async () => agent.append(...(await get("/agents")).items.map((one) => h("option", { value: one.name }, one.name))), () => {}),
  ];
  const refresh = soon(numbers, 2000);
  const stop = listen((notice) => /^(session_|task_|lost)/.test(notice.type) && refresh());
  const clockwork = every(5000, () => [health, deliveries].forEach((read) => read().catch(() => {})));
  return { leave: ends(stop, ...reads, clockwork) };
}
