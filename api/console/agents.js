// Agents: what each is for, what its versions changed, and a button to start it.

import { get, getText } from "./api.js";
import { fill, h } from "./dom.js";
import { count, short } from "./format.js";
import { icon } from "./icons.js";
import { insist } from "./live.js";
import { bones, code, crumbs, empty } from "./parts.js";
import { difference } from "./texts.js";

export function agents(main, { parameters: [name] }) {
  const list = h("ul", { class: "talks agent-list" });
  const place = h("section", { class: "pane detail-pane", "aria-label": "The chosen agent" });
  let all = [];
  let chosen = name ?? null;
  let text = null;
  let pair = null;

  async function load() {
    all = (await get("/agents")).items;
    draw();
    await choose(chosen ?? all[0]?.name);
  }

  function draw() {
    fill(list, all.map((one) => h("li", { key: one.name, "aria-current": one.name === chosen ? "true" : null }, icon("agents", "faint"), h("button", { type: "button", class: "plain grow", onclick: () => { main.firstChild.classList.add("opened"); choose(one.name).catch(() => {}); } }, h("b", { class: "cut" }, one.name), h("small", { class: "faint cut" }, short(one.description, 120))), h("small", { class: "faint num" }, `v${one.version}`))));
  }

  async function choose(wanted) {
    chosen = wanted;
    pair = null;
    draw();
    const agent = all.find((one) => one.name === wanted);
    if (!agent) return fill(place, empty("agents", "No agents", "Write one as a file, see docs/agents.md."));
    const [now, versions] = await Promise.all([getText(`/agents/${wanted}`, "text/markdown"), get(`/agents/${wanted}/versions`)]);
    if (wanted !== chosen) return;
    text = now;
    detail(agent, versions.items);
    if (versions.items.length > 1) await compare(agent, versions.items, versions.items.at(-2), versions.items.at(-1));
  }

  // Any two versions, at first the last two.
  async function compare(agent, versions, before, after) {
    const texts = await Promise.all([before, after].map((one) => getText(`/agents/${agent.name}?version=${one}`, "text/markdown")));
    if (agent.name !== chosen) return;
    pair = { before, after, texts };
    detail(agent, versions);
  }

  function detail(agent, versions) {
    const pick = (id, at) => h("select", { id, key: id, onchange: () => compare(agent, versions, ...["before", "after"].map((one) => Number(place.querySelector(`#${one}`).value))) }, versions.map((one) => h("option", { value: one, selected: one === at }, String(one))));
    fill(
      place,
      h("header", { class: "line intro" }, h("button", { type: "button", class: "quiet square phone", "aria-label": "Back to the list", onclick: () => main.firstChild.classList.remove("opened") }, icon("back")), h("h1", { class: "cut grow" }, agent.name), h("span", { class: "chip" }, `v${agent.version}`), agent.mode === "subagent" ? h("span", { class: "pill sub" }, icon("branch"), "Subagent") : h("a", { class: "button primary", href: `#/start/${agent.name}` }, icon("plus"), "Start")),
      h("div", { class: "scroll text", tabindex: "0", role: "region", "aria-label": "Its definition" }, h("p", { class: "soft" }, agent.description), pair ? [h("h2", { class: "label" }, `What changed in ${agent.name}`), h("div", { class: "line versions" }, h("label", { for: "before" }, "from version"), pick("before", pair.before), h("label", { for: "after" }, "to version"), pick("after", pair.after), h("span", { class: "faint" }, count(versions.length, "version"))), difference(pair.texts)] : null, h("h2", { class: "label" }, "Its definition"), code([icon("file"), h("span", { class: "grow" }, `${agent.name}.md`)], text, { id: agent.name, lines: 400 })),
    );
  }

  crumbs("Agents");
  fill(main, h("div", { class: `two ${name ? "opened" : ""}` }, h("section", { class: "pane", "aria-label": "Agents" }, h("header", { class: "sec" }, h("h1", {}, "Agents")), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "All agents" }, list)), place));
  fill(place, bones(4));
  return { leave: insist(load, (error) => fill(place, h("p", { role: "alert", class: "notice" }, error.message))) };
}
