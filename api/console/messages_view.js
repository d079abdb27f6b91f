// What was said in a session: messages, tool calls and results.

import { diffView, lineDiff } from "./diff_view.js";
import { h } from "./dom.js";
import { bounded, short } from "./format.js";
import { markdown } from "./markdown.js";

export function messageView(message) {
  switch (message.type) {
    case "assistant":
      return h("div", { class: "message assistant" }, h("b", {}, message.author ?? "agent"), markdown(message.text));
    case "tool_call":
      return fold(`calls ${message.tool} ${short(message.input, 100)}`, message.input, "tool", edited(message));
    case "tool_result":
      return fold(`${message.failed ? "failed" : "returned"}: ${short(message.text, 120)}`, message.text, message.failed ? "tool failed" : "tool");
    default:
      return h("div", { class: `message ${message.type === "user" ? "user" : "note"}` }, h("b", {}, message.type), markdown(message.text));
  }
}

function fold(title, text, kind, diff = unified(text)) {
  return h("details", { class: `message ${kind}` }, h("summary", {}, title), diff ? diffView(diff) : h("pre", {}, bounded(String(text ?? ""))));
}

const unified = (text) => (/^@@ .* @@/m.test(text) ? text : null);

// An edit of a file as the lines it takes away and adds; null if its arguments were too long to be kept whole.
function edited(message) {
  if (message.tool !== "edit_file") return null;
  try {
    const { path, edits } = JSON.parse(message.input);
    return [path, ...edits.map((edit) => lineDiff(edit.old, edit.new))].join("\n");
  } catch {
    return null;
  }
}
