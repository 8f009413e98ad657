import type { Failure } from "../api/schema";

/** Id of the log that a failure names: its folder and its file. */
export function logOf({ log }: Failure): string {
  return (log ?? "").split("/").slice(-2).join(".");
}
