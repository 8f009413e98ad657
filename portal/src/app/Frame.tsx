import { Link, Outlet, useRouterState } from "@tanstack/react-router";
import { Suspense, useEffect, useRef, useState } from "react";
import { Button } from "../ui/Button";
import { MAC, useHotkeys } from "../ui/hotkeys";
import { Icon } from "../ui/Icon";
import { KeyHelp } from "../ui/KeyHelp";
import { Toasts } from "../ui/toast";
import { Skeleton } from "../ui/Skeleton";
import layout from "../ui/layout.module.css";
import { Connection } from "./Connection";
import { Crumbs } from "./Crumbs";
import styles from "./Frame.module.css";
import { isHere, pages } from "./nav";
import { Palette } from "./palette/Palette";
import { ThemeButton } from "./ThemeButton";
import { usePageTitle } from "./title";
import { TunnelBanner } from "./TunnelBanner";

/** What is around every page. */
export function Frame() {
  const [palette, setPalette] = useState(false);
  const main = useRef<HTMLElement>(null);
  const path = useRouterState({ select: (state) => state.location.pathname });
  const first = useRef(path);
  useEffect(() => {
    // After a change of page the keyboard begins at its start; on the first one it stays with the browser.
    if (first.current !== path) main.current?.focus({ preventScroll: true });
    first.current = path;
  }, [path]);
  useHotkeys({ "mod+k": ["jump to anything", () => setPalette(true)], "/": ["jump to anything", () => setPalette(true)] }, "Everywhere");
  const keys = MAC ? "⌘K" : "Ctrl K";
  return (
    <div className={styles.frame}>
      <a
        className={styles.skip}
        href="#main"
        onClick={(event) => {
          // The address is the router's.
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to the page
      </a>
      <Rail />
      <div className={styles.side}>
        <header className={styles.top}>
          <Crumbs />
          <div className={styles.tools}>
            <Connection />
            <Button kind="quiet" onClick={() => setPalette(true)} className={styles.jump}>
              <Icon name="search" size={14} />
              <span>Jump to…</span>
              <kbd>{keys}</kbd>
            </Button>
            <ThemeButton />
          </div>
        </header>
        <TunnelBanner />
        <main ref={main} id="main" tabIndex={-1} className={styles.main}>
          <Suspense fallback={<Skeleton lines={6} />}>
            {isHere(path) ? <Outlet /> : <NotHere />}
          </Suspense>
        </main>
      </div>
      {palette && <Palette onClose={() => setPalette(false)} />}
      <KeyHelp />
      <Toasts />
    </div>
  );
}

function NotHere() {
  usePageTitle("Not in a copy");
  return (
    <div className={layout.page}>
      <h1>Not in a copy</h1>
      <p>
        This is a static copy of one experiment&apos;s pages. This page needs a running portal: <code>hpcbench portal</code>.
      </p>
    </div>
  );
}

function Rail() {
  return (
    <nav className={styles.rail} aria-label="Pages">
      <Link to="/" className={styles.mark} aria-label="hpcbench: experiments">
        <span className={styles.logo}>
          <Icon name="chart" size={16} />
        </span>
        <span className={styles.word}>hpcbench</span>
      </Link>
      <ul>
        {pages().map(({ to, label, icon }) => (
          <li key={to}>
            <Link to={to} className={styles.link} activeOptions={{ exact: to === "/", includeSearch: false }} title={label}>
              <Icon name={icon} />
              <span className={styles.word}>{label}</span>
            </Link>
          </li>
        ))}
      </ul>
    </nav>
  );
}
