import { useMemo } from "react";
import type { Note } from "../../api/schema";
import { Icon } from "../../ui";
import { counted } from "../../ui/format";
import { outlineOf, type Section } from "./outline";
import styles from "./plan.module.css";

interface Props {
  readonly text: string;
  /** Where the cursor is. */
  readonly line: number;
  readonly notes: readonly Note[];
  readonly onJump: (line: number) => void;
}

/** The sections of the text; a click goes there. */
export function Outline({ text, line, notes, onJump }: Props) {
  const sections = useMemo(() => outlineOf(text), [text]);
  const current = sections.findLastIndex((section) => section.line <= line);
  return (
    <nav aria-label="Sections">
      <h2>Sections</h2>
      <ul>
        {sections.map((section, place) => {
          const wrong = countIn(notes, section, sections[place + 1]);
          return (
            <li key={`${section.line} ${section.title}`}>
              <button type="button" className={styles.section} data-depth={section.depth} aria-current={place === current ? "location" : undefined} onClick={() => onJump(section.line)}>
                <span>{section.title}</span>
                {wrong > 0 && (
                  <span className={styles.wrong}>
                    <Icon name="warning" size={12} label={counted(wrong, "problem")} />
                  </span>
                )}
              </button>
            </li>
          );
        })}
      </ul>
    </nav>
  );
}

function countIn(notes: readonly Note[], section: Section, next: Section | undefined): number {
  return notes.filter((note) => !note.file && note.line >= section.line && (next === undefined || note.line < next.line)).length;
}
