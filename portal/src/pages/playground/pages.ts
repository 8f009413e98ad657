import { post } from "../../api";

/** What was dropped, and the page of it that is asked about. */
export interface PageImage {
  readonly name: string;
  /** The image as a data URI. */
  readonly uri: string;
  /** The document; null: it is an image itself. */
  readonly document: File | null;
  readonly page: number;
  readonly pages: number;
}

const DOCUMENT = /\.(pdf|tiff?)$/i;

/** Reads an image or a page of a document.
 *
 * @throws FaultError, Error - it cannot be read
 */
export async function pageOf(file: File, page = 1): Promise<PageImage> {
  if (!DOCUMENT.test(file.name)) {
    if (!file.type.startsWith("image/")) throw new Error(`${file.name} is no image, PDF or TIFF`);
    return { name: file.name, uri: await uriOf(file), document: null, page: 1, pages: 1 };
  }
  const found = await post("/playground/pages", { query: { page, name: file.name.slice(-200) } }, file, "application/octet-stream");
  const pages = Number(found.headers.get("X-Pages") ?? 1);
  return { name: file.name, uri: await uriOf(await found.blob()), document: file, page, pages };
}

function uriOf(data: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(typeof reader.result === "string" ? reader.result : "");
    reader.onerror = () => reject(new Error("the file cannot be read"));
    reader.readAsDataURL(data);
  });
}
