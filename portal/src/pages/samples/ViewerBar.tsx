import type { SampleImage } from "../../api/schema";
import { Button, Toggle } from "../../ui";
import layout from "../../ui/layout.module.css";
import { join } from "../../ui/join";
import { STEP, type useZoom } from "./useZoom";
import styles from "./ViewerBar.module.css";

interface Props {
  readonly zoom: ReturnType<typeof useZoom>;
  readonly image: SampleImage;
  /** How many there are on all images. */
  readonly boxes: number;
  readonly withBoxes: boolean;
  readonly onBoxes: (on: boolean) => void;
}

/** What can be done with an image. */
export function ViewerBar({ zoom, image, boxes, withBoxes, onBoxes }: Props) {
  const size = image.width && image.height ? `, ${image.width} × ${image.height} pixels` : "";
  return (
    <div className={styles["bar"]} role="toolbar" aria-label="Image">
      <span className={join(layout["clip"], layout["soft"], styles["name"])} title={image.name + size}>
        {image.name}
      </span>
      {boxes > 0 && <Toggle label={`Boxes ${boxes}`} checked={withBoxes} onChange={onBoxes} />}
      <span className={styles["group"]}>
        <Button small kind="quiet" onClick={() => zoom.zoomBy(1 / STEP)} aria-label="Zoom out">
          −
        </Button>
        <output className={styles["scale"]} aria-label="Scale">
          {zoom.view ? `${Math.round(zoom.view.scale * 100)} %` : "–"}
        </output>
        <Button small kind="quiet" onClick={() => zoom.zoomBy(STEP)} aria-label="Zoom in">
          +
        </Button>
      </span>
      <span className={styles["group"]}>
        <Button small kind="quiet" onClick={zoom.fit}>
          Fit
        </Button>
        <Button small kind="quiet" onClick={zoom.fill}>
          Width
        </Button>
        <Button small kind="quiet" onClick={zoom.actual}>
          1:1
        </Button>
      </span>
    </div>
  );
}
