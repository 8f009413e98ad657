import { Fragment } from "react";
import { type Block, blockOf, type Inline, inlines } from "./markdown";
import styles from "./Markdown.module.css";
import { Scroller } from "./Scroller";

/** Blocks of a report's Markdown. Names and answers in them are of others: they become text and nothing else. */
export function Markdown({ blocks }: { readonly blocks: readonly string[] }) {
  return (
    <div className={styles.whole}>
      {blocks.map((block, place) => (
        <Drawn key={place} block={blockOf(block)} label={caption(blocks[place - 1])} />
      ))}
    </div>
  );
}

function Drawn({ block, label }: { readonly block: Block; readonly label: string }) {
  switch (block.kind) {
    case "paragraph":
      return (
        <p>
          <Words words={block.inner} />
        </p>
      );
    case "code":
      return (
        <Scroller label="Code" className={styles.scroll}>
          <pre>{block.text}</pre>
        </Scroller>
      );
    case "list":
      return (
        <ul className={styles.list}>
          {block.items.map((item, place) => (
            <li key={place}>
              <Words words={item} />
            </li>
          ))}
        </ul>
      );
    case "table":
      return (
        <Scroller label={label} className={styles.scroll}>
          <table>
            <thead>
              <tr>
                {block.heads.map((head, place) => (
                  <th key={place} scope="col" data-end={block.ends[place]}>
                    <Words words={head} />
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {block.rows.map((row, at) => (
                <tr key={at}>
                  {row.map((cell, place) => (
                    <td key={place} data-end={block.ends[place]}>
                      <Words words={cell} />
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </Scroller>
      );
  }
}

function Words({ words }: { readonly words: readonly Inline[] }) {
  return words.map((one, place) => {
    if (one.kind === "text") return <Fragment key={place}>{one.text}</Fragment>;
    if (one.kind === "code") return <code key={place}>{one.text}</code>;
    return (
      <strong key={place}>
        <Words words={one.inner} />
      </strong>
    );
  });
}

/** What a table is called: the line above it. */
function caption(above: string | undefined): string {
  return above === undefined ? "Table" : plainOf(inlines(above));
}

function plainOf(words: readonly Inline[]): string {
  return words.map((one) => (one.kind === "strong" ? plainOf(one.inner) : one.text)).join("");
}
