import { useRouter } from "@tanstack/react-router";
import { useCallback, useState } from "react";

import { useApi } from "../../api";
import { isBundle } from "../../api/bundle";
import type { Place } from "../../app/place";
import { FaultBox, Skeleton, toast } from "../../ui";
import { copyText } from "../../ui/copy";
import { useHotkeys } from "../../ui/hotkeys";
import { join } from "../../ui/join";
import { thumbUrl } from "./addresses";
import { filterOf } from "./filter";
import { NoteDialog } from "./NoteDialog";
import { SampleHead } from "./SampleHead";
import { SampleList } from "./SampleList";
import { SamplePanel } from "./SamplePanel";
import styles from "./Samples.module.css";
import { type Search, search as definition } from "./search";
import { useFlag } from "./useFlag";
import { useSample } from "./useSample";
import type { Samples } from "./useSamples";
import { useSelection } from "./useSelection";
import { Viewer } from "./Viewer";

interface Props {
  readonly experiment: string;
  readonly task: string;
  readonly search: Search;
  readonly update: Place<"/e/$experiment/t/$task/samples">["update"];
  readonly samples: Samples;
}

/** The list, and the sample chosen in it: its images, and what is known of it. */
export function Browser({ experiment, task, search, update, samples }: Props) {
  const place = search.at ?? (samples.old ? undefined : samples.at(0)?.place);
  const { detail, fault, old, again } = useSample(experiment, task, filterOf(search), place);
  const onPlace = useCallback((at: number) => update({ at, image: 0 }, { replace: true }), [update]);
  const selection = useSelection(samples, place, old ? undefined : detail, onPlace);
  const flag = useFlag(experiment, task);
  const link = useLink(search, place);
  const [noting, setNoting] = useState(false);
  // Small images are asked for once a sample has shown that there are any: datasets may be gone, or without.
  const [pictured, setPictured] = useState(false);
  if (!pictured && detail !== undefined && detail.images.length > 0) setPictured(true);
  const turnFlag = () => detail && flag(detail.row.place, !detail.row.flagged);
  useHotkeys(
    {
      j: ["next sample", () => selection.step(1)],
      k: ["previous sample", () => selection.step(-1)],
      d: ["differences by words", () => update({ diff: !search.diff }, { replace: true })],
      r: ["raw response", () => update({ raw: !search.raw }, { replace: true })],
      ...(isBundle() ? {} : { f: ["flag", () => turnFlag()] as const, n: ["note", () => setNoting(true)] as const }),
      c: ["copy a link to this sample", () => void copyText(link).then((done) => toast(done ? "Link copied" : "The browser did not allow the copy"))],
    },
    "Samples",
  );
  return (
    <div className={styles["browser"]}>
      <section className={styles["list"]} aria-label="List">
        <SampleList
          samples={samples}
          current={selection.number}
          better={useDirections(experiment, task)}
          thumbOf={(row) => (pictured ? thumbUrl(experiment, task, row.place) : null)}
          onOpen={selection.open}
        />
      </section>
      {fault ? (
        <div className={styles["room"]}>
          <FaultBox fault={fault} retry={again} />
        </div>
      ) : !detail ? (
        <div className={styles["room"]}>
          <Skeleton lines={6} />
        </div>
      ) : (
        <>
          <section className={join(styles["image"], old && styles["old"])} aria-label="Images" aria-busy={old}>
            <Viewer
              sample={detail.row.sample}
              images={detail.images}
              boxes={detail.boxes}
              missing={detail.missing_images}
              shown={search.image}
              onShow={(image) => update({ image, at: place ?? null }, { replace: true })}
              withBoxes={search.boxes}
              onBoxes={(boxes) => update({ boxes }, { replace: true })}
            />
          </section>
          {/* Its own scrolling needs a stop for the keyboard. */}
          {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
          <section className={join(styles["panel"], old && styles["old"])} aria-label="Sample" aria-busy={old} tabIndex={0}>
            <SampleHead
              detail={detail}
              number={selection.number}
              total={samples.first?.total ?? 0}
              link={link}
              onStep={selection.step}
              onFlag={turnFlag}
              onNote={() => setNoting(true)}
              onBack={() => update({ at: null })}
            />
            <SamplePanel
              key={detail.row.place}
              experiment={experiment}
              task={task}
              detail={detail}
              withDiff={search.diff}
              onDiff={(diff) => update({ diff }, { replace: true })}
              withRaw={search.raw}
              onRaw={(raw) => update({ raw }, { replace: true })}
            />
          </section>
          {noting && (
            <NoteDialog
              sample={detail.row.sample}
              note={detail.note}
              onSave={(note) => flag(detail.row.place, true, note)}
              onClose={() => setNoting(false)}
            />
          )}
        </>
      )}
    </div>
  );
}

/** Of each metric whether more is better. */
function useDirections(experiment: string, task: string): ReadonlyMap<string, boolean> {
  const found = useApi("/experiments/{experiment}/run-tasks/{run_task}", { path: { experiment, run_task: task } }, { fresh: 300_000 });
  return new Map(found.data?.row.scores.map((score) => [score.metric, score.higher_is_better]));
}

/** The address of exactly what is shown, for another user's browser. */
function useLink(search: Search, place: number | undefined): string {
  const router = useRouter();
  if (place === undefined) return location.href;
  const { href } = router.buildLocation({ to: ".", search: definition.validate({ ...search, at: place }) as never });
  return new URL(router.history.createHref(href), location.href).href;
}
