// Operations: health, workers and queues, deliveries that fail, agents and what changed between their versions.

import { get, getText, post } from "./api.js";
import { action, empty, fill, h, status } from "./dom.js";
import { ago, clock, count, duration, short } from "./format.js";
import { diffView, lineDiff } from "./diff_view.js";
import { insist } from "./live.js";

export function operations(main) {
  const place = { health: h("div"), queues: h("div"), deliveries: h("div"), agents: h("div"), difference: h("div", { class: "whole" }) };
  const figure = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));

  async function health() {
    let ready;
    try {
      ready = await get("/readyz");
    } catch (error) {
      if (!error.body) throw error;
      ready = error.body; // 503 says what is missing
    }
    const workers = Object.entries(ready.workers ?? {});
    const summary = await get("/summary").catch(() => null);
    fill(
      place.health,
      h("p", { class: `banner ${ready.ready ? "good" : "failed"}` }, ready.ready ? "Everything needed for tasks to run is there." : `Not ready. ${(ready.missing ?? []).join("; ")}`),
      h(
        "dl",
        { class: "figures" },
        ...["postgres", "temporal", "worker"].map((name) => figure(name, status(ready[name] ? "ok" : "failed"))),
        summary ? [figure("running", String(summary.running)), figure("not started", String(summary.queued))] : null,
      ),
      h("h2", {}, count(workers.length, "worker")),
      h("ul", { class: "plain" }, ...workers.map(([name, sandbox]) => h("li", {}, h("code", {}, name), ` sandbox ${sandbox}`))),
    );
  }

  async function queues() {
    const found = await get("/queues").catch((error) => ({ items: [], problem: error.message }));
    const cells = (one) => [one.name, one.kind, one.backlog, duration(one.oldest_ms), one.added_per_second, one.taken_per_second, one.pollers];
    fill(
      place.queues,
      h("h2", {}, "Queues"),
      found.items.length
        ? h("table", { class: "queues" }, h("thead", {}, h("tr", {}, ...["queue", "kind", "waiting", "oldest", "added/s", "taken/s", "workers"].map((name) => h("th", {}, name)))), h("tbody", {}, ...found.items.map((one) => h("tr", {}, ...cells(one).map((cell) => h("td", {}, String(cell)))))))
        : empty(found.problem ?? "None."),
    );
  }

  async function deliveries() {
    const [failed, pending] = await Promise.all(["failed", "pending"].map((state) => get("/deliveries", { status: state, limit: 50 })));
    const page = { items: [...failed.items, ...pending.items.filter((one) => one.last_error)] };
    fill(
      place.deliveries,
      h("h2", {}, "Deliveries that fail"),
      page.items.length
        ? h("ul", { class: "plain rows" }, ...page.items.map((one) => h("li", { class: "row" }, h("span", { class: "wrap" }, `${one.event} · ${one.next_at ? `again ${clock(one.next_at)}` : "given up"} · ${count(one.attempts, "attempt")} · ${short(one.last_error, 120)}`), h("small", {}, ago(one.created_at)), action("Send again", async () => { await post(`/deliveries/${one.id}/resend`); await deliveries(); }))))
        : empty("None."),
    );
  }

  async function agents() {
    const page = await get("/agents");
    fill(
      place.agents,
      h("h2", {}, "Agents"),
      h("ul", { class: "plain rows" }, ...page.items.map(agentView)),
    );
  }

  function agentView(one) {
    const element = h(
      "li",
      { class: "row" },
      h("b", {}, one.name),
      `v${one.version}`,
      h("small", { class: "wrap" }, short(one.description, 120)),
      one.version > 1 ? action("What changed", () => difference(one, element)) : null,
      one.mode === "subagent" ? null : h("a", { href: `#/start/${one.name}`, "aria-label": `Start ${one.name}` }, "start"),
    );
    return element;
  }

  // Any two versions, at first the last two.
  async function difference(agent, below) {
    const versions = (await get(`/agents/${agent.name}/versions`)).items;
    const shown = h("div", { role: "status" });
    const compare = async () => {
      const texts = await Promise.all(chosen.map((one) => getText(`/agents/${agent.name}?version=${one.value}`, "text/markdown")));
      fill(shown, texts[0] === texts[1] ? empty("They are the same.") : diffView(lineDiff(...texts)));
    };
    const show = () => compare().catch((error) => fill(shown, error.message));
    const chosen = ["before", "after"].map((name, at) => h("select", { id: name, onchange: show }, ...versions.map((one) => h("option", { value: one, selected: one === versions.at(at - 2) }, String(one)))));
    fill(
      place.difference,
      h("h3", {}, `What changed in ${agent.name}`),
      h("div", { class: "row" }, h("label", { for: "before" }, "from version"), chosen[0], h("label", { for: "after" }, "to version"), chosen[1]),
      shown,
    );
    below.append(place.difference);
    await compare();
    place.difference.scrollIntoView({ block: "nearest" });
  }

  const show = () => Promise.all([health(), queues(), deliveries()]).catch((error) => fill(place.health, h("p", { role: "alert" }, error.message)));
  fill(main, h("h1", {}, "Operations"), place.health, place.queues, place.deliveries, place.agents);
  show();
  const first = insist(agents, (error) => fill(place.agents, error.message));
  const clockwork = setInterval(show, 5000);
  return () => {
    first();
    clearInterval(clockwork);
  };
}
