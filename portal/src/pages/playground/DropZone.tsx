import { type DragEvent, useState } from "react";
import { Button, FaultBox } from "../../ui";
import { type PageImage, pageOf } from "./pages";
import layout from "../../ui/layout.module.css";
import styles from "./playground.module.css";

interface Props {
  readonly page: PageImage | null;
  readonly onPage: (page: PageImage | null) => void;
}

/** A page to ask about: dropped or chosen, an image or a page of a PDF. */
export function DropZone({ page, onPage }: Props) {
  const [over, setOver] = useState(false);
  const [fault, setFault] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const take = async (file: File | null | undefined, number = 1) => {
    if (!file) return;
    setBusy(true);
    setFault(null);
    try {
      onPage(await pageOf(file, number));
    } catch (error) {
      setFault(error as Error);
    } finally {
      setBusy(false);
    }
  };
  const dropped = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    void take(event.dataTransfer.files.item(0));
  };
  return (
    // Dropping is a second way: the field for files below serves every other.
    // eslint-disable-next-line jsx-a11y/no-static-element-interactions
    <div
      className={styles.zone}
      data-over={over}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={dropped}
    >
      <div className={layout.row}>
        <label className={styles.choose}>
          {page ? "Another page" : "Drop a page image or a PDF here, or choose a file"}
          <input type="file" accept="image/*,.pdf,.tif,.tiff" onChange={(event) => void take(event.target.files?.item(0))} />
        </label>
        {page && <Button small icon="cross" onClick={() => onPage(null)}>Without a page</Button>}
      </div>
      <FaultBox fault={fault} />
      {page && page.pages > 1 && (
        <div className={layout.row}>
          <Button small icon="left" aria-label="Page before" disabled={busy || page.page === 1} onClick={() => void take(page.document, page.page - 1)} />
          <span>
            page {page.page} of {page.pages}
          </span>
          <Button small icon="right" aria-label="Next page" disabled={busy || page.page === page.pages} onClick={() => void take(page.document, page.page + 1)} />
        </div>
      )}
      {page && <img className={styles.picture} src={page.uri} alt={`${page.name}${page.pages > 1 ? `, page ${page.page}` : ""}`} />}
    </div>
  );
}
