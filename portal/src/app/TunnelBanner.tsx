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
          <strong>The portal cannot be reached.</strong> What is shown is from {since === null ? "before" : <Ago time={since} />}; it goes on by itself once the portal answers.
        </p>
        {session?.tunnel && <Command title="Did the tunnel close? On your own computer:" text={session.tunnel} />}
      </div>
    </div>
  );
}
