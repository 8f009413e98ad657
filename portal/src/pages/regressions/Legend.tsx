import { legend } from "./heat";
import heat from "./HeatMap.module.css";
import styles from "./Legend.module.css";

/** What the shades say. */
export function Legend() {
  return (
    <div className={styles["legend"]}>
      <span>
        A cell is one run: how far it is from the first run shown in its row, in points of a share, in percent of all else; <strong>+</strong> is better:
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
        <span aria-hidden="true">▼ ▲</span> level changed for the worse, for the better
      </span>
    </div>
  );
}
