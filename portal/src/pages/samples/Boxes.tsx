import type { Box } from "../../api/schema";
import { join } from "../../ui/join";
import styles from "./Boxes.module.css";
import { crowded } from "./crowded";
import type { Size, View } from "./zoom";

interface Props {
  readonly boxes: readonly Box[];
  readonly view: View;
  readonly size: Size;
}

/** Places on an image, with what is there; the reference's are solid, the answer's dashed. */
export function Boxes({ boxes, view, size }: Props) {
  const across = size.width * view.scale;
  const down = size.height * view.scale;
  return (
    <ul className={join(styles["boxes"], crowded(boxes, { width: across, height: down }) && styles["crowded"])} aria-label="Boxes">
      {boxes.map((box, at) => (
        <li
          key={at}
          className={join(styles["box"], box.of === "answer" && styles["answer"])}
          style={{
            left: view.x + box.left * across,
            top: view.y + box.top * down,
            width: box.width * across,
            height: box.height * down,
          }}
        >
          <span className={styles["label"]}>
            {box.label || (box.of === "answer" ? "answer" : "reference")}
            {box.label && <span className="visually-hidden">, {box.of}</span>}
          </span>
        </li>
      ))}
    </ul>
  );
}
