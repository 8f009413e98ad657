/** A prompt and a plan with what was tried. */
import { stringify } from "yaml";

export interface Tried {
  readonly model: string;
  readonly system: string;
  readonly prompt: string;
  readonly maxTokens: number;
  readonly temperature: number;
}

/** The prompt's definition. The text is a template: braces of templates that the user typed mean what they say. */
export function promptText(name: string, tried: Tried): string {
  return stringify({ schema_version: 1, name, description: "Tried in the playground.", ...(tried.system ? { system: tried.system } : {}), user: tried.prompt }, { lineWidth: 0 });
}

/** A plan with the model and the prompt; its dataset and ML task are to be chosen. */
export function planText(name: string, tried: Tried): string {
  const body = stringify(
    {
      schema_version: 1,
      name,
      description: "From the playground.",
      limit: 100,
      run_tasks: [{ name, ml_task: "ocr", model: tried.model, dataset: "demo_ocr", prompt: name, generation: { max_tokens: tried.maxTokens, temperature: tried.temperature } }],
    },
    { lineWidth: 0 },
  );
  return `# Choose the ML task and the dataset; model and prompt are those of the playground.\n${body}`;
}
