import { Definition } from "../../parts/Definition";
import type { Entry } from "../../parts/entries";
import { Panel } from "../../ui";

const WORDS: Readonly<Record<string, string>> = { model: "Model", dataset: "Dataset", prompt: "Prompt", ml_task: "ML task", resources: "Resources", task: "Run task" };

/** The definitions as they were resolved; secrets are references. */
export function Definitions({ definitions }: { readonly definitions: Entry }) {
  return (
    <Panel title="Resolved definitions">
      {Object.entries(definitions).map(([name, value]) => (
        <Definition key={name} title={WORDS[name] ?? name} value={value} />
      ))}
    </Panel>
  );
}
