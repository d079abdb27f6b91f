// Start a task: an agent, the form of its input, files by drop, a limit of its cost. What was used last is there again.

import { get, post, upload } from "./api.js";
import { action, fill, h } from "./dom.js";
import { bytes } from "./format.js";
import { icon } from "./icons.js";
import { insist } from "./live.js";
import { bones, crumbs, kbd, square } from "./parts.js";
import { schemaForm } from "./schema_form.js";

const LAST = "last start"; // agent and limit, in this browser

export function startTask(main, { parameters }) {
  const last = JSON.parse(localStorage.getItem(LAST) ?? "{}");
  const chosen = h("select", { id: "agent", onchange: () => form() });
  const about = h("p", { class: "soft about" });
  const place = h("div", {}, bones(2));
  const files = h("input", { type: "file", id: "files", multiple: true, class: "sr", onchange: () => add(files.files) });
  const list = h("ul", { class: "chips" });
  const drop = h("div", { class: "drop", ondragover: (event) => { event.preventDefault(); drop.classList.add("over"); }, ondragleave: () => drop.classList.remove("over"), ondrop: (event) => { event.preventDefault(); drop.classList.remove("over"); add(event.dataTransfer.files); } }, icon("file"), h("label", { for: "files" }, "Files for its workspace (optional)"), h("span", { class: "faint" }, "drop them here, or press to choose"), files);
  const limit = h("input", { type: "number", id: "cost", min: "0.01", step: "any", value: last.limit ?? "" });
  const model = h("input", { type: "text", id: "model", placeholder: "as the agent says" });
  let given = [];
  let agents = [];
  let input = null;

  function form() {
    const agent = agents.find((one) => one.name === chosen.value);
    if (!agent) return;
    fill(about, agent.description);
    input = schemaForm(agent.input_schema ?? { type: "string", title: "What should it do?" });
    place.replaceChildren(input.element);
    if (!place.contains(document.activeElement)) place.querySelector("textarea, input, select")?.focus();
  }

  function add(more) {
    given = [...given, ...more];
    fill(list, given.map((file, at) => h("li", {}, icon("file"), file.name, h("small", { class: "faint" }, bytes(file.size)), square("cross", `Leave out ${file.name}`, () => { given.splice(at, 1); add([]); }))));
  }

  async function submit() {
    const value = input.value();
    const uploaded = await Promise.all(given.map(upload));
    const body = { agent: chosen.value, input: value };
    if (uploaded.length) body.context = { files: uploaded.map((file) => file.file_id) };
    const config = { ...(limit.value ? { max_cost_usd: Number(limit.value) } : {}), ...(model.value.trim() ? { model: model.value.trim() } : {}) };
    if (Object.keys(config).length) body.config = config;
    const accepted = await post("/tasks", body, { once: true });
    localStorage.setItem(LAST, JSON.stringify({ agent: chosen.value, limit: limit.value }));
    location.hash = `#/tasks/${accepted.task_id}`;
  }

  crumbs("New task");
  fill(
    main,
    h(
      "div",
      { class: "page scroll", onkeydown: (event) => event.key === "Enter" && (event.metaKey || event.ctrlKey) && main.querySelector("button.primary").click() },
      h("div", { class: "card form" },
        h("h1", {}, "Start a task"),
        h("div", { class: "field" }, h("label", { for: "agent" }, "Agent"), chosen, about),
        place,
        drop,
        list,
        h("div", { class: "line fields" }, h("div", { class: "field grow" }, h("label", { for: "cost" }, "Limit of its cost in dollars (optional)"), limit), h("div", { class: "field grow" }, h("label", { for: "model" }, "Model (optional)"), model)),
        h("footer", { class: "line" }, action(["Start", kbd("⌘↵")], submit, { class: "primary" }), h("a", { class: "button quiet", href: "#/" }, "Back to the tasks")),
      ),
    ),
  );

  async function load() {
    agents = (await get("/agents")).items.filter((one) => one.mode !== "subagent");
    const wanted = [parameters[0], last.agent, "assistant", agents[0]?.name].find((name) => agents.some((one) => one.name === name));
    chosen.replaceChildren(...agents.map((one) => h("option", { value: one.name, selected: one.name === wanted }, one.name)));
    form();
  }

  return { leave: insist(load, (error) => fill(about, error.message)) };
}
