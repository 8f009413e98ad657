import type { DiskUsage } from "../../api/schema";
import { Empty, Panel } from "../../ui";
import { bytes, count, counted, percent } from "../../ui/format";
import layout from "../../ui/layout.module.css";
import styles from "./cluster.module.css";

const TIGHT = 0.9;

/** How full file systems and quotas are. */
export function Rooms({ rooms }: { readonly rooms: readonly DiskUsage[] }) {
  return (
    <Panel title="Disk space">
      {rooms.length === 0 && <Empty title="No file system has answered yet" />}
      <ul className={styles.rooms}>
        {rooms.map((room) => (
          <One key={`${room.path} ${String(room.quota)}`} room={room} />
        ))}
      </ul>
    </Panel>
  );
}

function One({ room }: { readonly room: DiskUsage }) {
  const share = room.size > 0 ? room.used / room.size : 0;
  const files = room.files ? (room.files_used ?? 0) / room.files : 0;
  const tight = share > TIGHT || files > TIGHT;
  const left = Math.max(0, room.size - room.used);
  return (
    <li className={styles.room}>
      <div className={layout.bar}>
        <h3>
          {room.name}
          <span className={styles.tag}>{room.quota ? "your quota" : "whole file system"}</span>
        </h3>
        <span className={layout.soft}>{`${bytes(left)} of ${bytes(room.size)} free`}</span>
      </div>
      <span className={styles.bar} role="img" aria-label={`${room.name}: ${percent(share)} used`}>
        <span className={tight ? styles.tight : styles.held} style={{ width: `${Math.min(100, 100 * share)}%` }} />
      </span>
      <p className={layout.small}>
        <span className={layout.mono}>{room.path}</span>
        {`, ${percent(share)} used`}
        {room.files ? `, ${count(room.files_used)} of ${counted(room.files, "file")}` : ""}
        {tight && <strong>{files > TIGHT ? " – almost no files left" : " – almost full"}</strong>}
      </p>
    </li>
  );
}
