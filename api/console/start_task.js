// Start a task: choose an agent, fill in the form of its input.

import { get, post, upload } from "./api.js";
import { action, fill, h, link } from "./dom.js";
import { insist } from "./live.js";
import { schemaForm } from "./schema_form.js";

export function startTask(main, { parameters }) {
  const chosen = h("select", { id: "agent", onchange: () => form() });
  const about = h("p", { class: "about" });
  const place = h("div");
  const files = h("input", { type: "file", id: "files", multiple: true });
  const limit = h("input", { type: "number", id: "cost", min: "0.01", step: "any" });
  let agents = [];
  let input = null;

  function form() {
    const agent = agents.find((one) => one.name === chosen.value);
    if (!agent) return;
    fill(about, agent.description);
    input = schemaForm(agent.input_schema ?? { type: "string", title: "What should it do?" });
    fill(place, input.element);
  }

  async function submit() {
    const uploaded = await Promise.all([...files.files].map(upload));
    const body = { agent: chosen.value, input: input.value() };
    if (uploaded.length) body.context = { files: uploaded.map((file) => file.file_id) };
    if (limit.value) body.config = { max_cost_usd: Number(limit.value) };
    const accepted = await post("/tasks", body, { once: true });
    location.hash = `#/tasks/${accepted.task_id}`;
  }

  fill(
    main,
    h("h1", {}, "Start a task"),
    h(
      "div",
      { class: "form" },
      h("div", { class: "field" }, h("label", { for: "agent" }, "Agent"), chosen),
      about,
      place,
      h("div", { class: "field" }, h("label", { for: "files" }, "Files for its workspace (optional)"), files),
      h("div", { class: "field" }, h("label", { for: "cost" }, "Limit of its cost in dollars (optional)"), limit),
      action("Start", submit, { class: "primary" }),
    ),
    h("p", {}, link("#/", "Back to the tasks")),
  );

  async function load() {
    agents = (await get("/agents")).items.filter((one) => one.mode !== "subagent");
    fill(chosen, ...agents.map((one) => h("option", { value: one.name, selected: one.name === parameters[0] }, one.name)));
    form();
  }

  return insist(load, (error) => fill(about, error.message));
}
