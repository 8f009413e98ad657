import type { Choice } from "../../../api/schema";
import { count, counted } from "../../../ui/format";

/** What a definition costs or holds, in a few words. */
export function figuresOf(one: Choice): string {
  const memory = typeof one.gpu_memory_gb === "number" ? ` of ${one.gpu_memory_gb} GB` : "";
  const parts = [
    one.gpus === 0 ? "no GPU" : typeof one.gpus === "number" ? `${counted(one.gpus, "GPU")}${memory}` : "",
    typeof one.parameters_b === "number" ? `${one.parameters_b} B` : "",
    typeof one.samples === "number" ? `${count(one.samples)} samples` : "",
    typeof one.size_gb === "number" ? `${one.size_gb} GB` : "",
  ];
  return parts.filter(Boolean).join(" · ");
}

/** Why a dataset does not fit an ML task: fields that it lacks; empty: it fits, or that is unknown. */
export function lackOf(dataset: Choice, task: Choice | undefined): string {
  if (!task || dataset.fields.length === 0) return "";
  const lacking = task.fields.filter((name) => !dataset.fields.includes(name));
  return lacking.length > 0 ? `no field ${lacking.join(", ")}` : "";
}
