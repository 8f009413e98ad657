import type { KeyboardEvent } from "react";

import type { Box, SampleImage } from "../../api/schema";
import { useHotkeys } from "../../ui/hotkeys";
import { Empty } from "../../ui";
import { Boxes } from "./Boxes";
import { Pages } from "./Pages";
import { imageUrl } from "./addresses";
import { Picture } from "./Picture";
import { useImage } from "./useImage";
import { STEP, useZoom } from "./useZoom";
import styles from "./Viewer.module.css";
import { ViewerBar } from "./ViewerBar";

interface Props {
  readonly sample: string;
  readonly images: readonly SampleImage[];
  readonly boxes: readonly Box[];
  readonly missing: string | null | undefined;
  /** Which is shown, from 0. */
  readonly shown: number;
  readonly onShow: (number: number) => void;
  readonly withBoxes: boolean;
  readonly onBoxes: (on: boolean) => void;
}

/** Pixels that an arrow key moves an image by. */
const NUDGE = 60;

/** A sample's images: one of them large, all of them as a strip. */
export function Viewer(props: Props) {
  const { images, boxes, withBoxes } = props;
  const shown = Math.min(Math.max(0, props.shown), Math.max(0, images.length - 1));
  const image = images[shown];
  const full = image ? imageUrl(image, "full") : null;
  const loaded = useImage(full);
  const size = image?.width && image.height ? { width: image.width, height: image.height } : loaded.size;
  const zoom = useZoom(size, full ?? "");
  const { attach, view } = zoom;
  const onPage = (by: number) => props.onShow(Math.min(Math.max(shown + by, 0), images.length - 1));
  const here = boxes.filter((box) => box.image === shown);
  useHotkeys(
    {
      z: ["zoom: whole image, then its own size", () => (zoom.whole ? zoom.actual() : zoom.fit())],
      "+": ["zoom in", () => zoom.zoomBy(STEP)],
      "-": ["zoom out", () => zoom.zoomBy(1 / STEP)],
      b: ["boxes", () => props.onBoxes(!withBoxes)],
      "[": ["previous page", () => onPage(-1)],
      "]": ["next page", () => onPage(1)],
    },
    "Image",
  );
  if (!image) {
    return (
      <div className={styles["viewer"]}>
        <Empty title="No image">{props.missing ?? "This sample has none."}</Empty>
      </div>
    );
  }
  const keys = (event: KeyboardEvent) => {
    const ways: Readonly<Record<string, readonly [number, number]>> = {
      ArrowLeft: [NUDGE, 0], ArrowRight: [-NUDGE, 0], ArrowUp: [0, NUDGE], ArrowDown: [0, -NUDGE],
    }; // prettier-ignore
    const way = ways[event.key];
    if (!way) return;
    event.preventDefault();
    zoom.panBy(...way);
  };
  const place = view && size && { left: view.x, top: view.y, width: size.width * view.scale, height: size.height * view.scale };
  return (
    <div className={styles["viewer"]}>
      <ViewerBar zoom={zoom} boxes={boxes.length} withBoxes={withBoxes} onBoxes={props.onBoxes} image={image} />
      <div
        ref={attach}
        className={styles["frame"]}
        role="application"
        aria-roledescription="image viewer"
        aria-label={`Image ${shown + 1} of ${images.length}: ${image.name}. Arrow keys move it, plus and minus zoom.`}
        // An application of its own to a screen reader: arrow keys move the image.
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
        tabIndex={0}
        onKeyDown={keys}
        onDoubleClick={() => (zoom.whole ? zoom.actual() : zoom.fit())}
      >
        {place && <Picture className={styles["under"]} style={place} place={imageUrl(image, "thumb")} alt="" draggable={false} key={`${full}thumb`} />}
        {place && loaded.size && full && (
          <Picture className={styles["image"]} style={place} place={full} alt={`${image.name} of sample ${props.sample}`} draggable={false} data-testid="image" />
        )}
        {loaded.failed && <p className={styles["fault"]}>This image cannot be shown.</p>}
        {view && size && withBoxes && <Boxes boxes={here} view={view} size={size} />}
      </div>
      {images.length > 1 && <Pages images={images} boxes={boxes} shown={shown} onShow={props.onShow} />}
    </div>
  );
}
