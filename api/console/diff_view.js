// Differences, line by line.

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

// Lines that only one of two texts has, by their longest common part; definitions are short.
export function lineDiff(before, after) {
  const a = before.split("\n").slice(0, 1000);
  const b = after.split("\n").slice(0, 1000);
  const length = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      length[i][j] = a[i] === b[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push(`  ${a[i++]}`);
      j++;
    } else if (j < b.length && (i === a.length || length[i][j + 1] > length[i + 1][j])) lines.push(`+ ${b[j++]}`);
    else lines.push(`- ${a[i++]}`);
  }
  return lines.join("\n");
}
