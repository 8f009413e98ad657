import { useEffect, useRef } from "react";

import type { Box, SampleImage } from "../../api/schema";
import { counted } from "../../ui/format";
import { join } from "../../ui/join";
import { imageUrl } from "./addresses";
import { Picture } from "./Picture";
import styles from "./Pages.module.css";

interface Props {
  readonly images: readonly SampleImage[];
  readonly boxes: readonly Box[];
  readonly shown: number;
  readonly onShow: (number: number) => void;
}

/** All images of a sample as a strip: the pages of a document. */
export function Pages({ images, boxes, shown, onShow }: Props) {
  const current = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    // Newer browsers answer with a promise, which must not be taken for what cleans up.
    current.current?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [shown]);
  return (
    <ol className={styles["pages"]} aria-label="Images">
      {images.map((image, at) => {
        const found = boxes.filter((box) => box.image === at).length;
        return (
          <li key={image.url}>
            <button
              ref={at === shown ? current : null}
              type="button"
              className={join(styles["page"], at === shown && styles["shown"])}
              aria-current={at === shown ? "true" : undefined}
              onClick={() => onShow(at)}
            >
              <Picture place={imageUrl(image, "thumb")} alt="" loading="lazy" decoding="async" />
              <span className={styles["number"]}>
                <span className="visually-hidden">{image.page === null ? "image " : "page "}</span>
                {image.page ?? at + 1}
                {found > 0 && <span title={counted(found, "box", "boxes")}> ▢{found}</span>}
              </span>
            </button>
          </li>
        );
      })}
    </ol>
  );
}
