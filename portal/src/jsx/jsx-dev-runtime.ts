import * as react from "react/jsx-dev-runtime";
import { shown } from "./shown";

type Make = (type: unknown, props: Record<string, unknown>, ...more: unknown[]) => unknown;

export const Fragment = react.Fragment;
export const jsxDEV: Make = (type, props, ...more) => (react as unknown as { jsxDEV: Make }).jsxDEV(type, shown(type, props), ...more);
