/** Completion and hover from the definitions' JSON Schemas, and the names of definitions there are.
 *
 * Our own and small: libraries for it compile schemas to code, which the page's CSP forbids, or weigh more
 * than the whole editor. The server alone reports mistakes, so that there is one validator.
 */
import type { Completion, CompletionContext, CompletionResult } from "@codemirror/autocomplete";
import { hoverTooltip } from "@codemirror/view";
import { aboutAt, keysAt, namesAt, type Schema, valuesAt } from "./schema";
import { pathUnder, placeAt, type YamlPlace } from "./yaml-place";

export interface Known {
  /** Schema of the definition's kind; null: not here yet. */
  readonly schema: Schema | null;
  /** Kind → names of definitions. */
  readonly names: Readonly<Record<string, readonly string[]>>;
}

/** What can be written at a place. */
export function optionsAt(place: YamlPlace, known: Known): readonly Completion[] {
  const { schema, names } = known;
  if (!schema) return [];
  const options: Completion[] = [];
  if (place.at !== "value") {
    for (const key of keysAt(schema, place.path)) {
      if (place.used.includes(key.name)) continue;
      const info = [key.about, key.type].filter(Boolean).join("\n");
      options.push({ label: key.name, apply: `${key.name}:${key.below ? "" : " "}`, type: "property", detail: key.required ? "needed" : "", info, boost: key.required ? 2 : 0 });
    }
  }
  if (place.at !== "key") {
    for (const word of valuesAt(schema, place.path)) options.push({ label: word, type: "enum" });
    for (const name of names[namesAt(place.path) ?? ""] ?? []) options.push({ label: name, type: "text", boost: 1 });
  }
  return options;
}

function placeOf(context: CompletionContext): YamlPlace | null {
  const line = context.state.doc.lineAt(context.pos);
  return placeAt(context.state.doc.toString().split("\n"), line.number - 1, context.pos - line.from);
}

/** A source of completions; what is known is asked for each time. */
export function source(known: () => Known) {
  return (context: CompletionContext): CompletionResult | null => {
    const place = placeOf(context);
    if (!place || (!place.word && !context.explicit && place.at === "key")) return null;
    const options = optionsAt(place, known());
    if (options.length === 0) return null;
    return { from: context.pos - place.word.length, options: [...options], validFor: /^[\w./-]*$/ };
  };
}

/** What a key is for, while the pointer rests on it. */
export function hover(known: () => Known) {
  return hoverTooltip((view, position) => {
    const { schema } = known();
    const line = view.state.doc.lineAt(position);
    const path = pathUnder(view.state.doc.toString().split("\n"), line.number - 1, position - line.from);
    const found = path && schema ? aboutAt(schema, path) : null;
    if (!found) return null;
    return {
      pos: position,
      create: () => {
        const dom = document.createElement("div");
        dom.className = "cm-about";
        for (const text of [found.about, found.type]) dom.appendChild(document.createElement("p")).textContent = text;
        return { dom };
      },
    };
  });
}
