import { url } from "../../api";
import type { ExperimentDetail } from "../../api/schema";
import { Command, Empty, Icon, Panel } from "../../ui";
import styles from "./experiment.module.css";

const ABOUT: Readonly<Record<string, string>> = {
  html: "for people: one page, offline, light and dark",
  md: "for terminals and merge requests",
  json: "for programs",
  tex: "for papers",
  pdf: "for paper",
  svg: "a plot",
  txt: "what could not be written",
};

/** Files of the report. */
export function ReportTab({ detail }: { readonly detail: ExperimentDetail }) {
  const { reports, row } = detail;
  if (reports.length === 0) {
    return (
      <Empty title="There is no report yet" next={<Command text={`hpcbench report ${row.id} --format html`} />}>
        The last job of an experiment writes the report.
      </Empty>
    );
  }
  return (
    <Panel title="Files of the report">
      <ul className={styles.reports}>
        {reports.map((file) => {
          const ending = file.slice(file.lastIndexOf(".") + 1);
          const page = ending === "html";
          return (
            <li key={file}>
              <a href={url("/experiments/{experiment}/report/{file}", { path: { experiment: row.id, file } })} {...(page ? { target: "_blank", rel: "noreferrer noopener" } : { download: file })}>
                <Icon name={page ? "link" : "export"} size={14} />
                {file}
              </a>
              <span className={styles.dim}>
                {ABOUT[ending] ?? ""}
                {page ? ", opens in a new tab" : ""}
              </span>
            </li>
          );
        })}
      </ul>
    </Panel>
  );
}
