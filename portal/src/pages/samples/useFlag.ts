import { useQueryClient } from "@tanstack/react-query";

import { send } from "../../api";
import type { SampleDetail, SamplePage, SampleRow } from "../../api/schema";
import { toast } from "../../ui";

const PATH = "/experiments/{experiment}/run-tasks/{run_task}/samples/{place}/flag";

/** Flags a sample, or takes its flag away; shown at once, and taken back where the portal refuses. */
export function useFlag(experiment: string, run_task: string) {
  const client = useQueryClient();
  const show = (place: number, flagged: boolean, note: string) => {
    const changed = (row: SampleRow) => (row.place === place ? { ...row, flagged } : row);
    client.setQueriesData({ predicate: ({ queryKey }) => isOf(queryKey, "/samples", experiment, run_task) }, (page?: SamplePage) =>
      page && "items" in page ? { ...page, items: page.items.map(changed) } : page,
    );
    client.setQueriesData({ predicate: ({ queryKey }) => isOf(queryKey, "/samples/{place}", experiment, run_task) }, (detail?: SampleDetail) =>
      detail && { ...detail, row: changed(detail.row), note: detail.row.place === place ? note : detail.note },
    );
  };
  const tell = (place: number, flagged: boolean, note: string) =>
    flagged ? send("put", PATH, { path: { experiment, run_task, place } }, { flagged, note }) : send("delete", PATH, { path: { experiment, run_task, place } });
  return (place: number, flagged: boolean, note = "") => {
    show(place, flagged, note);
    tell(place, flagged, note).catch((fault: unknown) => {
      show(place, !flagged, "");
      toast(fault instanceof Error ? fault.message : "The flag could not be saved.");
    });
  };
}

function isOf(key: readonly unknown[], ending: string, experiment: string, task: string): boolean {
  const [, path, ids] = key as [unknown, string?, { experiment?: string; run_task?: string }?];
  return path?.endsWith(ending) === true && ids?.experiment === experiment && ids.run_task === task;
}
