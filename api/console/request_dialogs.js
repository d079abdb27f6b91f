// Dialogs of a request: deny it with a reason, or approve it with changes.

import { action, dialog, h } from "./dom.js";
import { schemaForm } from "./schema_form.js";

export function denyDialog(request, answer) {
  dialog("Deny", (close) => {
    const notes = h("textarea", { rows: 3, id: "notes", autofocus: true });
    return [
      h("div", { class: "field" }, h("label", { for: "notes" }, "Why? The agent reads it (optional)"), notes),
      h(
        "div",
        { class: "row" },
        action("Deny", async () => {
          await answer(request, notes.value ? { approved: false, notes: notes.value } : { approved: false });
          close();
        }, { class: "danger" }),
        h("button", { type: "button", onclick: close }, "Back"),
      ),
    ];
  });
}

// A standing rule is a separate decision: it is sent only if its box was ticked.
export function editDialog(request, answer) {
  const { approved, notes: noted, always, ...changes } = request.answer_schema?.properties ?? {};
  if (!always && !Object.keys(changes).length) throw new Error("This cannot be changed, only approved or denied.");
  dialog("Approve with changes", (close) => {
    const fields = Object.entries(changes).map(([name, schema]) => [name, schemaForm(schema, request.details[name], name)]);
    const notes = h("textarea", { rows: 2, id: "notes" });
    const patterns = h("textarea", { rows: 2, id: "patterns", value: (request.details.always ?? []).join("\n") });
    const which = h("div", { class: "field", hidden: true }, h("label", { for: "patterns" }, "Calls that match, one pattern a line"), patterns);
    const rule = h("input", { type: "checkbox", id: "always", onchange: () => { which.hidden = !rule.checked; } });

    async function send() {
      const input = { approved: true };
      for (const [name, form] of fields) input[name] = form.value();
      if (notes.value) input.notes = notes.value;
      const wanted = rule.checked ? patterns.value.split("\n").filter((one) => one.trim()) : [];
      if (wanted.length) input.always = wanted;
      await answer(request, input);
      close();
    }

    return [
      ...fields.map(([, form]) => form.element),
      noted ? h("div", { class: "field" }, h("label", { for: "notes" }, "A note for the agent (optional)"), notes) : null,
      always ? [h("div", { class: "field" }, h("label", { for: "always" }, "From now on run such calls of this conversation without asking"), rule), which] : null,
      h("div", { class: "row" }, action("Approve as changed", send, { class: "primary" }), h("button", { type: "button", onclick: close }, "Back")),
    ].flat().filter(Boolean);
  });
}
