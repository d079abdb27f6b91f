// What was said in a session: messages, tool calls and results.

import { h } from "./dom.js";
import { bounded, short } from "./format.js";
import { markdown } from "./markdown.js";

export function messageView(message) {
  switch (message.type) {
    case "assistant":
      return h("div", { class: "message assistant" }, h("b", {}, message.author ?? "agent"), markdown(message.text));
    case "tool_call":
      return fold(`calls ${message.tool} ${short(message.input, 100)}`, message.input, "tool");
    case "tool_result":
      return fold(`${message.failed ? "failed" : "returned"}: ${short(message.text, 120)}`, message.text, message.failed ? "tool failed" : "tool");
    default:
      return h("div", { class: `message ${message.type === "user" ? "user" : "note"}` }, h("b", {}, message.type), markdown(message.text));
  }
}

function fold(title, text, kind) {
  return h("details", { class: `message ${kind}` }, h("summary", {}, title), h("pre", {}, bounded(String(text ?? ""))));
}
