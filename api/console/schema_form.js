// A form made of a JSON schema: fields for what people can fill in, a text of JSON for everything else.

import { h } from "./dom.js";

let numbers = 0;

export function schemaForm(schema, value, label = "") {
  const field = make(schema ?? {}, value, label);
  return {
    element: field.element,
    value() {
      const found = field.value();
      if (found === undefined) throw new Error("Fill in the form first.");
      return found;
    },
  };
}

function make(schema, value, label) {
  const kind = Array.isArray(schema.type) ? schema.type.find((one) => one !== "null") : schema.type;
  if (schema.const !== undefined) return { element: h("span"), value: () => schema.const };
  if (schema.enum) return choice(schema, value, label);
  if (kind === "object" && schema.properties) return group(schema, value, label);
  if (kind === "boolean") return checkbox(schema, value, label);
  if (kind === "integer" || kind === "number") return number(schema, value, label, kind);
  if (kind === "string") return text(schema, value, label);
  if (kind === "array" && schema.items?.type === "string") return lines(schema, value, label);
  return jsonText(schema, value, label);
}

function labelled(input, label, schema) {
  input.id = `field-${++numbers}`;
  const hint = schema.description ? h("small", { id: `${input.id}-hint` }, schema.description) : null;
  if (hint) input.setAttribute("aria-describedby", hint.id);
  return h("div", { class: "field" }, h("label", { for: input.id }, label || schema.title || "Answer"), input, hint);
}

function group(schema, value, label) {
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties).map(([name, inner]) => [
    name,
    required.has(name),
    make(inner, value?.[name] ?? inner.default, name + (required.has(name) ? "" : " (optional)")),
  ]);
  return {
    element: h("fieldset", {}, label ? h("legend", {}, label) : null, ...fields.map(([, , field]) => field.element)),
    value() {
      const found = {};
      for (const [name, needed, field] of fields) {
        const one = field.value();
        if (one !== undefined) found[name] = one;
        else if (needed) throw new Error(`${name} is required.`);
      }
      return found;
    },
  };
}

function text(schema, value, label) {
  const long = !(schema.maxLength <= 200);
  const input = long ? h("textarea", { rows: 3, value: value ?? "" }) : h("input", { type: "text", value: value ?? "" });
  return { element: labelled(input, label, schema), value: () => (input.value === "" ? undefined : input.value) };
}

function number(schema, value, label, kind) {
  const step = kind === "integer" ? 1 : "any";
  const input = h("input", { type: "number", step, min: schema.minimum, max: schema.maximum, value: value ?? "" });
  return { element: labelled(input, label, schema), value: () => (input.value === "" ? undefined : Number(input.value)) };
}

function checkbox(schema, value, label) {
  const input = h("input", { type: "checkbox", checked: Boolean(value) });
  return { element: labelled(input, label, schema), value: () => input.checked };
}

function choice(schema, value, label) {
  const input = h("select", {}, ...schema.enum.map((one, index) => h("option", { value: index, selected: one === value }, String(one))));
  return { element: labelled(input, label, schema), value: () => schema.enum[Number(input.value)] };
}

function lines(schema, value, label) {
  const input = h("textarea", { rows: 6, value: (value ?? []).join("\n") });
  const read = () => input.value.split("\n").map((line) => line.trim()).filter(Boolean);
  return { element: labelled(input, `${label || "Lines"}, one a line`, schema), value: () => (read().length ? read() : undefined) };
}

function jsonText(schema, value, label) {
  const input = h("textarea", { rows: 6, spellcheck: "false", value: value === undefined ? "" : JSON.stringify(value, null, 2) });
  return {
    element: labelled(input, `${label || "Value"}, as JSON`, schema),
    value() {
      if (input.value.trim() === "") return undefined;
      try {
        return JSON.parse(input.value);
      } catch (error) {
        throw new Error(`${label || "The value"} is not JSON: ${error.message}`);
      }
    },
  };
}
