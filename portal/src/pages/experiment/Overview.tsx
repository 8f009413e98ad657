import type { ExperimentDetail, Matrix as MatrixModel } from "../../api/schema";
import { Failures } from "../../parts/Failures";
import { Waits } from "../../parts/Waits";
import { Icon, Panel, Select } from "../../ui";
import { counted } from "../../ui/format";
import { Matrix } from "./Matrix";
import layout from "../../ui/layout.module.css";
import { STEPS } from "./shades";
import matrixStyles from "./matrix.module.css";

interface Props {
  readonly detail: ExperimentDetail;
  /** The ML task whose matrix is shown; empty: the first. */
  readonly mlTask: string;
  readonly onMlTask: (mlTask: string) => void;
}

/** The matrix, and beside it what went wrong and what is waited for. */
export function Overview({ detail, ...chosen }: Props) {
  const { row, matrices, failures, waits, status } = detail;
  const deferred = status?.deferred ?? 0;
  const alarms = status?.alarms ?? [];
  const beside = failures.length > 0 || waits.length > 0 || deferred > 0 || alarms.length > 0;
  return (
    <div className={beside ? layout.split : layout.stack}>
      <div className={layout.stack}>
        <Matrices experiment={row.id} matrices={matrices} {...chosen} />
      </div>
      {beside && (
        <div className={layout.stack}>
          {failures.length > 0 && (
            <Panel title="Failures">
              <Failures experiment={row.id} failures={failures} />
            </Panel>
          )}
          {(waits.length > 0 || deferred > 0) && (
            <Panel title="Why jobs wait">
              <Waits waits={waits} />
              {deferred > 0 && <p className={layout.soft}>{counted(deferred, "worker")} not submitted yet because of a Slurm limit. hpcbench submits them later by itself.</p>}
            </Panel>
          )}
          {alarms.length > 0 && (
            <Panel title="Warnings of monitors">
              <Failures experiment={row.id} failures={alarms} />
            </Panel>
          )}
        </div>
      )}
    </div>
  );
}

/** One matrix an ML task; of several the one chosen. */
function Matrices({ experiment, matrices, mlTask, onMlTask }: Omit<Props, "detail"> & { readonly experiment: string; readonly matrices: readonly MatrixModel[] }) {
  const matrix = matrices.find((one) => one.ml_task === mlTask) ?? matrices[0];
  if (!matrix || matrix.rows.length === 0) return null;
  const scored = matrix.rows.some((row) => row.cells.some((cell) => cell?.score));
  const actions = matrices.length > 1 && <Select label="ML task" value={matrix.ml_task} options={matrices.map((one) => ({ value: one.ml_task, label: `${one.ml_task} (${one.rows.length} × ${one.columns.length})` }))} onChange={onMlTask} />;
  return (
    <Panel title={`Models × datasets: ${matrix.ml_task}`} actions={actions}>
      <div className={layout.stack}>
        <Matrix experiment={experiment} matrix={matrix} />
        {scored && <Legend matrix={matrix} />}
      </div>
    </Panel>
  );
}

function Legend({ matrix }: { readonly matrix: MatrixModel }) {
  const compared = matrix.columns.some((_, place) => matrix.rows.filter((row) => row.cells[place]?.score).length > 1);
  return (
    <p className={matrixStyles.legend}>
      <span>
        {matrix.metric}
        {matrix.higher_is_better ? "" : " (less is better)"} with its 95 % interval
      </span>
      {compared && (
        <>
      <span className={matrixStyles.scale}>
        worst
        {Array.from({ length: STEPS + 1 }, (_, step) => (
          <span key={step} className={matrixStyles.swatch} data-shade={step} />
        ))}
        best of its dataset
      </span>
      <span className={matrixStyles.scale}>
        <Icon name="star" size={12} /> no model has a better value; chance may explain the lead
      </span>
        </>
      )}
    </p>
  );
}
