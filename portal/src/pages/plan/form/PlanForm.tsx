import { useMemo, useState } from "react";
import { useApi } from "../../../api";
import type { Choice } from "../../../api/schema";
import { Empty, FaultBox, Field, NumberField, Select, Skeleton } from "../../../ui";
import { counted } from "../../../ui/format";
import { figuresOf, lackOf } from "./figures";
import { Picker } from "./Picker";
import { namesIn, type Part, type Path, type Plan, planOf, type Value, withValue } from "./plan-text";
import styles from "./form.module.css";

interface Props {
  readonly text: string;
  readonly readOnly: boolean;
  readonly onText: (text: string) => void;
}

/** A plan as a form: each choice changes its place in the text, and the text changes the form. */
export default function PlanForm({ text, readOnly, onText }: Props) {
  const choices = useApi("/definitions/choices", {}, { fresh: 30_000 });
  const plan = useMemo(() => planOf(text), [text]);
  const [title, setTitle] = useState("");
  if (choices.error) return <FaultBox fault={choices.error} retry={() => void choices.refetch()} />;
  if (!choices.data) return <Skeleton lines={10} />;
  if (plan.broken) return <Empty title="The text is not valid YAML">The form follows as soon as it is. The problems below name the line.</Empty>;
  const part = plan.parts.find((one) => one.title === title) ?? plan.parts[0];
  const set = (path: Path, value: Value) => onText(withValue(text, path, value));
  return (
    <div className={styles.form}>
      {plan.parts.length > 1 && part && <Select label="Part of the plan" value={part.title} options={plan.parts.map((one) => ({ value: one.title }))} onChange={setTitle} />}
      {part ? <PartForm key={part.title} part={part} plan={plan} choices={choices.data} readOnly={readOnly} set={set} /> : <Empty title="Nothing to choose here">A plan with a matrix, or with run tasks that are written out, has a form.</Empty>}
      <div className={styles.numbers}>
        <NumberField label="Samples of each run task" hint="Empty: all" value={numberAt(plan, "limit")} min={1} readOnly={readOnly} onChange={(value) => set(["limit"], value)} />
        <NumberField label="Workers at once" hint="Empty: 1" value={numberAt(plan, "parallelism")} min={1} readOnly={readOnly} onChange={(value) => set(["parallelism"], value)} />
        <NumberField label="Most GPU-hours" hint="Empty: no limit" value={numberAt(plan, "max_gpu_hours")} min={0.1} step={0.1} readOnly={readOnly} onChange={(value) => set(["max_gpu_hours"], value)} />
      </div>
    </div>
  );
}

function numberAt(plan: Plan, key: string): number | null {
  const found = plan.at([key]);
  return typeof found === "number" ? found : null;
}

interface PartProps {
  readonly part: Part;
  readonly plan: Plan;
  readonly choices: readonly Choice[];
  readonly readOnly: boolean;
  readonly set: (path: Path, value: Value) => void;
}

const KINDS = [
  { kind: "models", one: "model", label: "Model" },
  { kind: "datasets", one: "dataset", label: "Dataset" },
  { kind: "prompts", one: "prompt", label: "Prompt" },
] as const;

function PartForm({ part, plan, choices, readOnly, set }: PartProps) {
  const several = part.kind === "matrix";
  const tasks = choices.filter((one) => one.kind === "ml_tasks");
  const asked = namesIn(plan.at([...part.path, "ml_task"]))[0] ?? "";
  const task = tasks.find((one) => one.name === asked);
  const keyOf = ({ kind, one }: (typeof KINDS)[number]) => (several ? kind : one);
  const chosen = KINDS.map((each) => namesIn(plan.at([...part.path, keyOf(each)])));
  return (
    <>
      <div className={styles.task}>
        <Field label="ML task">{() => <Select label="ML task" value={asked} options={[...(task ? [] : [{ value: asked }]), ...tasks.map((one) => ({ value: one.name }))]} onChange={(value) => !readOnly && set([...part.path, "ml_task"], value)} />}</Field>
      </div>
      {KINDS.map((each, place) => (
        <Picker
          key={each.kind}
          label={several ? `${each.label}s` : each.label}
          choices={choices.filter((one) => one.kind === each.kind)}
          chosen={chosen[place] ?? []}
          single={!several}
          optional={each.kind === "prompts"}
          disabled={readOnly}
          {...(each.kind === "datasets" ? { misfit: (one: Choice) => lackOf(one, task) } : {})}
          onChange={(names) => set([...part.path, keyOf(each)], names.length === 0 ? null : several ? names : (names[0] ?? null))}
        />
      ))}
      {several && <p className={styles.soft}>{sizeOf(chosen, choices)}</p>}
    </>
  );
}

/** How many run tasks a matrix has, and the largest model in it. */
function sizeOf([models = [], datasets = [], prompts = []]: readonly (readonly string[])[], choices: readonly Choice[]): string {
  const parts = [counted(models.length, "model"), counted(datasets.length, "dataset"), ...(prompts.length > 0 ? [counted(prompts.length, "prompt")] : [])];
  const all = models.length * datasets.length * Math.max(1, prompts.length);
  const needs = choices.filter((one) => one.kind === "models" && models.includes(one.name) && typeof one.gpus === "number");
  const largest = needs.reduce<Choice | undefined>((most, one) => (most === undefined || needOf(one) > needOf(most) ? one : most), undefined);
  return `${parts.join(" × ")} = ${counted(all, "run task")}${largest ? `; the largest model: ${figuresOf(largest)}` : ""}`;
}

function needOf(model: Choice): number {
  return (model.gpus ?? 0) * (model.gpu_memory_gb ?? 1);
}
