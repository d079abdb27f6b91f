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

export function editDialog(request, answer) {
  const properties = request.answer_schema?.properties ?? {};
  const changes = Object.entries(properties).filter(([name]) => name !== "approved" && name !== "notes");
  if (!changes.length) throw new Error("This cannot be changed, only approved or denied.");
  dialog("Approve with changes", (close) => {
    const fields = changes.map(([name, schema]) => [name, schemaForm(schema, request.details[name], name)]);
    return [
      ...fields.map(([, form]) => form.element),
      h(
        "div",
        { class: "row" },
        action("Approve as changed", async () => {
          await answer(request, { approved: true, ...Object.fromEntries(fields.map(([name, form]) => [name, form.value()])) });
          close();
        }, { class: "primary" }),
        h("button", { type: "button", onclick: close }, "Back"),
      ),
    ];
  });
}
