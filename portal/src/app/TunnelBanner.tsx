import { Command } from "../ui/Command";
import { Icon } from "../ui/Icon";
import { Ago } from "../ui/times";
import { useSession } from "./session";
import styles from "./TunnelBanner.module.css";

/** The portal is gone: what is shown is old, and this line brings it back. The page recovers by itself. */
export function TunnelBanner() {
  const { reachable, since, session } = useSession();
  if (reachable) return null;
  return (
    <div className={styles.banner} role="alert">
      <Icon name="warning" />
      <div className={styles.text}>
        <p>
          <strong>The portal cannot be reached.</strong> The data on this page {since === null ? "may be old" : <>is from <Ago time={since} /></>}. The page updates itself when the portal answers again.
        </p>
        {session?.tunnel && <Command title="If the SSH tunnel is closed, run this on your own computer:" text={session.tunnel} />}
      </div>
    </div>
  );
}
