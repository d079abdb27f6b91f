// A unified diff, line by line.

import { h } from "./dom.js";
import { bounded } from "./format.js";

const MOST_LINES = 2000;

export function diffView(text) {
  const lines = bounded(text).split("\n");
  const shown = lines.slice(0, MOST_LINES).map((line) => {
    const kind = line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : line.startsWith("@@") ? "place" : "";
    return h("span", { class: `line ${kind}` }, `${line}\n`);
  });
  const rest = lines.length - shown.length;
  return h("pre", { class: "diff" }, ...shown, rest > 0 ? `… ${rest} more lines` : null);
}
