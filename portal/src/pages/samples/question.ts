import type { SampleDetail } from "../../api/schema";

/** The question of a sample: the dataset's own, or the whole prompt where the dataset asks none. */
export function questionOf({ fields, prompt }: Pick<SampleDetail, "fields" | "prompt">): string {
  const question = fields["question"];
  return typeof question === "string" && question.trim() !== "" ? question : (prompt ?? "");
}
