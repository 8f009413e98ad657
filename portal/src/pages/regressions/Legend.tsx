import { legend } from "./heat";
import heat from "./HeatMap.module.css";
import styles from "./Legend.module.css";

/** What the shades say. */
export function Legend() {
  return (
    <div className={styles["legend"]}>
      <span>
        A cell is one run: its difference from the first run shown in its row, for shares in percentage points, for other figures in percent; <strong>+</strong> is better:
      </span>
      <ul className={styles["steps"]}>
        {legend().map(({ step, text }) => (
          <li key={step}>
            <span className={heat["cell"]} data-step={step}>
              {text}
            </span>
          </li>
        ))}
      </ul>
      <span>
        <span aria-hidden="true">▼ ▲</span> level became worse, better
      </span>
    </div>
  );
}
