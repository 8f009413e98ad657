import { useApi } from "../../api";
import { Empty, FaultBox, ServedChart, Skeleton } from "../../ui";
import styles from "./Compare.module.css";

interface Props {
  readonly query: {
    readonly runs: readonly string[];
    readonly metric?: string | undefined;
    readonly common?: boolean | undefined;
  };
}

/** How samples moved between right and wrong, and what quality costs. */
export function Charts({ query }: Props) {
  const asked = { runs: [...query.runs], metric: query.metric, common: query.common };
  const found = useApi("/compare/figures", { query: asked });
  if (found.error) return <FaultBox fault={found.error} retry={() => void found.refetch()} />;
  if (!found.data) return <Skeleton lines={6} />;
  if (found.data.length === 0) return <Empty title="No charts">The runs have no chart in common.</Empty>;
  return (
    <div className={styles["charts"]}>
      {found.data.map((figure) => (
        <div key={figure.name} className={styles["chart"]}>
          <ServedChart path="/compare/figures/{name}" params={{ path: { name: figure.name }, query: asked }} />
        </div>
      ))}
    </div>
  );
}
