import { Link, useRouterState } from "@tanstack/react-router";
import { Icon } from "../ui/Icon";
import { PAGES } from "./nav";
import styles from "./Crumbs.module.css";

interface Crumb {
  readonly label: string;
  readonly to: string;
}

/** The way from the start to a page, from its path. */
export function crumbsOf(path: string): readonly Crumb[] {
  const [page, one, , task, samples] = path.split("/").slice(1).map(decodeURIComponent);
  if (page === "e" && one) {
    const found = [
      { label: "Experiments", to: "/" },
      { label: one, to: `/e/${encodeURIComponent(one)}` },
    ];
    if (task) found.push({ label: task, to: `/e/${encodeURIComponent(one)}/t/${encodeURIComponent(task)}` });
    if (task && samples) found.push({ label: "Samples", to: path });
    return found;
  }
  if (page === "stored" && one) return [{ label: "Metrics", to: "/metrics" }, { label: one, to: path }];
  const known = PAGES.find(({ to }) => to === `/${page ?? ""}`);
  if (!known) return [];
  // The id of a file is no name for people; its page shows the name.
  const below = page === "plans" ? (one === "new" ? "New file" : "File") : one;
  return one && below ? [known, { label: below, to: path }] : [known];
}

/** Where we are; all but the last lead there. */
export function Crumbs() {
  const path = useRouterState({ select: (state) => state.location.pathname });
  const crumbs = crumbsOf(path);
  return (
    <nav aria-label="Breadcrumb" className={styles.crumbs}>
      <ol>
        {crumbs.map(({ label, to }, place) => (
          <li key={to}>
            {place > 0 && <Icon name="right" size={11} />}
            {place < crumbs.length - 1 ? (
              <Link to={to} title={label}>
                {label}
              </Link>
            ) : (
              <span aria-current="page" title={label}>
                {label}
              </span>
            )}
          </li>
        ))}
      </ol>
    </nav>
  );
}
