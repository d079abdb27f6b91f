// What a person needs in order to decide: the call, its diff, the files it runs, the rule that asked, what was spent.

import { h } from "./dom.js";
import { bounded, cost, count, json } from "./format.js";
import { diffView } from "./diff_view.js";

const MOST = 20_000; // characters of each part of a request

function rule(found) {
  return `${found.action} ${found.permission} ${found.pattern ?? "*"}`;
}

export function details(request) {
  const known = request.details ?? {};
  const shown = [];
  const add = (name, content) => content && shown.push(h("div", { class: "detail" }, h("b", {}, name), content));
  add("call", known.tool && h("pre", {}, bounded(`${known.tool} ${json(known.arguments ?? {})}`, MOST)));
  add("changes", known.diff && diffView(known.diff));
  for (const file of known.files ?? []) add(`runs ${file.path}`, h("pre", {}, bounded(file.text ?? `${file.size} bytes, not text`, MOST)));
  add("and", known.more_files && h("span", {}, `${count(known.more_files.count, "more file")} that it names`));
  add("plan", Array.isArray(known.plan) && h("ol", {}, ...known.plan.map((step) => h("li", {}, step))));
  add("why there is no diff", known.note && h("span", {}, known.note));
  add("options", known.options?.length && h("ul", {}, ...known.options.map((one) => h("li", {}, one))));
  add("the rule that asked", known.rule && h("code", {}, rule(known.rule)));
  add("Edit can allow from now on", known.always?.length && h("ul", {}, ...known.always.map((one) => h("li", {}, h("code", {}, one)))));
  const spent = known.so_far;
  add("so far", spent && h("span", {}, `${cost(spent.cost_usd)}, ${count(spent.tokens, "token")}, ${count(spent.steps, "step")}`));
  const used = new Set(["tool", "arguments", "diff", "files", "more_files", "plan", "note", "options", "rule", "so_far", "always"]);
  const rest = Object.fromEntries(Object.entries(known).filter(([name]) => !used.has(name)));
  if (Object.keys(rest).length) add("more", h("pre", {}, bounded(json(rest), MOST)));
  return h("div", { class: "details" }, ...shown);
}
