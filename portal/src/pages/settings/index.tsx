import { isBundle } from "../../api/bundle";
import { usePageTitle } from "../../app/title";
import layout from "../../ui/layout.module.css";
import { About } from "./About";
import { Appearance } from "./Appearance";
import { Tokens } from "./Tokens";

/** How it looks, who may ask, and what this is. */
export default function SettingsPage() {
  usePageTitle("Settings");
  return (
    <div className={layout.page}>
      <h1>Settings</h1>
      <Appearance />
      {!isBundle() && <Tokens />}
      <About />
    </div>
  );
}
